package perimeter_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/topology"
)

// TestStagesInOrder gives one submission a fault for every stage, and then one
// fewer each time, from the front: it must always fail at the first.
func TestStagesInOrder(t *testing.T) {
	faults := []struct {
		stage  perimeter.Stage
		code   headgate.Code
		inject func(*perimeter.Submission)
	}{
		{perimeter.StagePrincipal, headgate.CodeForbidden, func(s *perimeter.Submission) { s.Principal.Disabled = true }},
		{perimeter.StageEnvelope, headgate.CodeBadEnvelope, func(s *perimeter.Submission) { s.Items[0].Event.Source = "not a URI" }},
		{perimeter.StageRight, headgate.CodeTypeNotAllowed, func(s *perimeter.Submission) { s.Principal.Emit = []string{"order.*"} }},
		{perimeter.StageCause, headgate.CodeTokenInvalid, func(s *perimeter.Submission) { s.Tokens = []string{"forged"} }},
		{perimeter.StageContract, headgate.CodeContractViolation, func(s *perimeter.Submission) { s.Items[0].Event.Data = []byte(`[]`) }},
		{perimeter.StageStamp, headgate.CodeBadEnvelope, func(s *perimeter.Submission) {
			if s.Items[0].Event.Data[0] == '{' {
				s.Items[0].Event.Data = []byte(`{}`) // no key in it
			}
		}},
	}
	for k := 0; k <= len(faults); k++ {
		g := open(t, setup{})
		s := perimeter.Submission{
			Principal: helpdesk(), Door: "test", Items: items(event("note.keyed", "", `{"key":"k"}`), event("note.keyed", "", `{"key":"k"}`)),
		}
		for _, f := range faults[k:] {
			f.inject(&s)
		}
		res := g.Admit(t.Context(), s)[0]
		if k == len(faults) {
			if res.Err != nil {
				t.Errorf("without faults: %v", res.Err)
			}
			continue
		}
		if res.Err == nil || res.Err.Code != faults[k].code || res.Stage != faults[k].stage {
			t.Errorf("with the faults from %s on: %v at %q", faults[k].stage, res.Err, res.Stage)
		}
		if n := g.checkStored(); n > 1 {
			t.Errorf("with the faults from %s on: %d events stored", faults[k].stage, n)
		}
		if len(g.seen.refused) == 0 || g.seen.refused[0].Stage != faults[k].stage || g.seen.refused[0].Took < 0 {
			t.Errorf("observed %v", g.seen.refused)
		}
	}
}

func TestOneBadItemNeverFailsItsNeighbours(t *testing.T) {
	g := open(t, setup{})
	good := func(id string) *headgate.Event { return event("ticket.opened", id, `{"n":1}`) }
	bad := event("ticket.opened", "x", `{"n":"one"}`)
	s := perimeter.Submission{Principal: helpdesk(), Items: append(items(good("1"), bad, event("audit.tick", "y", `1`), good("2"), event("", "z", `{}`), nil, good("3")),
		perimeter.Item{Err: headgate.NewError(headgate.CodeSyntax, "offset 3"), Raw: []byte("{{{"), RawType: "application/cloudevents+json"})}
	res := g.Admit(t.Context(), s)
	wantCodes(t, res, "ok", "contract_violation@contract", "type_not_allowed@right", "ok", "bad_envelope@envelope", "bad_envelope@envelope", "ok", "syntax@envelope")
	for i, r := range res {
		if (r.Err == nil) == (r.QID != "") {
			t.Errorf("item %d: error %v, QID %q", i, r.Err, r.QID)
		}
	}
	if got := g.checkStored(); got != 3 {
		t.Errorf("%d events stored", got)
	}
	rec := g.record(res[7].QID)
	if string(rec.Body) != "{{{" || rec.ContentType != "application/cloudevents+json" || rec.Kind != store.KindRefused {
		t.Errorf("record = %+v", rec)
	}
	rec = g.record(res[1].QID)
	if rec.ID != "x" || rec.Type != "ticket.opened" || !strings.Contains(rec.Message, "/n") || rec.Principal != "helpdesk" {
		t.Errorf("record = %+v", rec)
	}
}

