//go:build unix

package natsbroker

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate"
)

// lockFolder takes the folder for this process: two servers on one folder
// would destroy each other's files. The kernel releases the lock when the
// process ends, however it ends.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, headgate.NewError(headgate.CodeUnavailable, "data folder: %v", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, headgate.NewError(headgate.CodeConflict, "data folder is in use by another process: %v", err)
	}
	return f, nil
}

// freeSpace returns the bytes that are free to this process on the path's
// file system, and its size.
func freeSpace(path string) (free, size int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}
