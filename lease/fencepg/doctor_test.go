package fencepg

import (
	"testing"

	"github.com/headgate/headgate/internal/pgtest"
)

// The whole table of interleavings holds on a real server, and the controls
// are caught.
func TestInterleavings(t *testing.T) {
	d, err := Doctor(t.Context(), pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Checks {
		if !c.OK {
			t.Errorf("%s, %s, %s: %s", c.Name, c.Guard, c.Level, c.Why)
		}
	}
	if len(d.Checks) < 380 {
		t.Errorf("only %d checks ran", len(d.Checks))
	}
	t.Logf("%d checks on %s", len(d.Checks), d.Server)
}

func TestMultixactHint(t *testing.T) {
	const limit = 400_000_000
	for age, told := range map[int64]bool{0: false, limit/2 - 1: false, limit / 2: true, 2 * limit: true} {
		if got := multixacts(age, limit); (got != "") != told {
			t.Errorf("age %d: %q", age, got)
		}
	}
}
