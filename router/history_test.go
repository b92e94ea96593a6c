package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/store"
)

// TestHistories plays random histories of publishing, pulling, settling,
// faults of broker and store, restarts and crashes, and holds each against a
// model: the conservation law at every step, no delivery after a settlement
// was answered, attempts that only rise, order per key, children exactly once.
//
// A failing seed is played again with HEADGATE_ROUTER_SEED.
func TestHistories(t *testing.T) {
	if s := os.Getenv("HEADGATE_ROUTER_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := playHistory(t, seed, false); err != nil {
			t.Fatal(err)
		}
		return
	}
	rounds := uint64(24)
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		rounds = 5000
	}
	base := rand.Uint64() >> 16
	for i := range rounds {
		seed := base + i
		if err := playHistory(t, seed, false); err != nil {
			t.Fatalf("%v\nreplay: HEADGATE_ROUTER_SEED=%d go test ./router -run TestHistories", err, seed)
		}
	}
}

// TestHistoriesCatchEarlyAck: a router that answers before the store has
// committed must be caught.
func TestHistoriesCatchEarlyAck(t *testing.T) {
	for seed := range uint64(200) {
		if err := playHistory(t, seed, true); err != nil {
			t.Logf("caught at seed %d: %v", seed, err)
			return
		}
	}
	t.Fatal("200 histories did not notice a router that answers before it commits")
}

func playHistory(t *testing.T, seed uint64, broken bool) (err error) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, seed, broken)
		err = h.play()
	})
	return err
}

// fate is what the model knows of one event in the subscription.
type fate struct {
	ev      *headgate.Event
	seq     int // within its key
	attempt int // highest seen
	acked   bool
	ackedIn int  // the life of the router in which it was acked
	maybe   bool // a settlement was answered with an error: it may have happened
	ended   bool // rejected or parked, as far as was answered
	emitted []string
}

type chronicle struct {
	*rig
	rng    *rand.Rand
	spec   Spec
	fates  map[string]*fate
	byKey  map[string][]*fate
	open   []Delivery
	next   int
	broken bool
	life   int // rises with every crash
}

func newHistory(t *testing.T, seed uint64, broken bool) *chronicle {
	rng := rand.New(rand.NewPCG(seed, 1))
	faults := &membroker.Faults{
		Seed: seed, Throttle: 0.05 * rng.Float64(), UnknownStored: 0.05 * rng.Float64(), UnknownLost: 0.05 * rng.Float64(),
		Delay: 0.1 * rng.Float64(), Reorder: 0.3 * rng.Float64(), LoseSettle: 0.2 * rng.Float64(), Crash: 0.05 * rng.Float64(),
	}
	h := &chronicle{
		rig: newRigWith(t, membroker.Config{Faults: faults}, 1+rng.IntN(3)), rng: rng,
		fates: map[string]*fate{}, byKey: map[string][]*fate{}, broken: broken,
	}
	h.rig.broken = broken
	h.buffer = []int{8, 64, 1024}[rng.IntN(3)]
	h.spec = Spec{
		Types: []string{"job.*"}, As: "worker", Order: []string{OrderStrict, OrderRelease, OrderNone}[rng.IntN(3)],
		Dedupe: []string{DedupeDurable, DedupeDurable, DedupeWindow}[rng.IntN(3)], Attempts: 2 + rng.IntN(3), Backoff: "1s..4s", Claim: Duration(5 * time.Second), Concurrency: 1 + rng.IntN(20),
	}
	return h
}

// handle is the handler of the second subscription. What it does depends on
// the event and the attempt alone, so that a history can be played again.
func (h *chronicle) handle(ctx context.Context, d *Delivery, _ *Emitter) error {
	sum := d.Attempt * 7
	for _, c := range d.Event.ID {
		sum = sum*31 + int(c)
	}
	switch sum % 8 {
	case 0:
		return errors.New("not now")
	case 1:
		panic("not now")
	case 2:
		<-ctx.Done()
	case 3:
		time.Sleep(time.Duration(sum%900) * time.Millisecond)
	case 4:
		return RetryAfter(100*time.Millisecond, nil)
	}
	return nil
}

// begin starts a life of the router.
func (h *chronicle) begin() {
	h.start()
	if err := h.router.Handle("h", h.handle); err != nil {
		h.t.Error(err)
	}
}

