package sqlitestore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/headgate/headgate/store/storetest"
)

// disk is a file system that knows what would be left after a power cut: of
// each file what stood in it at its last sync, and of the writes since then
// any that the operating system happened to write back.
type disk struct {
	vfs.VFS
	mu    sync.Mutex
	files map[string]*image // by base name
	gone  []string          // deleted, but the folder was not synced since
}

// Delete removes a file. Without syncDir it may be back after a power cut.
func (d *disk) Delete(name string, syncDir bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = append(d.gone, filepath.Base(name))
	if syncDir {
		d.syncFolder()
	}
	return d.VFS.Delete(name, syncDir)
}

func (d *disk) syncFolder() {
	for _, name := range d.gone {
		delete(d.files, name)
	}
	d.gone = nil
}

// image is one file.
type image struct {
	durable []byte
	since   []change // not synced
}

// change is a write, or with cut a truncation to the offset.
type change struct {
	off  int64
	data []byte
	cut  bool
}

func (c change) apply(b []byte) []byte {
	end := int(c.off) + len(c.data)
	if c.cut && end < len(b) {
		return b[:end]
	}
	if end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[c.off:], c.data)
	return b
}

// at returns the files after a power cut now: with the unsynced writes that
// keep says were written back.
func (d *disk) at(keep func() bool) map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := map[string][]byte{}
	for name, img := range d.files {
		b := bytes.Clone(img.durable)
		for _, c := range img.since {
			if keep() {
				b = c.apply(b)
			}
		}
		left[name] = b
	}
	return left
}

func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	file, flags, err := d.VFS.(vfs.VFSFilename).OpenFilename(name, flags)
	if err != nil || name == nil {
		return file, flags, err
	}
	base := filepath.Base(name.String())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[base] == nil {
		d.files[base] = &image{}
	}
	return &diskFile{File: file, disk: d, image: d.files[base]}, flags, nil
}

type diskFile struct {
	vfs.File
	disk  *disk
	image *image
}

func (f *diskFile) SharedMemory() vfs.SharedMemory {
	return f.File.(vfs.FileSharedMemory).SharedMemory()
}

func (f *diskFile) record(c change) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.image.since = append(f.image.since, c)
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	f.record(change{off: off, data: bytes.Clone(p)})
	return f.File.WriteAt(p, off)
}

func (f *diskFile) Truncate(size int64) error {
	f.record(change{off: size, cut: true})
	return f.File.Truncate(size)
}

// Sync makes durable what was written before it began.
func (f *diskFile) Sync(flags vfs.SyncFlag) error {
	f.disk.mu.Lock()
	n := len(f.image.since)
	f.disk.mu.Unlock()
	if err := f.File.Sync(flags); err != nil {
		return err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	n = min(n, len(f.image.since)) // another sync may have come first
	for _, c := range f.image.since[:n] {
		f.image.durable = c.apply(f.image.durable)
	}
	f.image.since = slices.Clone(f.image.since[n:])
	return nil
}

// answers notes what Flood says.
type answers struct {
	mu   sync.Mutex
	seen map[int]uint64
	more chan struct{}
}

func (a *answers) Write(p []byte) (int, error) {
	var w int
	var n uint64
	if _, err := fmt.Sscanf(string(p), "answered %d %d", &w, &n); err != nil {
		return 0, err
	}
	a.mu.Lock()
	a.seen[w] = n
	a.mu.Unlock()
	select {
	case a.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (a *answers) all() []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := maps.Clone(a.seen)
	all := make([]uint64, 8)
	for w, n := range seen {
		all[w] = n
	}
	return all
}

// verdict collects what a check finds instead of failing the test.
type verdict struct {
	testing.TB
	mu     sync.Mutex
	faults []string
}

func (v *verdict) Errorf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

func (v *verdict) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	runtime.Goexit()
}

func (v *verdict) Fatal(args ...any) { v.Fatalf("%s", fmt.Sprint(args...)) }

// inspect opens what a power cut left and returns what is wrong with it.
func inspect(t *testing.T, left map[string][]byte, answered []uint64) []string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range left {
		write(t, filepath.Join(dir, name), b)
	}
	v := &verdict{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s, err := Open(t.Context(), Config{Path: filepath.Join(dir, "state.db"), Logger: quiet()})
		if err != nil {
			v.Fatalf("Open: %v", err)
		}
		defer s.Close()
		if err := s.Check(t.Context()); err != nil {
			v.Errorf("Check: %v", err)
		}
		storetest.VerifyFlood(v, s, answered)
	}()
	<-done
	return v.faults
}

// cutPower floods a store and cuts the power cuts times meanwhile. It returns
// the faults that it found, and how many updates were answered.
func cutPower(t *testing.T, cfg Config, cuts int) (faults []string, answered uint64) {
	t.Helper()
	d := &disk{VFS: vfs.Find("os"), files: map[string]*image{}}
	cfg.vfs = "disk-" + strings.NewReplacer("/", "-", "=", "-").Replace(t.Name())
	vfs.Register(cfg.vfs, d)
	t.Cleanup(func() { vfs.Unregister(cfg.vfs) })
	cfg.Path = filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, cfg)
	if len(d.gone) == 0 {
		t.Error("the journal of the first transaction was not deleted: the test looks in the wrong place")
	}
	d.syncFolder() // Open did
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithCancel(t.Context())
	a := &answers{seen: map[int]uint64{}, more: make(chan struct{}, 1)}
	flooding := make(chan struct{})
	go func() {
		defer close(flooding)
		storetest.Flood(ctx, t, s, a)
	}()
	for i := range cuts {
		for range 5 + rnd.IntN(60) {
			<-a.more
		}
		before := a.all() // what was answered before the cut
		left := d.at(func() bool {
			switch i % 3 {
			case 0: // nothing was written back
				return false
			case 1: // some of it, in any order
				return rnd.IntN(2) == 0
			}
			return rnd.IntN(20) > 0 // nearly all
		})
		faults = append(faults, inspect(t, left, before)...)
	}
	cancel()
	<-flooding
	for _, n := range a.all() {
		answered += n
	}
	return faults, answered
}

func TestPowerLoss(t *testing.T) {
	const cuts = 12 // of one flood: each looks at all that was written so far
	floods := 1
	if os.Getenv("HEADGATE_CAMPAIGN") != "" {
		floods = 50
	}
	for i := range floods {
		t.Run(fmt.Sprint("flood=", i), func(t *testing.T) {
			faults, answered := cutPower(t, Config{}, cuts)
			t.Logf("%d cuts, %d updates answered", cuts, answered)
			for _, f := range faults {
				t.Error(f)
			}
		})
	}
}

// TestPowerLossIsSeen cuts the power of a store that does not sync: a harness
// that finds nothing there would find nothing anywhere.
func TestPowerLossIsSeen(t *testing.T) {
	faults, answered := cutPower(t, Config{Relaxed: true}, 3)
	if len(faults) == 0 {
		t.Errorf("%d updates were answered without a sync, and no loss was seen", answered)
	}
}
