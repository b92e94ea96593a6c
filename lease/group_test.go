package lease

import (
	"testing"
	"time"

	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
)

// TestRefusalsGroupAcrossResources: quarantine shows one group for a fault,
// however many resources it met.
func TestRefusalsGroupAcrossResources(t *testing.T) {
	r := newRig(t, memory(t))
	now := r.st.now
	refuse := func(resource string, epoch int64, l store.Lease) string {
		f := Fence{Resource: resource, Epoch: epoch, Nonce: []byte("0123456789abcdef")}
		e := r.judge(&l, &f, now)
		if e == nil {
			t.Fatalf("%s passes", resource)
		}
		return e.Detail
	}
	nonce := []byte("0123456789abcdef")
	for what, of := range map[string]func(resource string, epoch int64) string{
		"stale":    func(n string, e int64) string { return refuse(n, e, store.Lease{Epoch: e + 12345}) },
		"conflict": func(n string, e int64) string { return refuse(n, e, store.Lease{Epoch: e}) },
		"closing": func(n string, e int64) string {
			return refuse(n, e, store.Lease{Epoch: e, Nonce: nonce, Closing: true})
		},
		"expired": func(n string, e int64) string {
			return refuse(n, e, store.Lease{Epoch: e, Nonce: nonce, Expires: now.Add(-time.Duration(e))})
		},
	} {
		want := quarantine.Template(of("ticket/42", 1774872345123456))
		for resource, epoch := range map[string]int64{
			"order": 7, "tickets/of/7a": 1774872345999999, `it's "so" \`: 1774872345123999, "Ticket ä": 12_000_000_000,
		} {
			if got := quarantine.Template(of(resource, epoch)); got != want {
				t.Errorf("%s, %s: %s, want %s", what, resource, got, want)
			}
		}
	}
}
