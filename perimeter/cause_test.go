package perimeter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/topology"
)

func (g *gate) child(p *headgate.Principal, token string, events ...*headgate.Event) []perimeter.Result {
	g.t.Helper()
	return g.Admit(g.t.Context(), perimeter.Submission{Principal: p, Door: "test", Items: items(events...), Tokens: []string{token}})
}

func TestChildren(t *testing.T) {
	g := open(t, setup{})
	root, token := g.root("r", "a")
	res := g.child(agent("a"), token, event("ticket.answer", "c", `{"n":1}`))
	wantCodes(t, res, "ok")
	h := res[0].Event.Header
	if h.RootID != "r" || len(h.Causes) != 1 || h.Causes[0] != "r" || h.TTL != root.Header.TTL-1 || h.Hop != 1 || h.Origin != headgate.OriginSystem || h.Actor != headgate.KindAgent {
		t.Errorf("header = %+v", h)
	}
	if got := g.left(root); got != 38 {
		t.Errorf("gas left %d", got)
	}
}

func TestCausesThatNeverLeftTheNode(t *testing.T) {
	g := open(t, setup{})
	root, token := g.root("r", "a")
	other, _ := g.root("s", "a")
	cause := g.causal.CauseOf(causal.Delivered{Event: other, Stream: "tickets", Subscription: "s", Principal: "a", Attempt: 1})
	res := g.Admit(t.Context(), perimeter.Submission{
		Principal: agent("a"), Items: items(event("ticket.answer", "c", `{"n":1}`)), Causes: []*causal.Cause{cause}, Tokens: []string{token, token},
	})
	wantCodes(t, res, "ok")
	if h := res[0].Event.Header; h.RootID != "s" || strings.Join(h.Causes, " ") != "s r" {
		t.Errorf("header = %+v", h)
	}
	if a, b := g.left(root), g.left(other); a != 38 || b != 38 {
		t.Errorf("gas left %d and %d: each root pays once", a, b)
	}
}

func TestHostileTokens(t *testing.T) {
	g := open(t, setup{})
	_, token := g.root("r", "a")
	many := make([]string, perimeter.MaxParents+1)
	for i := range many {
		many[i] = token + fmt.Sprint(i)
	}
	for name, tt := range map[string]struct {
		tokens []string
		who    string
		code   headgate.Code
	}{
		"empty":     {[]string{""}, "a", headgate.CodeTokenInvalid},
		"garbage":   {[]string{"\x00\xff\n"}, "a", headgate.CodeTokenInvalid},
		"truncated": {[]string{token[:len(token)-1]}, "a", headgate.CodeTokenInvalid},
		"longer":    {[]string{token + "A"}, "a", headgate.CodeTokenInvalid},
		"huge":      {[]string{strings.Repeat("A", 1<<20)}, "a", headgate.CodeTokenInvalid},
		"altered":   {[]string{flip(token)}, "a", headgate.CodeTokenInvalid},
		"foreign":   {[]string{token}, "b", headgate.CodeTokenForeign},
		"one bad":   {[]string{token, "x"}, "a", headgate.CodeTokenInvalid},
		"too many":  {many, "a", headgate.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(g.seen.ignored)
			res := g.Admit(t.Context(), perimeter.Submission{
				Principal: agent(tt.who), Tokens: tt.tokens,
				Items: items(event("ticket.answer", "c", `{"n":1}`), event("ticket answer", "d", `{}`), event("ticket.answer", "e", `[]`)),
			})
			want := string(tt.code) + "@cause"
			wantCodes(t, res, want, "bad_envelope@envelope", want)
			attempts := len(g.seen.ignored) - before
			if wantAttempts := 1; tt.code == headgate.CodeInvalidArgument && attempts != 0 || tt.code != headgate.CodeInvalidArgument && attempts != wantAttempts {
				t.Errorf("observed %d attempts: %v", attempts, g.seen.ignored[before:])
			}
		})
	}
	if n := g.checkStored(); n != 1 {
		t.Errorf("%d events stored", n)
	}
}

func flip(token string) string {
	b := []byte(token)
	k := len(b) / 2
	if b[k] == 'A' {
		b[k] = 'B'
	} else {
		b[k] = 'A'
	}
	return string(b)
}

