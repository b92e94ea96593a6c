package lease

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestRevokeTellsTargets: the targets that a lease was sealed at hear of its
// revocation, others do not, and what cannot be told is named.
func TestRevokeTellsTargets(t *testing.T) {
	one, two := &target{newest: map[string]int64{}}, &target{newest: map[string]int64{}}
	var gated atomic.Int64
	var ends atomic.Int64
	s, err := Open(t.Context(), Config{Store: memory(t), Seal: map[string]Target{
		"one": {
			Gate: func(_ context.Context, _ string, below int64) error { gated.Store(below); return nil },
			Seal: func(ctx context.Context, f Sealing) ([]headgate.BlockingSession, error) {
				if f.End {
					ends.Add(1)
					return []headgate.BlockingSession{{PID: 7, Ended: true}}, one.keep(ctx, f.Fence)
				}
				return one.seal(ctx, f)
			},
		},
		"two": {Seal: two.seal},
	}})
	if err != nil {
		t.Fatal(err)
	}
	take := func(resource string, seal ...string) Grant {
		t.Helper()
		g, err := s.Acquire(t.Context(), worker("w"), Request{Resources: []string{resource}, Seal: seal})
		if err != nil {
			t.Fatal(err)
		}
		return g[0]
	}
	g := take("a", "one")
	got, err := s.Revoke(t.Context(), "a", Revocation{Terminate: true})
	if err != nil || got.Epoch <= g.Epoch || len(got.Untold) != 0 || len(got.Sessions) != 1 || got.Sessions[0].Target != "one" {
		t.Errorf("revoke: %+v, %v", got, err)
	}
	if one.newest["a"] <= g.Epoch || gated.Load() != g.Epoch+1 || ends.Load() != 1 {
		t.Errorf("target one knows %d, gate below %d, ended %d times", one.newest["a"], gated.Load(), ends.Load())
	}
	if len(two.newest) != 0 {
		t.Errorf("a target that was not sealed was told: %v", two.newest)
	}
	// The next holder's grant is above what the target was told.
	if next := take("a", "one", "two"); one.newest["a"] != next.Epoch || two.newest["a"] != next.Epoch {
		t.Errorf("the next grant %d, targets know %d and %d", next.Epoch, one.newest["a"], two.newest["a"])
	}
	two.fail = errors.New("password=secret")
	got, err = s.Revoke(t.Context(), "a", Revocation{Terminate: true})
	if err != nil || !slices.Equal(got.Untold, []string{"two"}) {
		t.Errorf("revoke beside a target that is down: %+v, %v", got, err)
	}
}

// TestRevokeLeavesTheNextHolderAlone: another holder takes the lease and seals
// before the target hears of the revocation; its writes go on to pass.
func TestRevokeLeavesTheNextHolderAlone(t *testing.T) {
	db := &target{newest: map[string]int64{}}
	s, err := Open(t.Context(), Config{Store: memory(t), Seal: map[string]Target{"db": {Seal: db.seal}}})
	if err != nil {
		t.Fatal(err)
	}
	ask := Request{Resources: []string{"a"}, Seal: []string{"db"}, Wait: MaxWait}
	g, err := s.Acquire(t.Context(), worker("w"), ask)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan Grant, 1)
	go func() {
		got, err := s.Acquire(t.Context(), worker("v"), ask)
		if err != nil {
			t.Error(err)
			close(next)
			return
		}
		next <- got[0]
	}()
	for s.Waiting() == 0 && t.Context().Err() == nil {
		_, _ = s.Get(t.Context(), "a")
	}
	seal := db.seal
	taken := make(chan Grant, 1)
	s.cfg.Seal["db"] = Target{Seal: func(ctx context.Context, f Sealing) ([]headgate.BlockingSession, error) {
		if f.Holder == OwnAudience { // the revocation's comes late
			n := <-next
			taken <- n
			if f.Epoch >= n.Epoch {
				t.Errorf("the revocation seals with %d, the next holder has %d", f.Epoch, n.Epoch)
			}
		}
		return seal(ctx, f)
	}}
	got, err := s.Revoke(t.Context(), "a", Revocation{Terminate: true, Deadline: 20 * time.Second})
	if err != nil || len(got.Untold) != 0 {
		t.Errorf("revoke: %+v, %v", got, err)
	}
	if n := <-taken; db.newest["a"] != n.Epoch || n.Epoch <= g[0].Epoch {
		t.Errorf("the target knows %d, the holder has %d", db.newest["a"], n.Epoch)
	}
}

// TestTargetsWithAnAudience get a token that is good for them alone, and the
// holder's token is good there, too.
func TestTargetsWithAnAudience(t *testing.T) {
	var token atomic.Value
	s, err := Open(t.Context(), Config{Store: memory(t), Seal: map[string]Target{"crm": {
		Audience: "crm.example", Seal: func(_ context.Context, f Sealing) ([]headgate.BlockingSession, error) {
			token.Store(f.Token)
			return nil, nil
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ask := Request{Resources: []string{"a"}, Seal: []string{"crm"}, Audience: []string{"other"}, RequestID: "r"}
	g, err := s.Acquire(t.Context(), worker("w"), ask)
	if err != nil {
		t.Fatal(err)
	}
	for audience, want := range map[string]headgate.Code{"crm.example": "", "other": "", OwnAudience: "", "else": headgate.CodeFenceForeign} {
		if _, err := s.Read(t.Context(), g[0].Token, audience); headgate.CodeOf(err) != want {
			t.Errorf("the holder's token for %s: %v", audience, err)
		}
	}
	sealed := token.Load().(string)
	for audience, want := range map[string]headgate.Code{"crm.example": "", "other": headgate.CodeFenceForeign, OwnAudience: headgate.CodeFenceForeign} {
		if _, err := s.Read(t.Context(), sealed, audience); headgate.CodeOf(err) != want {
			t.Errorf("the sealing token for %s: %v", audience, err)
		}
	}
	if _, err := s.Renew(t.Context(), worker("w"), "a", sealed, 0); err == nil {
		t.Error("the token that the target got renews the lease")
	}
	if again, err := s.Acquire(t.Context(), worker("w"), ask); err != nil || !again[0].Again {
		t.Errorf("repeated: %+v, %v", again, err)
	}
	ask.Audience, ask.RequestID, ask.Resources = []string{"a1", "a2", "a3", "a4", "a5", "a6", "a7"}, "", []string{"b"}
	_, err = s.Acquire(t.Context(), worker("w"), ask)
	want(t, "too many to be meant for", err, headgate.CodeInvalidArgument)
}