func (h *chronicle) play() error {
	h.begin()
	h.put("s", h.spec)
	h.put("h", Spec{
		Types: []string{"job.*", "kid.*"}, When: `id != "e3"`, Backoff: "1s..2s", Attempts: 50, Claim: Duration(3 * time.Second),
		Order: OrderRelease, Deliver: Deliver{Handler: &Handler{}}, Dedupe: []string{DedupeDurable, DedupeNone}[h.rng.IntN(2)],
	})
	for range 60 + h.rng.IntN(60) {
		if err := h.step(); err != nil {
			h.abandon()
			return err
		}
	}
	err := h.finish()
	h.abandon()
	return err
}

// trace returns what the observer saw of one event, and the ends of lives.
func (h *chronicle) trace(id string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, l := range h.lines {
		if strings.Contains(l, " "+id+" ") || strings.HasPrefix(l, "--") {
			b.WriteString("\n  " + l)
		}
	}
	return b.String()
}

func (h *chronicle) abandon() {
	h.gate.set(nil)
	_ = h.stop()
	h.close()
}

func (h *chronicle) step() error {
	switch n := h.rng.IntN(100); {
	case n < 25:
		h.emit()
	case n < 50:
		return h.pullSome(1+h.rng.IntN(8), time.Duration(h.rng.IntN(2000))*time.Millisecond)
	case n < 78:
		return h.settleSome()
	case n < 86:
		time.Sleep(time.Duration(h.rng.IntN(6000)) * time.Millisecond)
	case n < 90:
		return h.law()
	case n < 93: // some transactions fail, or are lost after they were committed
		h.flaky()
	case n < 94: // a change, which stops and starts the subscription
		h.gate.set(nil)
		h.spec.Concurrency = 1 + h.rng.IntN(20)
		h.line("-- change")
		h.put("s", h.spec)
		h.open = nil
	case n < 96:
		return h.restart(false)
	default:
		return h.restart(true)
	}
	return nil
}

func (h *chronicle) emit() {
	var events []*headgate.Event
	for range 1 + h.rng.IntN(12) {
		h.next++
		typ, key := "job.run", []string{"", "a", "b", "c"}[h.rng.IntN(4)]
		if h.rng.IntN(6) == 0 {
			typ = "noise.made"
		}
		ev := event(fmt.Sprintf("e%d", h.next), typ, key)
		events = append(events, ev)
		if typ != "job.run" {
			continue
		}
		f := &fate{ev: ev, seq: len(h.byKey[key])}
		h.fates[ev.ID] = f
		if key != "" {
			h.byKey[key] = append(h.byKey[key], f)
		}
	}
	// Faults of the broker may break a batch up; within one key only what
	// was published one after the other has an order.
	for _, ev := range events {
		h.publish(ev)
	}
}

func (h *chronicle) pullSome(limit int, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait+5*time.Second)
	defer cancel()
	got, err := h.router.Pull(ctx, h.people.get("worker"), "s", limit, wait)
	if err != nil && headgate.CodeOf(err) != headgate.CodeCanceled {
		return fmt.Errorf("pull: %w", err)
	}
	for _, d := range got {
		if err := h.delivered(d); err != nil {
			return err
		}
	}
	h.open = append(h.open, got...)
	return nil
}

// delivered checks one dispatch against the model.
func (h *chronicle) delivered(d Delivery) error {
	f := h.fates[d.Event.ID]
	switch {
	case f == nil:
		return fmt.Errorf("%s was delivered, but does not match", d.Event.ID)
	case f.acked && h.spec.Dedupe == DedupeWindow && f.ackedIn < h.life:
		f.acked, f.emitted = false, nil // it was not saved before the crash
	case f.acked:
		return fmt.Errorf("%s was delivered (attempt %d) after its settlement was answered", d.Event.ID, d.Attempt)
	case f.ended:
		return fmt.Errorf("%s was delivered (attempt %d) after it was rejected", d.Event.ID, d.Attempt)
	}
	if d.Attempt <= f.attempt {
		return fmt.Errorf("%s was delivered as attempt %d after attempt %d%s", d.Event.ID, d.Attempt, f.attempt, h.trace(d.Event.ID))
	}
	f.attempt, f.maybe = d.Attempt, false
	if d.Event.Key == "" || h.spec.Order == OrderNone {
		return nil
	}
	for _, before := range h.byKey[d.Event.Key][:f.seq] {
		if before.acked || before.ended {
			continue
		}
		if st := h.stateOf(before.ev.ID); st == "pending" || st == "in_flight" {
			return fmt.Errorf("%s of key %s was delivered while %s before it is %s", d.Event.ID, d.Event.Key, before.ev.ID, st)
		}
	}
	return nil
}

