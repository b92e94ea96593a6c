package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// The storm ends by itself, and not one event later than the limits say.
func TestDemoStormIsCutToTheEvent(t *testing.T) {
	var scenes []struct {
		Scene    string
		FanOut   int `json:"fan_out"`
		TTL, Gas int
		Admitted int
		Depth    int
		Cuts     int
		Reasons  []string
	}
	servertest.RunJSON(t, binary, &scenes, "demo", "storm", "--think", "1ms")
	want := map[string]struct {
		admitted, depth int
		reason          string
	}{
		// The root and four notes of each agent; the fifth closes the loop.
		"loop": {9, 8, "loop"},
		// One event per hop; the deepest has TTL 1.
		"ttl": {16, 15, "ttl_exhausted"},
		// The whole budget and not one event more.
		"gas": {200, 0, "gas_exhausted"},
	}
	for _, s := range scenes {
		w, ok := want[s.Scene]
		if !ok {
			t.Fatalf("unknown scene %q", s.Scene)
		}
		delete(want, s.Scene)
		if s.Admitted != w.admitted || s.Admitted > s.Gas {
			t.Errorf("%s: %d events were admitted, want %d (gas %d)", s.Scene, s.Admitted, w.admitted, s.Gas)
		}
		if w.depth > 0 && s.Depth != w.depth || s.Depth >= s.TTL {
			t.Errorf("%s: depth %d, want %d (TTL %d)", s.Scene, s.Depth, w.depth, s.TTL)
		}
		if !slices.Contains(s.Reasons, w.reason) || s.Cuts == 0 {
			t.Errorf("%s: cut %d times for %v, want %s", s.Scene, s.Cuts, s.Reasons, w.reason)
		}
	}
	if len(want) > 0 {
		t.Errorf("scenes that did not run: %v", want)
	}
}

// Malformed payloads end in quarantine with a report a model can act on, the
// event that nobody can handle is parked, and healthy traffic is handled.
func TestDemoPoison(t *testing.T) {
	var r struct {
		Published int    `json:"healthy_published"`
		Settled   uint64 `json:"healthy_settled"`
		Refused   []struct {
			Case       string
			Report     string
			Violations []struct{ At, Fix string }
		}
		Parked []struct{ ID, Reason string }
		Groups []struct{ Kind string }
	}
	servertest.RunJSON(t, binary, &r, "demo", "poison")
	if r.Published == 0 || uint64(r.Published) != r.Settled {
		t.Errorf("%d healthy events were published, %d handled", r.Published, r.Settled)
	}
	if len(r.Refused) < 5 {
		t.Errorf("only %d malformed payloads", len(r.Refused))
	}
	for _, f := range r.Refused {
		if len(f.Violations) == 0 || f.Report == "" {
			t.Errorf("%s: no report", f.Case)
		}
		for _, v := range f.Violations {
			if v.Fix == "" {
				t.Errorf("%s: violation at %q without a fix", f.Case, v.At)
			}
		}
	}
	if len(r.Parked) != 1 || r.Parked[0].ID != "poison" || r.Parked[0].Reason != "handler_exhausted" {
		t.Errorf("parked: %v", fmt.Sprint(r.Parked))
	}
	if len(r.Groups) < len(r.Refused)/2 {
		t.Errorf("only %d groups", len(r.Groups))
	}
}
