package sqlitestore

import (
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/internal/filelock"
)

const (
	memoryPrefix = "headgate-memory-"
	memoryFile   = "state.db"
	// leftoverAge is how old a folder without a lock must be to count as left
	// over: a younger one may be about to be locked.
	leftoverAge = time.Minute
)

// memoryPlace returns the database file of a store that keeps nothing, in a
// new temporary folder. It first removes what processes that were killed left
// behind, since that holds payloads.
func memoryPlace() (string, error) {
	removeLeftovers(os.TempDir(), time.Now())
	dir, err := os.MkdirTemp("", memoryPrefix)
	return filepath.Join(dir, memoryFile), err
}

// removeLeftovers removes the folders of stores whose process is gone. What
// cannot be removed is somebody else's, or will be tried again.
func removeLeftovers(temp string, now time.Time) {
	dirs, err := filepath.Glob(filepath.Join(temp, memoryPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < leftoverAge {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, memoryFile+lockSuffix), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if held, err := filelock.Try(lock); err == nil && held {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