// stateOf asks the router about one event.
func (h *chronicle) stateOf(id string) string {
	for part := range uint32(4) {
		stored, err := h.rig.broker.Browse(context.Background(), "events", headgate.Position{Partition: part}, 100000)
		if err != nil {
			break
		}
		for _, s := range stored {
			if s.Event.ID == id {
				states, err := h.router.Explain(context.Background(), s.Event, "events", s.Position)
				if err != nil || len(states) != 2 {
					return fmt.Sprint(states, err)
				}
				return states[1].State
			}
		}
	}
	return "absent"
}

func (h *chronicle) settleSome() error {
	if len(h.open) == 0 {
		return nil
	}
	i := h.rng.IntN(len(h.open))
	d := h.open[i]
	h.open = append(h.open[:i], h.open[i+1:]...)
	f := h.fates[d.Event.ID]
	in := Settlement{Claim: d.Claim, Outcome: OutcomeAck}
	var kids []string
	switch n := h.rng.IntN(10); {
	case n < 2:
		in.Outcome = OutcomeRetry
	case n < 3:
		in.Outcome = OutcomeReject
	case n < 6:
		for k := range 1 + h.rng.IntN(3) {
			id := fmt.Sprintf("%s-kid%d-of-attempt%d", d.Event.ID, k, d.Attempt)
			kids = append(kids, id)
			in.Emit = append(in.Emit, perimeter.Item{Event: &headgate.Event{ID: id, Source: "/kid", Type: "kid.made"}})
		}
	}
	out, err := h.router.Settle(context.Background(), h.people.get("worker"), "s", []Settlement{in})
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	if e := out[0].Err; e != nil {
		switch e.Code {
		case headgate.CodeClaimExpired, headgate.CodeClaimSuperseded, headgate.CodeNotFound:
			return nil
		case headgate.CodeUnavailable, headgate.CodeDraining:
			f.maybe = f.maybe || uncertain(e)
			return nil
		}
		return fmt.Errorf("settle: %w", e)
	}
	switch in.Outcome {
	case OutcomeAck:
		f.acked, f.ackedIn, f.emitted = true, h.life, kids
	case OutcomeReject:
		f.ended = true
	}
	if h.rng.IntN(3) == 0 { // the answer was lost: ask again
		again, err := h.router.Settle(context.Background(), h.people.get("worker"), "s", []Settlement{in})
		if err != nil || again[0].Err != nil {
			return fmt.Errorf("the settlement of %s, repeated, was answered %v %v", d.Event.ID, err, again[0].Err)
		}
	}
	return nil
}

// flaky lets some transactions of the next moments fail.
func (h *chronicle) flaky() {
	rng := rand.New(rand.NewPCG(h.rng.Uint64(), 2))
	left := 1 + rng.IntN(4)
	h.gate.set(func(int) error {
		if left == 0 {
			return nil
		}
		left--
		switch rng.IntN(3) {
		case 0:
			return errAfter
		case 1:
			return errDown
		}
		return nil
	})
}

// restart ends the router, cleanly or as a crash within some transaction.
func (h *chronicle) restart(crash bool) error {
	if crash {
		after := h.rng.IntN(3)
		lost := h.rng.IntN(2) == 0
		gate := h.gate
		gate.set(func(int) error {
			if after--; after >= 0 {
				return nil
			}
			if lost { // committed, but the process learns no more of it
				lost = false
				return errAfter
			}
			return errDown
		})
		for range h.rng.IntN(4) {
			if err := h.settleSome(); err != nil {
				return err
			}
		}
		h.crash()
		h.life++
	} else {
		h.gate.set(nil)
		if err := h.stop(); err != nil {
			return fmt.Errorf("drain: %w", err)
		}
	}
	h.line(fmt.Sprintf("-- restart, crash=%v", crash))
	h.open = nil
	h.begin()
	return h.law()
}

