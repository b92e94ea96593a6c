package perimeter_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/internal/eventcodec"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/topology"
)

// before is a store in which something happens before an Update runs.
type before struct {
	store.Store
	hook func()
}

func (b *before) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	if hook := b.hook; hook != nil {
		b.hook = nil
		hook()
	}
	return b.Store.Update(ctx, fn)
}

// pump publishes the outbox when it is woken, as the router's does.
type pump struct {
	t       testing.TB
	g       *gate
	st      store.Store
	silent  bool           // publishes, and tells nobody
	stuck   bool           // does nothing
	outcome *broker.Result // told instead of the broker's
	mu      sync.Mutex
	waiting map[string]chan broker.Result
}

func (p *pump) Expect(stream, source, id string) (<-chan broker.Result, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan broker.Result, 1)
	key := stream + source + id
	p.waiting[key] = c
	return c, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, key)
	}
}

func (p *pump) Wake() {
	if p.stuck {
		return
	}
	err := p.st.Update(context.Background(), func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Outbox.Pending(ctx, 0, 100)
		if err != nil {
			return err
		}
		var done []int64
		for _, r := range rows {
			e, _, err := eventcodec.Decode(r.Event)
			if err != nil {
				return err
			}
			res, err := p.g.broker.Publish(ctx, r.Stream, []*headgate.Event{e})
			if err != nil {
				return err
			}
			done = append(done, r.Seq)
			p.mu.Lock()
			if c := p.waiting[r.Stream+e.Source+e.ID]; c != nil && !p.silent {
				if p.outcome != nil {
					res[0] = *p.outcome
				}
				c <- res[0]
			}
			p.mu.Unlock()
		}
		return tx.Outbox.Delete(ctx, done)
	})
	if err != nil {
		p.t.Error(err)
	}
}

// fencedGate is a gate whose type ticket.fenced demands the lease on its
// ticket.
type fencedGate struct {
	*gate
	leases *lease.Service
	st     *before
	pump   *pump
	worker *headgate.Principal
}

func openFenced(t *testing.T) *fencedGate {
	t.Helper()
	g := &fencedGate{gate: open(t, setup{types: []topology.Type{{Pattern: "ticket.opened", Fence: "ticket/{data.n}"}}})}
	base, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := base.Close(); err != nil {
			t.Error(err)
		}
	})
	if g.leases, err = lease.Open(t.Context(), lease.Config{Store: base}); err != nil {
		t.Fatal(err)
	}
	g.st = &before{Store: base}
	g.pump = &pump{t: t, g: g.gate, st: base, waiting: map[string]chan broker.Result{}}
	g.SetFencing(perimeter.Fencing{Leases: g.leases, Store: g.st, Outbox: g.pump})
	g.worker = helpdesk()
	g.worker.Lease = []string{"*"}
	return g
}

func (g *fencedGate) lease(resource string) lease.Grant {
	g.t.Helper()
	got, err := g.leases.Acquire(g.t.Context(), g.worker, lease.Request{Resources: []string{resource}})
	if err != nil {
		g.t.Fatal(err)
	}
	return got[0]
}

func (g *fencedGate) publish(ctx context.Context, fences []string, events ...*headgate.Event) []perimeter.Result {
	return g.Admit(ctx, perimeter.Submission{Principal: g.worker, Door: "test", Items: items(events...), Fences: fences})
}

func TestFenceStage(t *testing.T) {
	g := openFenced(t)
	one, two := g.lease("ticket/1"), g.lease("ticket/2")
	res := g.publish(t.Context(), []string{one.Token, two.Token},
		event("ticket.opened", "a", `{"n":1}`), event("ticket.opened", "b", `{"n":2}`), event("ticket.opened", "c", `{"n":3}`),
		event("ticket.opened", "d", `{"m":3}`), event("ticket.opened", "a", `{"n":1}`))
	if res[3].Err == nil {
		t.Error("an event without the member that names its resource passed")
	}
	for i, want := range []headgate.Code{"", "", headgate.CodeFenceForeign, "-", ""} {
		if want != "-" && codeOfResult(res[i]) != want {
			t.Errorf("item %d: %v", i, res[i].Err)
		}
	}
	if !res[4].Duplicate || res[0].Event.Header.Fence == "" || res[1].Event.Header.Fence == res[0].Event.Header.Fence {
		t.Errorf("%+v", res)
	}
	if n := g.count("tickets"); n != 2 {
		t.Errorf("%d events are stored", n)
	}
	for _, s := range g.stored("tickets") {
		if s.Event.Header.Fence == "" {
			t.Errorf("%s was stored without its fence", s.Event.ID)
		}
	}
}

// TestOneStaleFenceRefusesAll: also when the lease that an event's type demands
// is another one, which is current.
func TestOneStaleFenceRefusesAll(t *testing.T) {
	g := openFenced(t)
	one, two := g.lease("ticket/1"), g.lease("ticket/2")
	late := false
	lose := func() {
		late = true
		if err := g.leases.Release(t.Context(), g.worker, "", two.Token); err != nil {
			t.Error(err)
		}
	}
	g.st.hook = lose // between the check and the commit
	res := g.publish(t.Context(), []string{one.Token, two.Token}, event("ticket.opened", "a", `{"n":1}`), event("ticket.opened", "b", `{"n":2}`))
	for _, r := range res {
		if codeOfResult(r) != headgate.CodeStaleFence || r.Stage != perimeter.StageFence {
			t.Errorf("with a lease lost before the commit: %+v", r)
		}
	}
	if !late {
		t.Fatal("the events were refused before their transaction: the test proves nothing")
	}
	res = g.publish(t.Context(), []string{one.Token, two.Token}, event("ticket.opened", "a", `{"n":1}`))
	if codeOfResult(res[0]) != headgate.CodeStaleFence || g.count("tickets") != 0 {
		t.Errorf("with a lease lost before: %+v", res[0])
	}
	if res = g.publish(t.Context(), []string{one.Token}, event("ticket.opened", "a", `{"n":1}`)); res[0].Err != nil {
		t.Error(res[0].Err)
	}
}

