// Package relay carries events that a business transaction committed to its
// own database through the perimeter to the broker.
//
// # Model
//
// A [Source] is the log of one database; a session of it hands out changes in
// the order of the log. Rows go to lanes by ordering key; a lane submits what
// waits in it, as the principal that the writing database role maps to, with
// the causal token that the transaction set. What the perimeter refuses for
// good is kept whole in quarantine; what it cannot take now is repeated.
//
// Rows that wait for what only their own role waits for, such as the rate of its
// principal, are set aside: their numbers are kept durably in the source, and
// their content is read from there again when their turn comes. What is set
// aside for long is all that a role may hold of the lanes, and no log.
//
// The tracker alone knows how far the log is done. Nobody else moves the
// confirmed position.
//
// # Invariants
//
//  1. A position is confirmed to the source only when every row before it is
//     stored durably by the broker, known to it already, kept in quarantine
//     durably, or set aside durably.
//  2. The confirmed position never comes from a row, only from the end of a
//     transaction or from an idle position that was read in the same order.
//  3. Rows of one ordering key are admitted in the order of the log: a row that
//     has to wait holds the ones behind it, whoever wrote them. Within one
//     submission the perimeter holds them, else the lane, and what is set aside
//     holds what is read after it. A session reads nothing of that again before
//     it has read what the session before had in flight.
//  4. A row is never dropped: not for a full quarantine, not for a refusal, not
//     for an unknown role. Its lane waits instead.
//  5. Repeating a row repeats its id, so that the broker knows it again. What
//     was committed before the session began, or was submitted without an
//     answer, is looked for in the streams before it is submitted: the broker
//     may have forgotten it, or another node may have stored it.
//  6. A mark (heartbeat) is proven before any position behind it is confirmed.
//  7. Memory is bounded by rows and bytes in flight, whatever the size of a
//     transaction, and by the numbers and keys of what is set aside; where their
//     bounds are reached what waits counts as in flight.
//  8. What is set aside is neither done nor forgotten until the broker has it or
//     the quarantine: a row that is found deleted then is recorded there.
//
// # Failure
//
// A session that fails is opened anew with backoff; what was not confirmed is
// read again. The lead is watched also while nothing can be read, because no
// more may be in flight: that is when the source has to give up its log. A
// session whose epoch was superseded stops submitting and waits
// for the lead like any other relay. When the context ends the relay stops
// reading, waits for what is in flight, confirms and closes; it needs no more
// than [Config].Drain.
//
// # Concurrency
//
// Run is called once. Status is safe at any time. One goroutine reads the log
// and is the only one that decides what is set aside of it; another brings that
// back.
package relay