func (h *chronicle) law() error {
	h.gate.set(nil)
	all, err := h.router.Conservation(context.Background())
	if err != nil {
		return err
	}
	for _, b := range all {
		if !b.Holds {
			return fmt.Errorf("the conservation law is broken: %+v", b)
		}
	}
	return nil
}

// finish settles all that is left, and compares the whole with the model.
func (h *chronicle) finish() error {
	h.gate.set(nil)
	idle := 0
	for idle < 3 {
		before := len(h.open)
		if err := h.pullSome(50, 30*time.Second); err != nil {
			return err
		}
		if len(h.open) == before {
			idle++
			for _, key := range []string{"a", "b", "c"} {
				if err := h.router.Unblock(context.Background(), "s", "events", key); err == nil {
					idle = 0
				}
			}
			continue
		}
		idle = 0
		for len(h.open) > 0 {
			if err := h.settleSome(); err != nil {
				return err
			}
		}
	}
	time.Sleep(10 * time.Minute) // children are published, and handled
	if err := h.law(); err != nil {
		return err
	}
	return h.compare()
}

func (h *chronicle) compare() error {
	all, err := h.router.Conservation(context.Background())
	if err != nil {
		return err
	}
	b := all[1]
	if x := all[0]; x.Pending+x.InFlight != 0 || x.Counts.Parked != 0 {
		return fmt.Errorf("the handler did not end everything: %+v\n%s", x, h.router.sub("h").dump())
	}
	if b.Pending+b.InFlight != 0 {
		return fmt.Errorf("not everything ended: %+v\n%s", b, h.router.sub("s").dump())
	}
	parked, err := h.quar.List(context.Background(), store.QuarantineFilter{Kind: store.KindParked, Limit: 1000})
	if err != nil {
		return err
	}
	if uint64(len(parked)) != b.Counts.Parked {
		return fmt.Errorf("%d parked, but %d records", b.Counts.Parked, len(parked))
	}
	gone := map[string]bool{}
	for _, rec := range parked {
		if gone[rec.ID] {
			return fmt.Errorf("%s has two records", rec.ID)
		}
		gone[rec.ID] = true
	}
	if want := uint64(len(h.fates) - len(parked)); b.Counts.Settled != want {
		return fmt.Errorf("%d settled, want %d", b.Counts.Settled, want)
	}
	return errors.Join(h.compareFates(gone), h.compareChildren())
}

func (h *chronicle) compareFates(parked map[string]bool) error {
	for id, f := range h.fates {
		if f.acked && parked[id] {
			return fmt.Errorf("%s was acked, and is parked", id)
		}
		if f.ended && !parked[id] {
			return fmt.Errorf("%s was rejected, and is not parked", id)
		}
		if f.attempt > 2*h.spec.Attempts+40 {
			return fmt.Errorf("%s had %d attempts", id, f.attempt)
		}
	}
	return nil
}

// compareChildren: the children of an answered settlement are in the stream
// once each, and of one event those of a single attempt only.
func (h *chronicle) compareChildren() error {
	count := map[string]int{}
	attempts := map[string]map[string]bool{}
	for part := range uint32(4) {
		stored, err := h.rig.broker.Browse(context.Background(), "events", headgate.Position{Partition: part}, 100000)
		if err != nil {
			break
		}
		for _, s := range stored {
			if s.Event.Type != "kid.made" {
				continue
			}
			count[s.Event.ID]++
			parent, rest, _ := strings.Cut(s.Event.ID, "-")
			_, attempt, _ := strings.Cut(rest, "-of-")
			if attempts[parent] == nil {
				attempts[parent] = map[string]bool{}
			}
			attempts[parent][attempt] = true
		}
	}
	for id, n := range count {
		if n != 1 {
			return fmt.Errorf("child %s is in the stream %d times", id, n)
		}
	}
	for id, f := range h.fates {
		for _, kid := range f.emitted {
			if count[kid] != 1 {
				return fmt.Errorf("child %s of a settled delivery is in the stream %d times", kid, count[kid])
			}
		}
		if len(attempts[id]) > 1 {
			return fmt.Errorf("%s has children of %d attempts", id, len(attempts[id]))
		}
		if f.acked && len(f.emitted) == 0 && len(attempts[id]) > 0 {
			return fmt.Errorf("%s was settled without children, but has some", id)
		}
	}
	return nil
}