// TestRepublishAfterExhaustion: an answer that was lost may be asked for again,
// whatever happened since.
func TestRepublishAfterExhaustion(t *testing.T) {
	g := open(t, setup{types: []topology.Type{{Pattern: "ticket.*", Gas: 3}}})
	root, token := g.root("r", "a")
	a := agent("a")
	first := g.child(a, token, event("ticket.answer", "c1", `{"n":1}`))
	wantCodes(t, first, "ok")
	wantCodes(t, g.child(a, token, event("ticket.answer", "c2", `{"n":2}`)), "ok")
	gone := g.child(a, token, event("ticket.answer", "c3", `{"n":3}`))
	wantCodes(t, gone, "gas_exhausted@cause")
	rec := g.record(gone[0].QID)
	if rec.Kind != store.KindExtinguished || rec.Root != "r" || rec.Cause != "r" || rec.ID != "c3" || !perimeter.Causal(gone[0].Err.Code) {
		t.Errorf("record = %+v", rec)
	}

	// Again, with other content, with a bad token, and without any.
	again := g.child(a, token, event("ticket.answer", "c1", `{"n":"other"}`), event("ticket.answer", "c3", `{"n":3}`))
	wantCodes(t, again, "duplicate", "gas_exhausted@cause")
	wantCodes(t, g.child(a, "forged", event("ticket.answer", "c1", `{"n":1}`)), "duplicate")
	wantCodes(t, g.admit(a, event("ticket.answer", "c1", `{"n":1}`)), "duplicate")
	d := again[0]
	if d.Position != first[0].Position || d.Stream != first[0].Stream || d.Contract.String() != "ticket.answer@1" ||
		string(d.Event.Data) != `{"n":1}` || d.Event.Header.RootID != "r" || d.Event.Header.TTL != 15 || d.QID != "" {
		t.Errorf("duplicate = %+v of %+v", d, d.Event)
	}
	if got := g.left(root); got != 0 {
		t.Errorf("gas left %d", got)
	}
	if n := g.checkStored(); n != 3 {
		t.Errorf("%d events stored", n)
	}
}

func TestDuplicatesWithinOneSubmission(t *testing.T) {
	g := open(t, setup{types: []topology.Type{{Pattern: "ticket.*", Gas: 3}}})
	root, token := g.root("r", "a")
	res := g.child(agent("a"), token,
		event("ticket.answer", "x", `[]`),       // refused: the next may be admitted
		event("ticket.answer", "x", `{"n":1}`),  // the first
		event("ticket.answer", "x", `{"n":2}`),  // loses
		event("ticket.answer", "y", `{"n":1}`),  // the last gas
		event("ticket.answer", "y", `{"n":1}`),  // not refused for want of gas
		event("ticket.answer", "y", `"broken"`), // nor for its content
		event("ticket.answer", "z", `{"n":1}`),
	)
	wantCodes(t, res, "contract_violation@contract", "ok", "duplicate", "ok", "duplicate", "duplicate", "gas_exhausted@cause")
	for i, first := range map[int]int{2: 1, 4: 3, 5: 3} {
		if res[i].Position != res[first].Position || string(res[i].Event.Data) != `{"n":1}` || res[i].Event.Header.RootID != "r" {
			t.Errorf("item %d = %+v", i, res[i])
		}
	}
	if got := g.left(root); got != 0 {
		t.Errorf("gas left %d", got)
	}
	if n := g.checkStored(); n != 3 {
		t.Errorf("%d events stored", n)
	}
}

func TestTwinsAmongRoots(t *testing.T) {
	g := open(t, setup{})
	res := g.admit(helpdesk(),
		event("ticket.opened", "x", `{"n":1}`),
		event("ticket.opened", "x", `"broken"`),
		event("ticket.opened", "x", `{"n":2}`),
		event("order.placed", "x", `{}`), // another stream, another event
	)
	wantCodes(t, res, "ok", "duplicate", "duplicate", "ok")
	if res[1].Position != res[0].Position || res[2].Position != res[0].Position || string(res[1].Event.Data) != `{"n":1}` {
		t.Errorf("results = %+v", res)
	}
}

