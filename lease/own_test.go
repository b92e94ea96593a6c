package lease

import (
	"testing"

	"github.com/headgate/headgate"
)

// A token alone does nothing: whoever sends it must be its holder, known and
// not disabled.
func TestATokenNeedsItsHolder(t *testing.T) {
	r := newRig(t, memory(t))
	g := r.acquire("a", "r")
	disabled := worker("a")
	disabled.Disabled = true
	for name, p := range map[string]*headgate.Principal{"nobody": nil, "disabled": disabled, "another": worker("b")} {
		_, err := r.Renew(t.Context(), p, "r", g.Token, 0)
		want(t, name+" renews", err, headgate.CodeFenceForeign)
		want(t, name+" releases", r.Release(t.Context(), p, "r", g.Token), headgate.CodeFenceForeign)
	}
	want(t, "the holder still writes", r.write(g.Token), "")
}

// A lease whose row was lost with the store is stale also for who only asks.
func TestVerifyOfALostRow(t *testing.T) {
	r := newRig(t, memory(t))
	lost := r.acquire("a", "r")
	other := newRig(t, memory(t))
	other.ring.Store(r.ring.Load())
	_, _, err := other.Verify(t.Context(), lost.Token, "")
	want(t, "verify", err, headgate.CodeStaleFence)
}
