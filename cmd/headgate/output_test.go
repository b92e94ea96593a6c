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
