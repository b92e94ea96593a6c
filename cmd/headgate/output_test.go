package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
)

// What agents choose cannot change how a terminal shows the output around it,
// and JSON stays the same value.
func TestOutputIsSafeToLookAt(t *testing.T) {
	const hostile = "a\x1b[31m\u202e\u2066\u2028\u009b\x7f\"é漢"
	var out, errOut bytes.Buffer
	a := &app{streams: streams{out: &out, err: &errOut}, json: true}
	if err := a.printJSON(map[string]string{hostile: hostile}); err != nil {
		t.Fatal(err)
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back[hostile] != hostile {
		t.Errorf("%v: %q", err, back)
	}
	a.printError(headgate.NewError(headgate.CodeNotFound, "%s", hostile))
	printSubscription(&out, api.Subscription{Name: "s", SubscriptionSpec: api.SubscriptionSpec{When: hostile}})
	text := out.String() + errOut.String()
	if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && unsafeRune(r) }); at >= 0 {
		t.Errorf("unsafe character %q in %q", text[at], text)
	}
	if !strings.Contains(text, "é漢") {
		t.Errorf("plain letters were escaped: %q", text)
	}
}

// TestFencesAreShown: tail and explain say under which lease an event was
// written, and are silent where it was under none.
func TestFencesAreShown(t *testing.T) {
	const event = `{"specversion":"1.0","id":"e1","source":"/s","type":"ticket.closed","time":"2026-03-01T12:00:00Z","rootid":"e1","ttl":8,"hop":0,` +
		`"origin":"system","principal":"ops","actor":"human","recordedtime":"2026-03-01T12:00:00Z"%s,"data":{"n":1}}`
	show := func(attribute string) string {
		raw := json.RawMessage(strings.Replace(event, "%s", attribute, 1))
		var out bytes.Buffer
		a := &app{streams: streams{out: &out, err: &out}}
		a.printEvent("events/0:1", raw)
		a.printExplanation(&out, &api.Explanation{Admitted: true, Event: api.Event{ID: "e1", Type: "ticket.closed", Event: raw}})
		a.printExplanation(&out, &api.Explanation{Admitted: true, Event: api.Event{ID: "e1", Event: json.RawMessage("null")}})
		if strings.Contains(out.String(), "unreadable") {
			t.Error(out.String())
		}
		return out.String()
	}
	got := show(`,"fence":"ticket/42@1774872345123456"`)
	for _, want := range []string{" by ops under ticket/42@1774872345123456  ", "\n  fence      ticket/42@1774872345123456\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %q", got, want)
		}
	}
	if got := show(""); strings.Contains(got, "under") || strings.Contains(got, "fence") {
		t.Error(got)
	}
}
