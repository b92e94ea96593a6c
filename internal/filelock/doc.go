// Package filelock takes locks on files that end with the process at the
// latest: who holds one knows that nobody else does, whatever became of others.
//
// The file must lie on a local disk, and must not be removed while it may be
// locked: a lock belongs to the file, not to its name.
package filelock
