package quarantine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func parked(q *Quarantine, message string) Parked {
	return Parked{
		Kind: store.KindParked, Subscription: "triage", Stream: "events", Position: headgate.Position{Partition: 1, Offset: 7},
		Event: &headgate.Event{
			ID: "e-1", Source: "/test", Type: "ticket.opened", DataSchema: "ticket.opened@3", Data: []byte(`{}`),
			Header: headgate.Header{RootID: "e-0", Causes: []string{"e-0"}, TTL: 3, Hop: 1, Origin: headgate.OriginHuman, Principal: "helpdesk", Actor: headgate.KindSystem},
		},
		Reason: "handler_exhausted", Message: message, AttemptCount: 40, First: q.cfg.Now(),
	}
}

func put(t testing.TB, q *Quarantine, rec store.QuarantineRecord) error {
	t.Helper()
	return q.cfg.Store.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return q.Put(ctx, tx, rec) })
}

func TestParkedIsWhole(t *testing.T) {
	now := newClock()
	q := open(t, Config{Store: openStore(t), Now: now.Now, BodyMax: 10})
	p := parked(q, "line one\nline two \x1b]0;title\a")
	p.Event.Data = make([]byte, 3<<20) // nothing bounds a parked body but its type
	for n := range 40 {
		p.Attempts = append(p.Attempts, Attempt{N: n + 1, Start: now.Now(), Outcome: "error", Error: "boom"})
	}
	rec := q.Record(p)
	if err := put(t, q, rec); err != nil {
		t.Fatal(err)
	}
	got, err := q.Show(t.Context(), rec.QID)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Body) != 3<<20 || got.Principal != "helpdesk" || got.Root != "e-0" || got.Cause != "e-0" || got.Stream != "events" || got.Position != p.Position {
		t.Errorf("record = %+v", got)
	}
	if got.Message != `line one\nline two \x1b]0;title\a` {
		t.Errorf("message = %q", got.Message)
	}
	d, err := DetailOf(&got)
	if err != nil {
		t.Fatal(err)
	}
	var ns []int
	for _, a := range d.Attempts {
		ns = append(ns, a.N)
	}
	if !slices.Equal(ns, []int{1, 2, 3, 34, 35, 36, 37, 38, 39, 40}) || d.AttemptCount != 40 || d.First == nil || d.Event.TTL != 3 || d.Body.Clipped() {
		t.Errorf("attempts %v of %d; detail %s", ns, d.AttemptCount, got.Detail[:min(len(got.Detail), 2000)])
	}
	if v := ViewOf(&got); v.Position != "1:7" || v.Subscription != "triage" {
		t.Errorf("view = %+v", v)
	}
}

func TestPutTwiceKeepsOne(t *testing.T) {
	q := open(t, Config{Store: openStore(t), MaxRecords: 2})
	rec := q.Record(parked(q, "boom"))
	for range 3 {
		if err := put(t, q, rec); err != nil {
			t.Fatal(err)
		}
	}
	if n := countKind(t, q.cfg.Store, store.KindParked, ""); n != 1 {
		t.Errorf("%d records", n)
	}
}

func TestFullQuarantineBlocksUntilThereIsRoom(t *testing.T) {
	now := newClock()
	var log strings.Builder
	q := open(t, Config{Store: openStore(t), Now: now.Now, MaxRecords: 3, Retain: time.Hour, Log: textLog(&log)})
	full := &headgate.Error{Code: headgate.CodeQuarantineFull}
	for i := range 3 {
		if err := put(t, q, q.Record(parked(q, fmt.Sprint(i)))); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(t, q, q.Record(parked(q, "4"))); !errors.Is(err, full) {
		t.Fatalf("err = %v, want quarantine_full", err)
	}
	now.advance(time.Minute)
	if err := put(t, q, q.Record(parked(q, "4"))); !errors.Is(err, full) {
		t.Fatalf("err = %v, want quarantine_full again", err)
	}
	if n := strings.Count(log.String(), "quarantine is full"); n != 1 {
		t.Errorf("%d alarms:\n%s", n, log.String())
	}
	// Refusals and extinguished deliveries have bounds of their own.
	if q.Refused(t.Context(), refusal("p")) == "" {
		t.Error("a refusal was not recorded")
	}
	p := parked(q, "ttl")
	p.Kind = store.KindExtinguished
	if err := put(t, q, q.Record(p)); err != nil {
		t.Error(err)
	}
	now.advance(2 * time.Hour)
	q.expire(t.Context())
	if err := put(t, q, q.Record(parked(q, "5"))); err != nil {
		t.Errorf("after the retention: %v", err)
	}
}

func TestRollbackDoesNotFillTheQuarantine(t *testing.T) {
	now := newClock()
	q := open(t, Config{Store: openStore(t), Now: now.Now, MaxRecords: 2})
	for range 5 {
		now.advance(recountEvery)
		err := q.cfg.Store.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			if err := q.Put(ctx, tx, q.Record(parked(q, "boom"))); err != nil {
				return err
			}
			return errBroken
		})
		if !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
	}
	now.advance(recountEvery)
	if err := put(t, q, q.Record(parked(q, "boom"))); err != nil {
		t.Errorf("nothing is kept, yet: %v", err)
	}
}

