package contract

import (
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
)

// general returns the same contract on the general engine alone.
func (c *Contract) general() *Contract {
	d := *c
	d.engine = general{&d, "test"}
	return &d
}

// sameEngines compares what the contract's engine accepts with what the
// general engine does.
func sameEngines(t testing.TB, name string, c *Contract, payload []byte) {
	t.Helper()
	f, ok := c.engine.(*fast)
	if !ok {
		return
	}
	got, want := f.accept(payload), c.general().engine.accept(payload)
	if got != want {
		t.Errorf("%s on %s: the %s engine says %v, the general engine %v", name, clip(string(payload), 300), f.engine, got, want)
	}
}

// engineCount counts cases by the engine that decided them.
type engineCount struct{ fast, hybrid, fallback atomic.Int64 }

func (n *engineCount) add(c *Contract) {
	switch c.ref.Engine {
	case headgate.EngineFast:
		n.fast.Add(1)
	case headgate.EngineHybrid:
		n.hybrid.Add(1)
	default:
		n.fallback.Add(1)
	}
}

func (n *engineCount) log(t testing.TB, name string) {
	t.Helper()
	t.Logf("%s: %d cases on the fast engine, %d hybrid, %d on the general engine", name, n.fast.Load(), n.hybrid.Load(), n.fallback.Load())
}
