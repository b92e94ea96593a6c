package fencepg

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/lease/fence"
)

// Trust is of one epoch, ends by itself, and is bounded.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recent
		f := fence.Fence{Resource: "a", Epoch: 2}
		other := f
		other.Epoch = 3
		r.note(f, time.Now())
		if !r.has(f, time.Now()) || r.has(other, time.Now()) {
			t.Error("trust is not of the epoch that passed")
		}
		time.Sleep(lately - 1) // virtual time
		if !r.has(f, time.Now()) {
			t.Error("trust ended early")
		}
		time.Sleep(time.Nanosecond)
		if r.has(f, time.Now()) {
			t.Error("trust does not end")
		}
		r.note(f, time.Now())
		r.drop(f)
		if r.has(f, time.Now()) {
			t.Error("a refusal leaves trust behind")
		}
		for i := range 2 * maxRecent {
			r.note(fence.Fence{Resource: fmt.Sprint(i), Epoch: 1}, time.Now())
		}
		if len(r.passes) > maxRecent {
			t.Errorf("%d are remembered", len(r.passes))
		}
	})
}
