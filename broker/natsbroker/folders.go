package natsbroker

import (
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/broker"
)

// folders makes the names of a partition's files durable. The server syncs
// what it writes to a block file, but not the folder in which it created the
// file; POSIX lets a power cut take such a file whole.
type folders struct {
	messages string // where block files come and go; "" switches it off
	seen     time.Time
}

func newFolders(cfg Config, stream string) folders {
	if cfg.Dir == "" || cfg.Durability != broker.DurabilityFsync {
		return folders{}
	}
	return folders{messages: filepath.Join(cfg.Dir, "jetstream", "$G", "streams", stream, "msgs")}
}

// begin syncs every folder on the way to the partition's files.
func (f *folders) begin(root string) error {
	if f.messages == "" {
		return nil
	}
	for path := f.messages; len(path) >= len(filepath.Clean(root)); path = filepath.Dir(path) {
		if err := syncFolder(path); err != nil {
			return unavailable(err, "the data folder cannot be synced")
		}
	}
	return nil
}

// changed syncs the block files' folder if a file came or went since the last
// call. It is called after the server acknowledged a frame, before anyone else
// hears of it.
func (f *folders) changed() error {
	if f.messages == "" {
		return nil
	}
	info, err := os.Stat(f.messages)
	if err != nil {
		return err
	}
	if info.ModTime().Equal(f.seen) {
		return nil
	}
	if err := syncFolder(f.messages); err != nil {
		return err
	}
	f.seen = info.ModTime()
	return nil
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
