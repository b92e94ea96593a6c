package perimeter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/topology"
)

func TestStreamsKeepTheirOrder(t *testing.T) {
	g := open(t, setup{})
	var events []*headgate.Event
	for i := range 30 {
		e := event([]string{"ticket.opened", "order.placed", "note.brief"}[i%3], fmt.Sprint(i), `{"n":1}`)
		e.Key = "k"
		events = append(events, e)
	}
	res := g.admit(helpdesk(), events...)
	for stream, want := range map[string]int{"tickets": 10, "orders": 10, topology.DefaultStream: 10} {
		var last *perimeter.Result
		for i := range res {
			if res[i].Err != nil {
				t.Fatal(res[i].Err)
			}
			if res[i].Stream != stream {
				continue
			}
			want--
			if last != nil && (res[i].Position.Partition != last.Position.Partition || res[i].Position.Offset != last.Position.Offset+1) {
				t.Errorf("%s: %s after %s", stream, res[i].Position, last.Position)
			}
			last = &res[i]
		}
		if want != 0 {
			t.Errorf("%s: %d missing", stream, want)
		}
	}
}

func TestThrottledGivesGasBack(t *testing.T) {
	g := open(t, setup{})
	root, _ := g.root("r", "a")
	cause := g.mintFor(root, "a")
	throttled := g.with(&odd{throttle: 1})
	before := g.left(root)
	res := throttled.Admit(t.Context(), perimeter.Submission{Principal: agent("a"), Tokens: []string{cause}, Items: items(event("ticket.answer", "c", `{"n":1}`))})
	wantCodes(t, res, "overloaded@stamp")
	if info := res[0].Err.Info(); info.Outcome != headgate.NotApplied || info.Retry != headgate.RetryLater {
		t.Errorf("info = %+v", info)
	}
	if got := g.left(root); got != before {
		t.Errorf("gas left %d, before %d", got, before)
	}
	g.wantRecords(0)
}

func TestUnknownChargesAndMayBeRepeated(t *testing.T) {
	for name, faults := range map[string]*odd{"stored": {unknownStored: 1}, "lost": {unknownLost: 1}} {
		t.Run(name, func(t *testing.T) {
			g := open(t, setup{})
			root, token := g.root("r", "a")
			unsure := g.with(faults)
			before := g.left(root)
			send := func() []perimeter.Result {
				return unsure.Admit(t.Context(), perimeter.Submission{Principal: agent("a"), Tokens: []string{token}, Items: items(event("ticket.answer", "c", `{"n":1}`))})
			}
			res := send()
			wantCodes(t, res, "unknown_outcome@stamp")
			if info := res[0].Err.Info(); info.Outcome != headgate.Unknown {
				t.Errorf("info = %+v", info)
			}
			if got := g.left(root); got != before-1 {
				t.Errorf("gas left %d, before %d", got, before)
			}
			if name == "stored" {
				res = send()
				wantCodes(t, res, "duplicate")
				if res[0].Event.Header.RootID != "r" {
					t.Errorf("header = %+v", res[0].Event.Header)
				}
				if got := g.left(root); got != before-1 {
					t.Errorf("gas left %d after the repetition", got)
				}
			}
			g.wantRecords(0)
		})
	}
}

