// Package sim runs the lease service in a simulated world, in virtual time: a
// database whose disk forgets what was not synced and whose clock jumps and
// runs at any rate, nodes that crash, a network that delays, loses, repeats and
// reorders messages and is cut in one direction only, holders that stop for
// long, and a second database of the users' that keeps the highest epoch. It
// has tests only.
//
// # Model
//
// The service, its tokens and its guard, the verifier of tokens and the holders
// of package hold are the real ones. The database implements the roles of the
// store port that they use; a test holds it against the real SQLite driver.
//
// # Determinism
//
// A seed decides everything. Every actor (a client, one delivered message, the
// one who brings the faults) draws from a generator of its own, and acts only
// at instants of its own: those that are its number modulo 10 µs. Whatever two
// goroutines may do at one instant therefore is one writing and others that it
// woke, who only read until their own next instant. The timers of package hold
// that do not begin at such an instant of the holder's are kept off them: a
// lease ends by its time where nobody acts, and renewals go by the instants of
// who renews. Every seed is run twice and must leave the same trace.
//
// # What is judged
//
//  1. No write is committed but under the stored epoch and nonce, through an
//     open gate and before the end of the lease; in the users' database none
//     behind a newer epoch, nor below one that was sealed before its grant was
//     answered.
//  2. Epochs rise strictly; no nonce and no epoch is given twice.
//  3. What was answered is there after a crash.
//  4. A request id is granted once.
//  5. What was superseded before a call began passes nothing, and what is
//     current is never called superseded.
//  6. Once the faults end, every call that waits is served.
//
// Every rule has a control: a broken variant that must be caught.
package sim
