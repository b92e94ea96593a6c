package perimeter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
)

// attribute returns an extension attribute.
func attribute(e *headgate.Event, name string) string {
	for _, x := range e.Extensions {
		if x.Name == name {
			return x.Value
		}
	}
	return ""
}

// A contract that asks for it has payloads mended by lossless steps. The
// original is kept, the event names its record, and what no lossless step
// mends is refused as it was sent.
func TestLosslessRepairsAreApplied(t *testing.T) {
	g := open(t, setup{})
	const sent, guess = `{"subPath":"a","n":"7"}`, `{"sub_pth":"a"}`
	res := g.admit(helpdesk(), event("note.mended", "m1", sent), event("note.mended", "m2", guess), event("note.mended", "m3", `{"sub_path":"a"}`))
	wantCodes(t, res, "ok", "contract_violation@contract", "ok")
	if got := string(res[0].Event.Data); got != `{"sub_path":"a","n":7}` {
		t.Errorf("data %s", got)
	}
	if res[0].Mended == "" || attribute(res[0].Event, "mended") != res[0].Mended || res[2].Mended != "" || attribute(res[2].Event, "mended") != "" {
		t.Errorf("mended: %q, %q", res[0].Mended, res[2].Mended)
	}
	rec := g.record(res[0].Mended)
	d, err := quarantine.DetailOf(&rec)
	if err != nil {
		t.Fatal(err)
	}
	if string(rec.Body) != sent || rec.Kind != store.KindMended || rec.State != quarantine.StateMended || rec.ID != "m1" || d.Body.Clipped() {
		t.Errorf("record %s: %+v", rec.Body, rec)
	}
	if d.Verdict == nil || len(d.Verdict.Proposals) != 1 || len(d.Verdict.Proposals[0].Patch) != 2 {
		t.Errorf("the record has no patch: %+v", d.Verdict)
	}
	if refused := g.record(res[1].QID); string(refused.Body) != guess || refused.Kind != store.KindRefused {
		t.Errorf("record %s: %+v", refused.Body, refused)
	}
	if n := len(res[1].Err.Verdict.Proposals); n != 1 {
		t.Errorf("%d proposals", n)
	}
	if n := g.checkStored(); n != 2 {
		t.Errorf("%d events are stored", n)
	}

	// A repeated id is a duplicate of the mended event, and nothing new is kept.
	again := g.admit(helpdesk(), event("note.mended", "m1", sent))
	wantCodes(t, again, "duplicate")
	if again[0].Mended != res[0].Mended || string(again[0].Event.Data) != `{"sub_path":"a","n":7}` {
		t.Errorf("%+v", again[0])
	}
	if all, err := g.quarantine.List(t.Context(), store.QuarantineFilter{Kind: store.KindMended}); err != nil || len(all) != 1 {
		t.Errorf("%d records, %v", len(all), err)
	}
}

// Nobody but the perimeter says that an event was mended.
func TestMendedCannotBeForged(t *testing.T) {
	g := open(t, setup{})
	e := event("note.mended", "f1", `{"sub_path":"a"}`)
	e.Extensions = []headgate.Extension{{Name: "mended", Value: "forged"}}
	res := g.admit(helpdesk(), e)
	wantCodes(t, res, "ok")
	if attribute(res[0].Event, "mended") != "" || len(g.seen.ignored) != 1 {
		t.Errorf("%+v, ignored %v", res[0].Event.Extensions, g.seen.ignored)
	}
}

// An original that cannot be kept is not replaced: the event is refused, its
// gas is given back, and the record of the refusal holds what was sent.
func TestWhatCannotBeKeptIsNotMended(t *testing.T) {
	g := open(t, setup{records: 1})
	wantCodes(t, g.admit(helpdesk(), event("note.mended", "k1", `{"subPath":"a"}`)), "ok")
	root, token := g.root("k0", "helpdesk")
	before := g.left(root)
	res := g.Admit(t.Context(), perimeter.Submission{
		Principal: helpdesk(), Door: "test", Tokens: []string{token}, Items: items(event("note.mended", "k2", `{"subPath":"b"}`)),
	})
	wantCodes(t, res, "contract_violation@contract")
	if rec := g.record(res[0].QID); string(rec.Body) != `{"subPath":"b"}` {
		t.Errorf("record %s", rec.Body)
	}
	if left := g.left(root); left != before {
		t.Errorf("gas %d, it was %d", left, before)
	}
	if string(res[0].Event.Data) != `{"subPath":"b"}` || res[0].Mended != "" {
		t.Errorf("%s %q", res[0].Event.Data, res[0].Mended)
	}
}

// A mended event that the broker does not take keeps its own payload, so that
// it can be sent again.
func TestMendedAndThrottled(t *testing.T) {
	g := open(t, setup{})
	e := event("note.mended", "t1", `{"subPath":"a"}`)
	res := g.with(&odd{throttle: 1}).Admit(t.Context(), perimeter.Submission{Principal: helpdesk(), Door: "test", Items: items(e)})
	wantCodes(t, res, "overloaded@stamp")
	if string(res[0].Event.Data) != `{"subPath":"a"}` || attribute(res[0].Event, "mended") != "" || res[0].Mended != "" {
		t.Errorf("%s %+v", res[0].Event.Data, res[0])
	}
	if all, err := g.quarantine.List(t.Context(), store.QuarantineFilter{Kind: store.KindMended}); err != nil || len(all) != 0 {
		t.Errorf("%d records of what was not stored, %v", len(all), err)
	}
	wantCodes(t, g.admit(helpdesk(), event("note.mended", "t1", `{"subPath":"a"}`)), "ok")
}

