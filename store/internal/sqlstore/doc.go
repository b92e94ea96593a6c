// Package sqlstore is what the SQL drivers of the store share: the roles of
// the port, written once over the statements of a driver; the order of
// migrations; the queue in front of the one writer; errors that need no
// database to be told.
//
// # Invariants
//
//  1. A role has no state: everything is in the transaction of its driver.
//  2. Every statement is constant, or one of a small closed set, so that
//     drivers can keep them prepared and tests can ask for each one's plan.
//  3. Numbers and times that a database cannot keep exactly are refused, not
//     changed.
//
// # Failure and concurrency
//
// A role returns the error that the driver made of its database's. Roles
// belong to the goroutine that runs the transaction's function.
package sqlstore