// TestFenceNamesAllLeases that an event was written under, or the one that its
// type demands.
func TestFenceNamesAllLeases(t *testing.T) {
	g := openFenced(t)
	two, one := g.lease("ticket/2"), g.lease("ticket/1,5%")
	demanded := g.lease("ticket/3")
	tokens := []string{two.Token, one.Token, demanded.Token, two.Token}
	res := g.publish(t.Context(), tokens, event("ticket.answer", "a", `{"n":9}`), event("ticket.opened", "b", `{"n":3}`))
	if res[0].Err != nil || res[1].Err != nil {
		t.Fatalf("%v, %v", res[0].Err, res[1].Err)
	}
	want := fmt.Sprintf("ticket/1%%2C5%%25@%d,ticket/2@%d,ticket/3@%d", one.Epoch, two.Epoch, demanded.Epoch)
	if got := res[0].Event.Header.Fence; got != want {
		t.Errorf("fence %q, want %q", got, want)
	}
	if got, want := res[1].Event.Header.Fence, fmt.Sprintf("ticket/3@%d", demanded.Epoch); got != want {
		t.Errorf("fence %q, want %q", got, want)
	}
}

func codeOfResult(r perimeter.Result) headgate.Code {
	if r.Err == nil {
		return ""
	}
	return r.Err.Code
}

// TestTakeoverBetweenCheckAndCommit (T1): the check before the transaction
// passed, the lease changed hands, and the commit refuses. Nothing is stored
// and the gas is given back.
func TestTakeoverBetweenCheckAndCommit(t *testing.T) {
	g := openFenced(t)
	l := g.lease("ticket/1")
	root := g.publish(t.Context(), []string{l.Token}, event("ticket.opened", "root", `{"n":1}`))[0]
	if root.Err != nil {
		t.Fatal(root.Err)
	}
	token := g.mintFor(root.Event, "helpdesk")
	left := g.left(root.Event)
	taken := false
	g.st.hook = func() {
		taken = true
		if err := g.leases.Release(t.Context(), g.worker, "", l.Token); err != nil {
			t.Error(err)
		}
	}
	res := g.Admit(t.Context(), perimeter.Submission{
		Principal: g.worker, Door: "test", Items: items(event("ticket.opened", "late", `{"n":1}`)), Fences: []string{l.Token}, Tokens: []string{token},
	})[0]
	if !taken {
		t.Fatal("the event was refused before its transaction: the test proves nothing")
	}
	if codeOfResult(res) != headgate.CodeStaleFence || res.Stage != perimeter.StageFence || res.QID == "" {
		t.Errorf("%+v", res)
	}
	if n := g.count("tickets"); n != 1 {
		t.Errorf("%d events are stored", n)
	}
	if now := g.left(root.Event); now != left {
		t.Errorf("%d units are left of %d", now, left)
	}
}

// TestPendingUntilPublished: the commit decides; the position may come later.
func TestPendingUntilPublished(t *testing.T) {
	g := openFenced(t)
	l := g.lease("ticket/1")
	g.pump.stuck = true
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	res := g.publish(ctx, []string{l.Token}, event("ticket.opened", "a", `{"n":1}`))[0]
	if res.Err != nil || !res.Pending {
		t.Fatalf("%+v", res)
	}
	g.pump.stuck = false
	g.pump.Wake()
	if n := g.count("tickets"); n != 1 {
		t.Errorf("%d events are stored", n)
	}
}

// TestAnotherNodePublishes: its outbox tells nothing here, and the position is
// found all the same.
func TestAnotherNodePublishes(t *testing.T) {
	g := openFenced(t)
	l := g.lease("ticket/1")
	g.pump.silent = true
	res := g.publish(t.Context(), []string{l.Token}, event("ticket.opened", "a", `{"n":1}`))[0]
	if res.Err != nil || res.Pending || res.Stream != "tickets" {
		t.Errorf("%+v", res)
	}
}

func TestRejectedByTheBroker(t *testing.T) {
	g := openFenced(t)
	l := g.lease("ticket/1")
	g.pump.outcome = &broker.Result{Outcome: broker.OutcomeRejected, Err: headgate.NewError(headgate.CodeTooLarge, "too large")}
	res := g.publish(t.Context(), []string{l.Token}, event("ticket.opened", "a", `{"n":1}`))[0]
	if codeOfResult(res) != headgate.CodeTooLarge {
		t.Errorf("%+v", res)
	}
}

func TestWithoutFencing(t *testing.T) {
	g := open(t, setup{types: []topology.Type{{Pattern: "ticket.opened", Fence: "ticket/{data.n}"}}})
	res := g.admit(helpdesk(), event("ticket.opened", "a", `{"n":1}`))[0]
	if codeOfResult(res) != headgate.CodeFenceMissing {
		t.Errorf("%+v", res)
	}
	res = g.Admit(t.Context(), perimeter.Submission{Principal: helpdesk(), Door: "test", Items: items(event("ticket.opened", "a", `{"n":1}`)), Fences: []string{"x"}})[0]
	if codeOfResult(res) != headgate.CodeUnavailable {
		t.Errorf("%+v", res)
	}
}
