// Package relaytest holds what the tests of the outbox relays share: a node's
// inside without HTTP ([Rig]), and the harness that kills its processes
// ([Killing]). What differs between databases is given to it ([Database],
// [Target]). It is for tests only.
//
// # Model
//
// A test binary runs itself again as the processes of a system: a node (broker,
// store, perimeter and relay), a writer that commits business rows together with
// their events, and, if asked for, a broker of its own. The harness kills them,
// and the database's server, at random moments and at named points, and starts
// them again. In the end the business rows are compared with what the broker
// holds ([Verdict]).
//
// # Invariants
//
//  1. The parts are those that a node is made of; none is replaced.
//  2. Processes die by SIGKILL, those that this process started, by their id.
//  3. What was committed is read from the business table, never from the outbox.
//  4. The harness can fail: [Killing.Early] makes a relay that confirms what it
//     only received, and each package has a test that this is caught.
package relaytest