func TestCanceledBeforeIsNotApplied(t *testing.T) {
	g := open(t, setup{})
	root, token := g.root("r", "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := g.left(root)
	res := g.Admit(ctx, perimeter.Submission{Principal: agent("a"), Tokens: []string{token}, Items: items(event("ticket.answer", "c", `{"n":1}`), event("", "", ""))})
	wantCodes(t, res, "canceled@cause", "bad_envelope@envelope")
	if info := res[0].Err.Info(); info.Outcome != headgate.NotApplied {
		t.Errorf("info = %+v", info)
	}
	if got := g.left(root); got != before {
		t.Errorf("gas left %d, before %d", got, before)
	}
	g.wantRecords(1) // a client that went away is refused all the same
}

// drafter infers contracts, or does what a test tells it.
type drafter struct {
	t     testing.TB
	err   error
	then  func()
	calls int
}

func (d *drafter) Draft(_ context.Context, subject string, payload []byte, _ string) (*contract.Contract, error) {
	d.calls++
	if d.then != nil {
		d.then()
	}
	if d.err != nil {
		return nil, d.err
	}
	schema, err := contract.Infer(payload)
	if err != nil {
		return nil, err
	}
	return compile(d.t, subject, string(schema)), nil
}

func TestCanceledBetweenVerdictAndPublish(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := open(t, setup{drafter: &drafter{t: t, then: cancel}})
	root, token := g.root("r", "a")
	before := g.left(root)
	res := g.Admit(ctx, perimeter.Submission{Principal: agent("a"), Tokens: []string{token}, Items: items(event("ticket.answer", "c", `{"n":1}`), event("ticket.draft", "d", `{"n":1}`))})
	wantCodes(t, res, "canceled@stamp", "canceled@stamp")
	if res[0].Err.Info().Outcome != headgate.NotApplied || g.left(root) != before || len(g.stored("tickets")) != 1 {
		t.Errorf("%v, gas left %d of %d", res[0].Err, g.left(root), before)
	}
}

func TestDrafts(t *testing.T) {
	d := &drafter{t: t}
	g := open(t, setup{drafter: d})
	wantCodes(t, g.admit(helpdesk(), event("note.new", "1", `{"a":1}`), event("note.new", "2", `{{`), event("ticket.opened", "3", `{"n":1}`)),
		"ok", "syntax@contract", "ok")
	if d.calls != 2 {
		t.Errorf("%d drafts", d.calls)
	}
	d.err = headgate.NewError(headgate.CodeUnavailable, "no store")
	wantCodes(t, g.admit(helpdesk(), event("note.newer", "4", `{"a":1}`)), "unavailable@contract")
}

func TestPrepare(t *testing.T) {
	g := open(t, setup{})
	root, token := g.root("r", "a")
	stored := g.child(agent("a"), token, event("ticket.answer", "c0", `{"n":0}`))[0].Event
	before := g.left(root)
	prepare := func() *perimeter.Batch {
		return g.Prepare(t.Context(), perimeter.Submission{Principal: agent("a"), Tokens: []string{token}, Items: items(
			event("ticket.answer", "c1", `{"n":1}`), event("ticket.answer", "c2", `[]`), event("ticket.answer", "c0", `{"n":1}`),
			event("ticket.answer", "c1", `{"n":2}`), event("ticket.answer", "c3", `{"n":1}`),
		)})
	}
	b := prepare()
	wantCodes(t, b.Results, "ok", "contract_violation@contract", "duplicate", "duplicate", "ok")
	if b.Results[3].Event != b.Results[0].Event || b.Results[2].Event != stored || b.Results[0].Event.Header.RootID != "r" || b.Results[0].Event.DataSchema != "ticket.answer@1" {
		t.Errorf("results = %+v", b.Results)
	}
	if got := g.left(root); got != before-2 {
		t.Errorf("reserved: gas left %d, before %d", got, before)
	}
	b.Release()
	b.Release()
	b.Commit()
	if got := g.left(root); got != before {
		t.Errorf("released: gas left %d, before %d", got, before)
	}
	b = prepare()
	b.Commit()
	b.Release()
	if got := g.left(root); got != before-2 {
		t.Errorf("committed: gas left %d, before %d", got, before)
	}
	if n := g.checkStored(); n != 2 {
		t.Errorf("%d events stored", n)
	}
	g.wantRecords(2)
}

// TestConcurrentSubmitters: the budget holds to the event, whoever submits.
func TestConcurrentSubmitters(t *testing.T) {
	const submitters, each, gas = 24, 20, 200
	g := open(t, setup{types: []topology.Type{{Pattern: "ticket.*", Gas: gas, Breadth: topology.MaxBreadth}}})
	root, _ := g.root("r", "a")
	var accepted, refused, duplicates atomic.Int64
	var wg sync.WaitGroup
	for s := range submitters {
		name := fmt.Sprint("a", s)
		token := g.mintFor(root, name)
		wg.Go(func() {
			for k := range each {
				id := fmt.Sprintf("%d-%d", s/2, k) // two submitters fight for each id
				res := g.Admit(t.Context(), perimeter.Submission{Principal: agent(name), Tokens: []string{token}, Items: items(
					event("ticket.answer", id, `{"n":1}`), event("ticket.answer", "", `[]`), event("ticket.answer", "", `{"n":1}`),
				)})
				for _, r := range res {
					switch {
					case r.Err != nil:
						refused.Add(1)
					case r.Duplicate:
						duplicates.Add(1)
					default:
						accepted.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := accepted.Load() + refused.Load() + duplicates.Load(); got != submitters*each*3 {
		t.Errorf("%d results", got)
	}
	if n := g.checkStored(); int64(n) != accepted.Load()+1 || n != gas {
		t.Errorf("%d events stored, %d accepted, budget %d", n, accepted.Load(), gas)
	}
	if got := g.left(root); got != 0 {
		t.Errorf("gas left %d", got)
	}
}

// TestEveryItemHasOneFate draws submissions and broker faults: nothing is
// stored without a verdict, nothing leaks gas, and the results add up. Each
// draw has a root and a principal of its own, so that one gate serves all.
func TestEveryItemHasOneFate(t *testing.T) {
	g := open(t, setup{types: []topology.Type{{Pattern: "ticket.*", Gas: 30}}})
	draws := 0
	rapid.Check(t, func(rt *rapid.T) {
		draws++
		rootID, p := fmt.Sprint("r", draws), agent(fmt.Sprint("a", draws))
		root, token := g.root(rootID, p.Name)
		before := g.count("tickets")
		faulty := g.with(&odd{seed: rapid.Uint64().Draw(rt, "seed"), throttle: 0.1, unknownStored: 0.1, unknownLost: 0.1})
		submitted, results := 0, 0
		unsure := 0 // events of unknown outcome; their twins share it, uncharged
		fates := map[string]int{}
		for range rapid.IntRange(1, 8).Draw(rt, "submissions") {
			var events []*headgate.Event
			for range rapid.IntRange(0, 8).Draw(rt, "items") {
				events = append(events, &headgate.Event{
					Type:   rapid.SampledFrom([]string{"ticket.answer", "ticket.answer", "ticket.answer", "order.placed", "ticket.none", "!"}).Draw(rt, "type"),
					ID:     rapid.SampledFrom([]string{"", "1", "2", "3", "4", "5", "6", "7"}).Draw(rt, "id"),
					Source: rapid.SampledFrom([]string{"", "/" + rootID}).Draw(rt, "source"),
					Data:   []byte(rapid.SampledFrom([]string{`{"n":1}`, `{"n":1}`, `{"n":2}`, `[]`, `{`}).Draw(rt, "data")),
				})
			}
			submitted += len(events)
			s := perimeter.Submission{Principal: p, Tokens: []string{token}, Items: items(events...)}
			if rapid.IntRange(0, 4).Draw(rt, "prepare") == 0 {
				b := faulty.Prepare(t.Context(), s)
				b.Release()
				results += len(b.Results)
				continue
			}
			twins := map[string]bool{}
			for _, r := range faulty.Admit(t.Context(), s) {
				results++
				switch {
				case r.Err == nil && !r.Duplicate:
					fates["stored"]++
				case r.Err == nil:
					fates["duplicate"]++
					if r.Event == nil || r.Event.Header.RootID != rootID {
						rt.Errorf("duplicate without the first header: %+v", r.Event)
					}
				case r.Err.Code == headgate.CodeUnknownOutcome:
					if key := r.Event.Source + " " + r.Event.ID; !twins[key] {
						twins[key] = true
						unsure++
					}
				case r.Stage == "":
					rt.Errorf("refused at no stage: %v", r.Err)
				default:
					fates["refused"]++
				}
			}
		}
		if results != submitted {
			rt.Errorf("%d results for %d items", results, submitted)
		}
		if used := 29 - g.left(root); used != fates["stored"]+unsure {
			rt.Errorf("gas used %d; %d unknown; fates %v", used, unsure, fates)
		}
		if n := g.count("tickets") - before; n < fates["stored"] || n > fates["stored"]+unsure {
			rt.Errorf("%d events stored; %d unknown; fates %v", n, unsure, fates)
		}
	})
	g.checkStored()
}

// broken is a broker whose Publish is replaced.
type broken struct {
	broker.Broker
	publish func(ctx context.Context, stream string, events []*headgate.Event) ([]broker.Result, error)
}

func (b *broken) Publish(ctx context.Context, stream string, events []*headgate.Event) ([]broker.Result, error) {
	return b.publish(ctx, stream, events)
}

// TestBrokersThatMisbehave: whatever the broker does, every item has a result
// that says whether it may be stored, and its gas follows.
func TestBrokersThatMisbehave(t *testing.T) {
	type publish = func(context.Context, string, []*headgate.Event) ([]broker.Result, error)
	rejected := broker.Result{Outcome: broker.OutcomeRejected, Err: headgate.NewError(headgate.CodeTooLarge, "drawn")}
	for name, tt := range map[string]struct {
		publish publish
		code    string
		charged int
		records int
	}{
		"closed":  {func(context.Context, string, []*headgate.Event) ([]broker.Result, error) { return nil, broker.Closed() }, "draining@stamp", 0, 0},
		"foreign": {func(context.Context, string, []*headgate.Event) ([]broker.Result, error) { return nil, errors.New("?") }, "internal@stamp", 0, 0},
		"too few": {func(context.Context, string, []*headgate.Event) ([]broker.Result, error) { return nil, nil }, "unknown_outcome@stamp", 2, 0},
		"no result": {func(context.Context, string, []*headgate.Event) ([]broker.Result, error) {
			return make([]broker.Result, 2), nil
		}, "unknown_outcome@stamp", 2, 0},
		"rejects": {func(context.Context, string, []*headgate.Event) ([]broker.Result, error) {
			return []broker.Result{rejected, rejected}, nil
		}, "too_large@stamp", 0, 2},
		"throttles without a reason": {func(context.Context, string, []*headgate.Event) ([]broker.Result, error) {
			return []broker.Result{{Outcome: broker.OutcomeThrottled}, {Outcome: broker.OutcomeThrottled}}, nil
		}, "not_durable@stamp", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, setup{})
			root, token := g.root("r", "a")
			cfg := g.cfg
			cfg.Broker = &broken{Broker: g.broker, publish: tt.publish}
			p, err := perimeter.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			before := g.left(root)
			res := p.Admit(t.Context(), perimeter.Submission{Principal: agent("a"), Tokens: []string{token}, Items: items(event("ticket.answer", "1", `{"n":1}`), event("ticket.answer", "2", `{"n":1}`))})
			wantCodes(t, res, tt.code, tt.code)
			want := headgate.NotApplied
			if tt.charged > 0 {
				want = headgate.Unknown
			}
			if got := res[0].Err.Info().Outcome; got != want {
				t.Errorf("outcome %s, want %s", got, want)
			}
			if got := before - g.left(root); got != tt.charged {
				t.Errorf("charged %d, want %d", got, tt.charged)
			}
			g.wantRecords(tt.records)
		})
	}
}

func TestCanceledWhilePublishingIsUnknown(t *testing.T) {
	g := open(t, setup{})
	root, token := g.root("r", "a")
	begun := make(chan struct{})
	cfg := g.cfg
	cfg.Broker = &broken{Broker: g.broker, publish: func(ctx context.Context, _ string, events []*headgate.Event) ([]broker.Result, error) {
		close(begun)
		<-ctx.Done()
		return []broker.Result{broker.Unknown(ctx.Err())}, nil
	}}
	p, err := perimeter.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	before := g.left(root)
	done := make(chan []perimeter.Result)
	go func() {
		done <- p.Admit(ctx, perimeter.Submission{Principal: agent("a"), Tokens: []string{token}, Items: items(event("ticket.answer", "1", `{"n":1}`))})
	}()
	<-begun
	cancel()
	res := <-done
	wantCodes(t, res, "unknown_outcome@stamp")
	if got := before - g.left(root); got != 1 {
		t.Errorf("charged %d", got)
	}
}

func FuzzAdmit(f *testing.F) {
	g := open(f, setup{})
	f.Add("ticket.opened", "1", "/s", "subject", "application/json", "key", "region", "eu", []byte(`{"n":1}`))
	f.Add("", "\x00", "%zz", "\xff", "text/plain; charset=\"", "", "ttl", "9", []byte("\xff"))
	f.Add("note.keyed", "", "", "", "", "", "", "", []byte(`{"key":{"key":1e400}}`))
	f.Fuzz(func(t *testing.T, typ, id, source, subject, mediaType, key, name, value string, data []byte) {
		e := &headgate.Event{Type: typ, ID: id, Source: source, Subject: subject, DataContentType: mediaType, Key: key, Data: data}
		if name != "" {
			e.SetExtension(headgate.Extension{Name: name, Value: value})
		}
		res := g.Admit(context.Background(), perimeter.Submission{Principal: helpdesk(), Items: items(e)})
		switch r := res[0]; {
		case r.Err == nil && !r.Duplicate && (r.Event.Header.RootID != r.Event.ID || r.Event.DataSchema == "" || r.Event.Validate() != nil):
			t.Fatalf("admitted %+v", r.Event)
		case r.Err != nil && (r.Stage == "" || r.Err.Info().Outcome != headgate.NotApplied):
			t.Fatalf("refused at %q: %v", r.Stage, r.Err)
		}
	})
}

func (g *gate) wantRecords(want int) {
	g.t.Helper()
	rows, err := g.quarantine.List(g.t.Context(), store.QuarantineFilter{})
	if err != nil {
		g.t.Fatal(err)
	}
	if len(rows) != want {
		g.t.Errorf("%d records, want %d: %+v", len(rows), want, rows)
	}
}
