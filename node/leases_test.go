package node

import (
	"log/slog"
	"testing"

	"github.com/headgate/headgate/store/sqlitestore"
)

// TestOutsideBrokerIsWarnedOf: nodes on one outside server grant leases each
// for itself, and an operator learns of it.
func TestOutsideBrokerIsWarnedOf(t *testing.T) {
	for text, want := range map[string]int{"": 0, `broker: { url: "nats://127.0.0.1:4222" }`: 1} {
		cfg, problems := Parse([]byte(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		st, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Memory: true})
		if err != nil {
			t.Fatal(err)
		}
		n := &Node{cfg: cfg, Store: st, log: slog.New(slog.DiscardHandler)}
		if err := n.openLeases(t.Context(), Options{}); err != nil {
			t.Error(err)
		}
		if len(n.Warnings()) != want || len(cfg.Warnings()) != want {
			t.Errorf("%q: %q", text, n.Warnings())
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}
