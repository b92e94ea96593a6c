package natsbroker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// fill makes every write to the block files of a folder fail as on a full
// disk.
func fill(t *testing.T, dir string) {
	t.Helper()
	full, err := unix.Open("/dev/full", unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(full) }()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		name, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name()))
		var number int
		if _, bad := fmt.Sscan(fd.Name(), &number); err != nil || bad != nil || !strings.HasPrefix(name, dir) || !strings.HasSuffix(name, ".blk") {
			continue
		}
		if err := unix.Dup3(full, number, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n == 0 {
		t.Fatal("no block file is open")
	}
}

// fullDisk is a driver whose disk is full until it is freed.
type fullDisk struct {
	*damaged
	free atomic.Bool
}

func newFullDisk(t *testing.T) *fullDisk {
	d := &fullDisk{damaged: &damaged{t: t, dir: t.TempDir(), reports: make(chan Damage, 1000)}}
	d.probe = func(string) error {
		if d.free.Load() {
			return nil
		}
		return unix.ENOSPC
	}
	d.open()
	t.Cleanup(d.close)
	return d
}

// fails fills the disk and publishes an event that does not get stored.
func (d *fullDisk) fails() {
	d.t.Helper()
	fill(d.t, d.dir)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	results, err := d.b.Publish(ctx, "s", []*headgate.Event{{ID: "lost", Source: "/s", Type: "t"}})
	if err == nil && results[0].Outcome == broker.OutcomeStored {
		d.t.Fatal("stored on a full disk")
	}
	if err := d.b.Healthy(); headgate.CodeOf(err) != headgate.CodeNotDurable {
		d.t.Fatalf("healthy: %v", err)
	}
}

// After a failed write the server stores nothing more and answers nobody. That
// is told at once, not after a timeout for every event, and a restart mends it
// with nothing lost.
func TestFailedWriteIsTold(t *testing.T) {
	d := newFullDisk(t)
	kept := d.store("a", 3)
	if err := d.b.Healthy(); err != nil {
		t.Fatal(err)
	}
	d.fails()
	event := []*headgate.Event{{ID: "new", Source: "/s", Type: "t"}}
	results, err := d.b.Publish(context.Background(), "s", append(event, &headgate.Event{ID: "a-1", Source: "/s", Type: "t"}))
	if err != nil || results[0].Outcome != broker.OutcomeThrottled || headgate.CodeOf(results[0].Err) != headgate.CodeNotDurable {
		t.Errorf("a new event: %+v, %v", results, err)
	}
	if results[1].Outcome != broker.OutcomeDuplicate || results[1].Position != kept[1] {
		t.Errorf("a known event: %+v", results[1])
	}
	d.close()
	d.open()
	if err := d.b.Healthy(); err != nil {
		t.Error(err)
	}
	results, err = d.b.Publish(context.Background(), "s", []*headgate.Event{{ID: "a-2", Source: "/s", Type: "t"}, {ID: "new", Source: "/s", Type: "t"}})
	if err != nil || results[0].Outcome != broker.OutcomeDuplicate || results[0].Position != kept[2] || results[1].Outcome != broker.OutcomeStored {
		t.Errorf("after a restart: %+v, %v", results, err)
	}
}

// Once the disk has room the driver goes on by itself: with what was under way,
// with its readers, in order, and with nothing stored twice.
func TestFreedDiskGoesOn(t *testing.T) {
	d := newFullDisk(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sub, err := d.b.Subscribe(ctx, broker.SubscribeSpec{Name: "t", Stream: "s"})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for round := range 3 { // also a second time
		d.free.Store(false)
		first := fmt.Sprint("a", round)
		d.store(first, 3)
		fill(t, d.dir)
		waiting := make(chan broker.Result, 1)
		go func() {
			results, err := d.b.Publish(ctx, "s", []*headgate.Event{{ID: fmt.Sprint("waits", round), Source: "/s", Type: "t"}})
			if err != nil {
				t.Error(err)
				results = make([]broker.Result, 1)
			}
			waiting <- results[0]
		}()
		until(t, ctx, func() bool { return d.b.Healthy() != nil })
		d.free.Store(true)
		if res := <-waiting; res.Outcome != broker.OutcomeStored || res.Position.Offset != uint64(round*5+3) {
			t.Fatalf("what was under way is %+v", res)
		}
		if err := d.b.Healthy(); err != nil {
			t.Fatal(err)
		}
		d.store(fmt.Sprint("b", round), 1)
	}
	for offset := uint64(0); offset < 15; {
		got, err := sub.Receive(ctx, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range got {
			if g.Position.Offset != offset {
				t.Fatalf("delivered %s at %s, want offset %d", g.Event.ID, g.Position, offset)
			}
			offset++
		}
	}
}

// until waits for a condition.
func until(t *testing.T, ctx context.Context, met func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it never came")
		}
	}
}

// A disk that fails otherwise is not trusted again until the node is restarted.
func TestBrokenDiskStaysRefused(t *testing.T) {
	d := newFullDisk(t)
	d.store("a", 1)
	d.free.Store(true)
	log := serverLog{d.b.cfg.Logger, d.b.embedded.health.Load(), d.b.embedded.broke}
	log.Errorf("JetStream failed to store a msg on stream '$G > x': write x.blk: input/output error")
	until(t, t.Context(), func() bool { return len(d.b.embedded.broke) == 0 })
	if !rest(d.b.life, 2*firstTry) {
		t.Fatal("the driver ended")
	}
	if err := d.b.Healthy(); headgate.CodeOf(err) != headgate.CodeNotDurable {
		t.Errorf("healthy: %v", err)
	}
}
