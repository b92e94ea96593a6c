package brokertest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

func testOwn(t *testing.T, h Harness) {
	cases(t, h, map[string]func(*testing.T, *bench){
		"the first owner stays":             ownFirst,
		"one of many wins":                  ownRace,
		"it is taken from one who is named": ownAdopt,
		"the owner survives a close":        ownReopen,
		"bad names":                         ownNames,
	})
}

// owns fails unless the streams are the owner's, for whoever asks.
func (b *bench) owns(owner string) {
	b.t.Helper()
	o, err := b.b.Own(b.ctx(), "", "")
	if err != nil || o.Owner != owner || o.Since.IsZero() != (owner == "") {
		b.t.Fatalf("the streams are %+v, want %q: %v", o, owner, err)
	}
	if owner == "" {
		return
	}
	if again, err := b.b.Own(b.ctx(), owner, ""); err != nil || again != o {
		b.t.Fatalf("asked by the owner: %+v, %v; before %+v", again, err, o)
	}
	other, err := b.b.Own(b.ctx(), owner+"-other", "somebody")
	wantCode(b.t, "another owner", err, headgate.CodeStreamsForeign)
	if other != o || !strings.Contains(fmt.Sprint(err), owner) {
		b.t.Fatalf("another owner is told %+v, %v", other, err)
	}
}

func ownFirst(t *testing.T, b *bench) {
	drv := b.open(1)
	b.owns("")
	if o, err := drv.Own(b.ctx(), "first", ""); err != nil || o.Owner != "first" || o.Since.IsZero() {
		t.Fatalf("%+v, %v", o, err)
	}
	b.owns("first")
	b.store(event("x", "k")) // whose they are is no matter of the events
}

func ownRace(t *testing.T, b *bench) {
	drv := b.open(1)
	const stores = 8
	var won [stores]bool
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			name := fmt.Sprint("store-", i)
			for range 3 { // the answer to one may have been lost
				o, err := drv.Own(b.ctx(), name, "")
				if won[i] = err == nil; err == nil && o.Owner != name || err != nil && headgate.CodeOf(err) != headgate.CodeStreamsForeign {
					t.Errorf("%s: %+v, %v", name, o, err)
				}
			}
		})
	}
	wg.Wait()
	winner := ""
	for i, ok := range won {
		if ok && winner != "" {
			t.Errorf("%s won, and store-%d", winner, i)
		}
		if ok {
			winner = fmt.Sprint("store-", i)
		}
	}
	b.owns(winner)
}

func ownAdopt(t *testing.T, b *bench) {
	drv := b.open(1)
	for i := range 70 { // also beyond what a driver may keep of the owners before
		name := fmt.Sprint("store-", i)
		before := fmt.Sprint("store-", i-1)
		if o, err := drv.Own(b.ctx(), name, before); err != nil || o.Owner != name {
			t.Fatalf("%+v, %v", o, err)
		}
		if _, err := drv.Own(b.ctx(), before, fmt.Sprint("store-", i-2)); headgate.CodeOf(err) != headgate.CodeStreamsForeign {
			t.Fatalf("the owner before is told %v", err)
		}
	}
	b.owns("store-69")
}

func ownReopen(t *testing.T, b *bench) {
	drv := b.open(1)
	if b.forgetful() {
		return
	}
	if _, err := drv.Own(b.ctx(), "first", ""); err != nil {
		t.Fatal(err)
	}
	b.open(1)
	b.owns("first")
}

func ownNames(t *testing.T, b *bench) {
	drv := b.open(1)
	for _, name := range []string{" ", "a b", "a\n", "ü", `"`, broker.Unreadable, strings.Repeat("a", 129)} {
		_, err := drv.Own(b.ctx(), name, "")
		wantCode(t, fmt.Sprintf("%q", name), err, headgate.CodeInvalidArgument)
	}
	long := strings.Repeat("aZ09-_", 21)
	if _, err := drv.Own(b.ctx(), long, ""); err != nil {
		t.Error(err)
	}
	b.close()
	if _, err := drv.Own(b.ctx(), long, ""); !strings.Contains(fmt.Sprint(err), broker.ErrClosed.Error()) {
		t.Errorf("after close: %v", err)
	}
}