func TestRefusalsAreBoundedInNumber(t *testing.T) {
	q := open(t, Config{Store: openStore(t), MaxRecords: 3})
	for i := range 5 {
		q.Refused(t.Context(), refusal(fmt.Sprint("p", i)))
	}
	if n := countKind(t, q.cfg.Store, store.KindRefused, ""); n != 3 {
		t.Errorf("%d records", n)
	}
	if rows, err := q.Overflow(t.Context()); err != nil || len(rows) != 2 {
		t.Errorf("overflow = %v, %v", rows, err)
	}
	// Another node makes room.
	err := q.cfg.Store.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Quarantine.Expire(ctx, q.cfg.Now().Add(2*DefaultRetain), 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	q.expire(t.Context())
	if q.Refused(t.Context(), refusal("another")) == "" {
		t.Error("the room was not noticed")
	}
}

func TestRetentionInBatches(t *testing.T) {
	s, now := openStore(t), newClock()
	q := open(t, Config{Store: s, Now: now.Now})
	const old = 2*expireBatch + 10
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		for range old {
			if err := q.Put(ctx, tx, q.Record(parked(q, "old"))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	now.advance(DefaultRetain - time.Minute)
	if err := put(t, q, q.Record(parked(q, "new"))); err != nil {
		t.Fatal(err)
	}
	q.expire(t.Context())
	if n := countKind(t, s, store.KindParked, ""); n != old+1 {
		t.Errorf("%d records before the time", n)
	}
	now.advance(2 * time.Minute)
	q.expire(t.Context())
	if n := countKind(t, s, store.KindParked, ""); n != 1 {
		t.Errorf("%d records after the time, want 1", n)
	}
}

// idle is a store for tests of Run: it answers at once, so that virtual time
// can pass.
type idle struct {
	store.Store
	store.Quarantine
	added []store.QuarantineOverflow
	put   int
	hold  chan struct{} // Put waits until it is closed
}

func (s *idle) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return fn(ctx, &store.Tx{Quarantine: s})
}

func (s *idle) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return fn(ctx, &store.Tx{Quarantine: s})
}

func (s *idle) List(context.Context, store.QuarantineFilter) ([]store.QuarantineRecord, error) {
	return nil, nil
}

func (s *idle) Count(context.Context, store.QuarantineKind, string, time.Time) (int, error) {
	return 0, nil
}

func (s *idle) Expire(context.Context, time.Time, int) (int, error) { return 0, nil }

func (s *idle) Put(context.Context, store.QuarantineRecord) (bool, error) {
	if s.hold != nil {
		<-s.hold
	}
	s.put++
	return true, nil
}

func (s *idle) AddOverflow(_ context.Context, rows []store.QuarantineOverflow) error {
	s.added = append(s.added, rows...)
	return nil
}

func TestRunFlushesWhileItRunsAndAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &idle{}
		q, err := Open(t.Context(), Config{Store: s, RefusalQuota: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- q.Run(ctx) }()

		q.Refused(t.Context(), refusal("p"))
		q.Refused(t.Context(), refusal("p"))
		<-time.After(flushEvery + time.Millisecond)
		synctest.Wait()
		if len(s.added) != 1 || s.added[0].Count != 1 {
			t.Errorf("after a second: %v", s.added)
		}
		q.Refused(t.Context(), refusal("p"))
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if len(s.added) != 2 {
			t.Errorf("at the end: %v", s.added)
		}
	})
}

func TestQIDsRise(t *testing.T) {
	s, now := openStore(t), newClock()
	q := open(t, Config{Store: s, Now: now.Now})
	last := ""
	next := func(q *Quarantine) {
		t.Helper()
		rec := q.Record(parked(q, "x"))
		if rec.QID <= last {
			t.Fatalf("%s does not follow %s", rec.QID, last)
		}
		last = rec.QID
		if err := put(t, q, rec); err != nil {
			t.Fatal(err)
		}
	}
	next(q)
	for range 5000 { // more than the counter within one millisecond holds
		if id := q.ids.next(now.Now()); id <= last {
			t.Fatalf("%s does not follow %s", id, last)
		} else {
			last = id
		}
	}
	now.advance(-time.Hour) // the clock is set back
	next(q)
	next(open(t, Config{Store: s, Now: now.Now})) // and the node restarts
}