// Children on their way into the node outbox are mended too.
func TestPrepareMends(t *testing.T) {
	g := open(t, setup{})
	b := g.Prepare(t.Context(), perimeter.Submission{Principal: helpdesk(), Door: "test", Items: items(event("note.mended", "p1", `{"SubPath":"a"}`))})
	defer b.Release()
	wantCodes(t, b.Results, "ok")
	if got := string(b.Results[0].Event.Data); got != `{"sub_path":"a"}` || b.Results[0].Mended == "" {
		t.Errorf("%s %q", got, b.Results[0].Mended)
	}
}

// What is sent to a contract that does not compile is refused for that reason,
// also where drafts are made, and does not count against the rate of roots.
func TestBrokenContract(t *testing.T) {
	now := time.Now()
	d := &drafter{t: t}
	for _, g := range []*gate{open(t, setup{now: func() time.Time { return now }}), open(t, setup{drafter: d})} {
		p := helpdesk()
		p.Roots = headgate.RootRight{Allowed: true, Rate: 1e-6, Burst: 1}
		for range 3 {
			res := g.admit(p, event("note.broken", "", `{}`))
			wantCodes(t, res, "contract_invalid@contract")
			if !strings.Contains(res[0].Err.Detail, "no longer compiles") {
				t.Error(res[0].Err)
			}
		}
	}
	if d.calls != 0 {
		t.Errorf("%d drafts for a subject that has a contract", d.calls)
	}
}

// A type without a contract is no reason to be held up: the refusal does not
// count against the rate of roots. Other refusals do.
func TestUnknownContractsCostNoRate(t *testing.T) {
	now := time.Now()
	g := open(t, setup{now: func() time.Time { return now }})
	slow := helpdesk()
	slow.Roots = headgate.RootRight{Allowed: true, Rate: 1e-6, Burst: 2}
	for range 20 {
		wantCodes(t, g.admit(slow, event("note.unheard", "", `{}`)), "contract_unknown@contract")
	}
	for _, want := range []string{"ok", "contract_violation@contract", "rate_limited@cause"} {
		data := `{"sub_path":"a"}`
		if want != "ok" {
			data = `{}`
		}
		wantCodes(t, g.admit(slow, event("note.mended", "", data)), want)
	}
}

// racing is a broker that does not know yet what another publish stores.
type racing struct{ broker.Broker }

func (racing) Known(string, string, string) (headgate.Position, bool) {
	return headgate.Position{}, false
}

// Of publishes of one id at the same time one is stored, and the original of
// that one alone is kept, whatever the payloads were. When it is this very
// publish's event that the broker has already, its record stays.
func TestOneOriginalForOneEvent(t *testing.T) {
	g := open(t, setup{})
	cfg := g.cfg
	cfg.Broker = racing{g.broker}
	p, err := perimeter.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	first := g.admit(helpdesk(), event("note.mended", "c1", `{"subPath":"a"}`))
	wantCodes(t, first, "ok")
	for _, data := range []string{`{"subPath":"b"}`, `{"subPath":"a"}`, `{"sub_path":"c"}`} {
		again := p.Admit(t.Context(), perimeter.Submission{Principal: helpdesk(), Door: "test", Items: items(event("note.mended", "c1", data))})
		wantCodes(t, again, "duplicate")
		if again[0].Mended != first[0].Mended || string(again[0].Event.Data) != `{"sub_path":"a"}` {
			t.Errorf("%s: mended %q, want %q: %s", data, again[0].Mended, first[0].Mended, again[0].Event.Data)
		}
	}
	other := helpdesk()
	other.Name = "other"
	taken := p.Admit(t.Context(), perimeter.Submission{Principal: other, Door: "test", Items: items(event("note.mended", "c1", `{"subPath":"d"}`))})
	wantCodes(t, taken, "id_taken@stamp")
	if taken[0].Mended != "" {
		t.Errorf("mended %q", taken[0].Mended)
	}
	records, err := g.quarantine.List(t.Context(), store.QuarantineFilter{Kind: store.KindMended})
	if err != nil || len(records) != 1 || records[0].QID != first[0].Mended {
		t.Fatalf("records %+v, %v", records, err)
	}
	// A broker that stores and answers as if it had known the event before.
	cfg.Broker = twice{g.broker}
	if p, err = perimeter.New(cfg); err != nil {
		t.Fatal(err)
	}
	res := p.Admit(t.Context(), perimeter.Submission{Principal: helpdesk(), Door: "test", Items: items(event("note.mended", "c2", `{"subPath":"a"}`))})
	wantCodes(t, res, "duplicate")
	if rec := g.record(res[0].Mended); string(rec.Body) != `{"subPath":"a"}` {
		t.Errorf("record %s", rec.Body)
	}
}

// twice is a broker that publishes everything two times.
type twice struct{ broker.Broker }

func (b twice) Publish(ctx context.Context, stream string, events []*headgate.Event) ([]broker.Result, error) {
	if _, err := b.Broker.Publish(ctx, stream, events); err != nil {
		return nil, err
	}
	return b.Broker.Publish(ctx, stream, events)
}