func TestDefaultsAndStamp(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	g := open(t, setup{now: func() time.Time { return now }})
	p := helpdesk()
	p.Name = "help desk"
	e := &headgate.Event{Type: "note.brief", DataSchema: "https://example.com/schema", Data: []byte(`1`), Header: headgate.Header{RootID: "forged", TTL: 99}}
	res := g.admit(p, e)[0]
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	if e.ID == "" || e.Source != "/principals/help%20desk" || e.DataSchema != "note.brief@1" || !e.Time.IsZero() {
		t.Errorf("event = %+v", e)
	}
	if !e.ExpiryTime.Equal(now.Add(time.Hour)) {
		t.Errorf("expirytime = %s", e.ExpiryTime)
	}
	h := e.Header
	if h.RootID != e.ID || len(h.Causes) != 0 || h.TTL != 16 || h.Hop != 0 || h.Origin != headgate.OriginSystem ||
		h.Principal != "help desk" || h.Actor != headgate.KindSystem || !h.RecordedTime.Equal(now) {
		t.Errorf("header = %+v", h)
	}
	if res.Stream != topology.DefaultStream || res.Contract.String() != "note.brief@1" {
		t.Errorf("result = %+v", res)
	}
}

func TestEnvelope(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		change func(*headgate.Event)
		want   string
	}{
		{"largest payload", func(e *headgate.Event) { e.Data = []byte(`"` + strings.Repeat("x", 98) + `"`) }, "ok"},
		{"payload too large", func(e *headgate.Event) { e.Data = []byte(`"` + strings.Repeat("x", 99) + `"`) }, "too_large@envelope"},
		{"type with a blank", func(e *headgate.Event) { e.Type = "note. brief" }, "bad_envelope@envelope"},
		{"id with a line break", func(e *headgate.Event) { e.ID = "a\nb" }, "bad_envelope@envelope"},
		{"long id", func(e *headgate.Event) { e.ID = strings.Repeat("i", 10_000) }, "too_large@envelope"},
		{"extension in upper case", func(e *headgate.Event) { e.Extensions = []headgate.Extension{{Name: "Bad", Value: "1"}} }, "bad_envelope@envelope"},
		{"extension that has a field", func(e *headgate.Event) { e.Extensions = []headgate.Extension{{Name: "subject", Value: "1"}} }, "bad_envelope@envelope"},
		{"year 10000", func(e *headgate.Event) { e.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "bad_envelope@envelope"},
		{"expired", func(e *headgate.Event) { e.ExpiryTime = now.Add(-time.Second) }, "expired@envelope"},
		{"expires now", func(e *headgate.Event) { e.ExpiryTime = now }, "expired@envelope"},
		{"expires soon", func(e *headgate.Event) { e.ExpiryTime = now.Add(time.Second) }, "ok"},
		{"expires too late", func(e *headgate.Event) { e.ExpiryTime = now.Add(time.Hour * 24 * 365) }, "ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := open(t, setup{now: func() time.Time { return now }})
			e := event("note.brief", "i", `1`)
			tt.change(e)
			wantCodes(t, g.admit(helpdesk(), e), tt.want)
			if tt.want == "ok" && e.ExpiryTime.After(now.Add(time.Hour)) {
				t.Errorf("expirytime = %s", e.ExpiryTime)
			}
		})
	}
}

func TestPrincipals(t *testing.T) {
	g := open(t, setup{})
	silent := helpdesk()
	silent.Emit = nil
	wantCodes(t, g.admit(nil, event("ticket.opened", "1", `{"n":1}`)), "unauthenticated@principal")
	wantCodes(t, g.admit(silent, event("ticket.opened", "2", `{"n":1}`)), "forbidden@principal")
	wantCodes(t, g.admit(agent("a"), event("ticket.opened", "3", `{"n":1}`)), "root_not_allowed@cause")
	wantCodes(t, g.admit(helpdesk(), event("note.timer", "4", `1`)), "origin_not_allowed@cause")
	res := g.Admit(t.Context(), perimeter.Submission{Principal: helpdesk(), Origin: headgate.OriginTimer, Items: items(event("note.timer", "5", `1`))})
	wantCodes(t, res, "ok")
	if res[0].Event.Header.Origin != headgate.OriginTimer {
		t.Errorf("header = %+v", res[0].Event.Header)
	}
}

