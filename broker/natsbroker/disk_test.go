package natsbroker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// A nearly full disk refuses new events, still answers for known ones, and is
// asked about again.
func TestLowDiskThrottles(t *testing.T) {
	d := newDamaged(t)
	at := d.store("a", 1)
	now, free := time.Now(), int64(10<<20)
	d.b.disk = &disk{
		min: 64 << 20, now: func() time.Time { return now }, low: -1,
		free: func(string) (int64, int64, error) { return free, 1 << 40, nil },
	}
	events := []*headgate.Event{{ID: "a-0", Source: "/s", Type: "t"}, {ID: "new", Source: "/s", Type: "t"}}
	results, err := d.b.Publish(context.Background(), "s", events)
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Outcome != broker.OutcomeDuplicate || results[0].Position != at[0] {
		t.Errorf("a known event is %s", results[0].Outcome)
	}
	if results[1].Outcome != broker.OutcomeThrottled || headgate.CodeOf(results[1].Err) != headgate.CodeDiskFull {
		t.Errorf("a new event is %s: %v", results[1].Outcome, results[1].Err)
	}
	if err := d.b.Refuses(); headgate.CodeOf(err) != headgate.CodeDiskFull || d.b.Healthy() != nil {
		t.Errorf("refuses %v, healthy %v", err, d.b.Healthy())
	}
	free = 65 << 20 // known at once, since it was low
	if results, err = d.b.Publish(context.Background(), "s", events); err != nil || results[1].Outcome != broker.OutcomeStored {
		t.Errorf("with space again: %v, %v", results, err)
	}
	if err := d.b.Refuses(); err != nil {
		t.Errorf("with space again refuses: %v", err)
	}
}

// Near the limit every publish asks, far from it one a second.
func TestDiskIsWatchedMoreCloselyWhenItIsLow(t *testing.T) {
	now, free, asked := time.Now(), int64(1000), 0
	d := &disk{min: 100, now: func() time.Time { return now }, low: -1, free: func(string) (int64, int64, error) { asked++; return free, 1 << 40, nil }}
	for range 3 {
		d.refusal()
	}
	free, now = 399, now.Add(diskCheckEvery)
	d.refusal()
	if asked != 2 {
		t.Errorf("asked %d times, want once a second", asked)
	}
	free = 99
	if _, low := d.refusal(); !low {
		t.Error("space that went at once was not noticed")
	}
}

func TestDiskThreshold(t *testing.T) {
	for _, c := range []struct{ min, size, want int64 }{
		{0, 1 << 40, 1 << 30},        // a large disk: 1 GiB
		{0, 10 << 30, 10 << 30 / 20}, // a small one: a twentieth
		{5 << 20, 1 << 40, 5 << 20},  // as configured
	} {
		if got := (&disk{min: c.min}).threshold(c.size); got != c.want {
			t.Errorf("threshold with %d of %d bytes is %d, want %d", c.min, c.size, got, c.want)
		}
	}
	if newDisk(Config{Dir: "x", MinFree: -1}) != nil || newDisk(Config{URL: "x"}) != nil {
		t.Error("the check is not off")
	}
	broken := &disk{now: time.Now, low: -1, free: func(string) (int64, int64, error) { return 0, 0, errors.ErrUnsupported }}
	if _, low := broken.refusal(); low {
		t.Error("an unknown free space refuses events")
	}
}
