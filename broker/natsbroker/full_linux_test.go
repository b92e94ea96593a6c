package natsbroker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// After a failed write the server stores nothing more and answers nobody. That
// is told at once, not after a timeout for every event, and a restart mends it
// with nothing lost.
func TestFailedWriteIsTold(t *testing.T) {
	d := newDamaged(t)
	kept := d.store("a", 3)
	if err := d.b.Healthy(); err != nil {
		t.Fatal(err)
	}
	fill(t, d.dir)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	event := []*headgate.Event{{ID: "lost", Source: "/s", Type: "t"}}
	results, err := d.b.Publish(ctx, "s", event)
	if err == nil && results[0].Outcome == broker.OutcomeStored {
		t.Fatal("stored on a full disk")
	}
	if err := d.b.Healthy(); headgate.CodeOf(err) != headgate.CodeNotDurable {
		t.Fatalf("healthy: %v", err)
	}
	event[0] = &headgate.Event{ID: "new", Source: "/s", Type: "t"}
	results, err = d.b.Publish(context.Background(), "s", append(event, &headgate.Event{ID: "a-1", Source: "/s", Type: "t"}))
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