func TestForgedHeaderAttributesAreDroppedAndCounted(t *testing.T) {
	g := open(t, setup{})
	e := event("ticket.opened", "1", `{"n":1}`)
	for _, name := range []string{"actor", "fence", "principal", "region", "ttl"} {
		e.SetExtension(headgate.Extension{Name: name, Value: "99"})
	}
	res := g.Admit(t.Context(), perimeter.Submission{Principal: helpdesk(), Items: []perimeter.Item{{Event: e, Ignored: []string{"rootid", "hop"}}}})
	wantCodes(t, res, "ok")
	if len(e.Extensions) != 1 || e.Extensions[0].Name != "region" {
		t.Errorf("extensions = %v", e.Extensions)
	}
	if got := len(g.seen.ignored); got != 6 {
		t.Errorf("ignored %v", g.seen.ignored)
	}
	if h := e.Header; h.TTL != 16 || h.Principal != "helpdesk" || h.RootID != "1" || h.Fence != "" {
		t.Errorf("header = %+v", h)
	}
}

func TestContracts(t *testing.T) {
	g := open(t, setup{types: []topology.Type{{Pattern: "note.other", Contract: "other.contract"}}})
	with := func(mediaType, data string) *headgate.Event {
		e := event("note.brief", "", data)
		e.DataContentType = mediaType
		return e
	}
	signal, opened := event("note.signal", "", ""), event("ticket.opened", "", "")
	signal.Data, opened.Data = nil, nil
	wantCodes(t, g.admit(helpdesk(),
		event("note.unknown", "", `1`),
		event("note.other", "", `"text"`),
		event("note.other", "", `1`),
		with("application/json; charset=UTF-8", `1`),
		with("application/vnd.acme+json", `1`),
		with("application/json; charset=utf-16", `1`),
		with("application/xml", `1`),
		with("", `not json`),
		signal, // no payload counts as null
		opened,
	),
		"contract_unknown@contract", "ok", "contract_violation@contract", "ok", "ok", "unsupported_media_type@contract",
		"unsupported_media_type@contract", "contract_violation@contract", "ok", "contract_violation@contract")
	if signal.Data != nil {
		t.Errorf("the absent payload became %q", signal.Data)
	}
}

func TestViolationCarriesItsVerdict(t *testing.T) {
	g := open(t, setup{})
	res := g.admit(helpdesk(), event("ticket.opened", "", `{"n":"\u001b[31m"}`))[0]
	if res.Err == nil || res.Err.Verdict == nil || len(res.Err.Verdict.Violations) != 1 || res.Err.Verdict.Violations[0].At != "/n" {
		t.Fatalf("error = %+v", res.Err)
	}
	if strings.Contains(res.Err.Error(), "\x1b") || res.Contract.Subject != "ticket.opened" {
		t.Errorf("error %q, contract %+v", res.Err.Error(), res.Contract)
	}
}

func TestKeys(t *testing.T) {
	g := open(t, setup{})
	own := event("note.keyed", "", `{"key":"k"}`)
	own.Key = "mine"
	read := event("note.keyed", "", `{"key":"k"}`)
	long := event("note.keyed", "", `{"key":"`+strings.Repeat("k", 5000)+`"}`)
	control := event("note.keyed", "", `{"key":"a\u0007"}`)
	wantCodes(t, g.admit(helpdesk(), own, read, long, control, event("note.keyed", "", `{}`)),
		"ok", "ok", "bad_envelope@stamp", "bad_envelope@stamp", "bad_envelope@stamp")
	if own.Key != "mine" || read.Key != "k" {
		t.Errorf("keys %q and %q", own.Key, read.Key)
	}
	if n := g.checkStored(); n != 2 {
		t.Errorf("%d events stored", n)
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	_, err := perimeter.New(perimeter.Config{})
	if !errors.Is(err, &headgate.Error{Code: headgate.CodeInvalidConfig}) && headgate.CodeOf(err) != headgate.CodeInvalidConfig {
		t.Fatal(err)
	}
	for _, field := range []string{"Broker", "Contracts", "Causal", "Quarantine", "Topology"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}
