// Package powerloss shows what a power cut would leave of a process's files.
//
// # Model
//
// [Record] runs a command under strace, kills it with SIGKILL at a moment that
// the test chooses, and returns the [Trace]: for every file below a folder,
// which part of it was synced. [Trace.Cut] then takes away from the files on
// disk what a power cut could take: every file is truncated to its length at
// its last completed fsync, and files that were never synced are removed. The
// test starts the program again on what is left and compares.
//
//	acked := …
//	trace, err := powerloss.Record(ctx, cmd, dir, func(line string) bool {
//		acked = append(acked, line)
//		return len(acked) < 1000 // then the power is cut
//	})
//	report, err := trace.Cut(powerloss.Options{})
//	// open the store in dir again; every acked line must be there
//
// It works for any program whose acknowledgements appear as lines on standard
// output: a test binary that starts itself again, or a whole node.
//
// # What it assumes
//
//  1. A write counts as durable when an fsync or fdatasync of the file began
//     after the write had returned, and has returned itself; or when the file
//     was opened with O_SYNC or O_DSYNC.
//  2. Renames, removals and truncations count as durable at once and in order;
//     a file keeps what was synced of it when it is renamed. With
//     [Options].LoseUnsyncedNames, a file whose folder was not synced after it
//     appeared is removed too: POSIX allows that, ext4 and XFS do not do it to
//     a file that was synced itself.
//  3. An overwrite within the synced length counts as durable, since the old
//     bytes are gone. Bytes written through a mapping are invisible to strace.
//  4. What was there before the recording is durable.
//
// Points 2 and 3 make it kinder than a real power cut in places, never
// harsher: what it finds lost can be lost.
//
// Every harness of this kind must be shown to find loss: run it once on a
// build or a mode that does not sync.
package powerloss
