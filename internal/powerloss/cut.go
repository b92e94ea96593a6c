package powerloss

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Options varies how cruel the power cut is.
type Options struct {
	// LoseUnsyncedNames also removes files whose folder was not synced after
	// they got their name, though they were synced themselves.
	LoseUnsyncedNames bool
}

// Report says what a cut took away. Paths are relative to the folder.
type Report struct {
	Removed   []string // never synced, or their name was not
	Truncated []string
	Lost      int64 // bytes, over all files
}

// Cut takes away from the files on disk whatever was not durable when the
// recording ended.
func (t *Trace) Cut(o Options) (Report, error) {
	var r Report
	m := t.model
	err := filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(m.root, path)
		if err != nil {
			return err
		}
		f := m.files[path]
		switch {
		case f == nil:
			// It came from where the trace cannot see: a link, a mapping.
			return fmt.Errorf("powerloss: %s is not in the trace", rel)
		case f.synced < 0 || (o.LoseUnsyncedNames && !f.named):
			r.Removed = append(r.Removed, rel)
			r.Lost += info.Size()
			return os.Remove(path)
		case f.synced < info.Size():
			r.Truncated = append(r.Truncated, rel)
			r.Lost += info.Size() - f.synced
			return os.Truncate(path, f.synced)
		}
		return nil
	})
	slices.Sort(r.Removed)
	slices.Sort(r.Truncated)
	return r, err
}