// TestAdmittedMeanwhile: another submission stores the same event between the
// first look and the refusal.
func TestAdmittedMeanwhile(t *testing.T) {
	d := &drafter{t: t, err: headgate.NewError(headgate.CodeContractInvalid, "no")}
	g := open(t, setup{drafter: d})
	meanwhile := event("ticket.new", "x", `{"by":"another"}`)
	meanwhile.Header = headgate.Header{RootID: "x", TTL: 1, Principal: helpdesk().Name}
	d.then = func() {
		if _, err := g.broker.Publish(t.Context(), "tickets", []*headgate.Event{meanwhile}); err != nil {
			t.Error(err)
		}
	}
	res := g.admit(helpdesk(), event("ticket.new", "x", `{"by":"me"}`))
	wantCodes(t, res, "duplicate")
	if res[0].Event != meanwhile || res[0].QID != "" {
		t.Errorf("result = %+v", res[0])
	}
}

func TestManyDuplicatesAreReadBack(t *testing.T) {
	g := open(t, setup{})
	const n = 300
	bulk := func(value int) (events []*headgate.Event) {
		for i := range n {
			e := event([]string{"ticket.opened", "order.placed"}[i%2], fmt.Sprint(i), fmt.Sprintf(`{"n":%d}`, value))
			e.Key = fmt.Sprint(i % 7)
			events = append(events, e)
		}
		return events
	}
	first := g.admit(helpdesk(), bulk(1)...)
	again := g.admit(helpdesk(), bulk(2)...)
	for i := range n {
		a, b := first[i], again[i]
		if a.Err != nil || a.Duplicate || b.Err != nil || !b.Duplicate || a.Position != b.Position || a.Stream != b.Stream ||
			b.Event.ID != fmt.Sprint(i) || string(b.Event.Data) != `{"n":1}` || b.Event.Header.RootID != fmt.Sprint(i) {
			t.Fatalf("item %d: %+v, then %+v of %+v", i, a, b, b.Event)
		}
	}
	if len(g.seen.admitted) != 2*n {
		t.Errorf("observed %d admissions", len(g.seen.admitted))
	}
}

func TestDuplicateThatWasTrimmedKeepsItsPosition(t *testing.T) {
	g := open(t, setup{})
	first := g.admit(helpdesk(), event("order.placed", "1", `{}`))[0]
	if err := g.broker.Trim(t.Context(), "orders", 0, 1); err != nil {
		t.Fatal(err)
	}
	again := g.admit(helpdesk(), event("order.placed", "1", `{}`))[0]
	if !again.Duplicate || again.Err != nil || again.Position != first.Position || again.Event == nil || again.Event.Header.RootID != "" {
		t.Errorf("result = %+v", again)
	}
}

// Whoever guesses the ids of others' events gets neither their events dropped
// as duplicates nor an answer about them.
func TestIDOfAnotherPrincipalIsNoDuplicate(t *testing.T) {
	g := open(t, setup{})
	thief := *helpdesk()
	thief.Name = "thief"
	first := g.admit(&thief, event("ticket.opened", "x", `{"n":666}`))
	wantCodes(t, first, "ok")
	res := g.admit(helpdesk(),
		event("ticket.opened", "x", `{"n":1}`),
		event("ticket.opened", "x", `{"n":1}`), // its twin
		event("ticket.opened", "x", `"broken"`),
		event("ticket.opened", "y", `{"n":2}`),
	)
	wantCodes(t, res, "id_taken@stamp", "id_taken@stamp", "id_taken@stamp", "ok")
	for i := range 3 {
		r := &res[i]
		if r.QID == "" || r.Position != (headgate.Position{}) || r.Duplicate || r.Event.Header.RootID != "" || string(r.Event.Data) == `{"n":666}` {
			t.Errorf("item %d tells of another's event or is not recorded: %+v", i, r)
		}
	}
	wantCodes(t, g.admit(&thief, event("ticket.opened", "x", `{"n":666}`)), "duplicate")
	wantCodes(t, g.admit(helpdesk(), event("ticket.opened", "y", `{"n":2}`)), "duplicate")
	if b := g.Prepare(t.Context(), perimeter.Submission{Principal: helpdesk(), Items: []perimeter.Item{{Event: event("ticket.opened", "x", `{"n":1}`)}}}); b.Results[0].Err == nil || b.Results[0].Err.Code != headgate.CodeIDTaken {
		t.Errorf("prepared: %+v", b.Results[0])
	} else {
		b.Release()
	}
}
