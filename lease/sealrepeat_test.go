package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// failures are the ways in which a target cannot be sealed.
var failures = map[string]func(*target){
	"down":  func(db *target) { db.set(errors.New("down"), false) },
	"hangs": func(db *target) { db.set(nil, true) },
}

// TestRepeatLeavesTheHolderAlone: what was granted and answered stays, although a
// late copy of its request meets a target that fails: it gets the same grant.
func TestRepeatLeavesTheHolderAlone(t *testing.T) {
	for what, fail := range failures {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, one, _ := sealing(t)
				defer runs(t, s)()
				ask := Request{Resources: []string{"a", "b"}, Seal: []string{"one"}, RequestID: "r"}
				g := sealedGrant(t, s, ask)
				fail(one)
				again, err := s.Acquire(t.Context(), worker("w"), ask)
				if err != nil || !again[0].Again || again[0].Epoch != g.Epoch || again[1].Epoch == 0 {
					t.Errorf("repeated: %+v, %v", again, err)
				}
				one.set(nil, false)
				if _, err := s.Renew(t.Context(), worker("w"), "a", g.Token, 0); err != nil {
					t.Errorf("the holder renews: %v", err)
				}
				time.Sleep(3 * time.Second)
				if one.knows("a") != g.Epoch {
					t.Errorf("granted %d, the target knows %d", g.Epoch, one.knows("a"))
				}
			})
		})
	}
}

// TestRepeatAfterARestart: a node that does not know any more whether the first
// call was answered seals again, and keeps the lease when it cannot.
func TestRepeatAfterARestart(t *testing.T) {
	for what, fail := range failures {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, one, _ := sealing(t)
				ask := Request{Resources: []string{"a"}, Seal: []string{"one"}, RequestID: "r"}
				g := sealedGrant(t, before, ask)
				s, err := Open(t.Context(), before.cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer runs(t, s)()
				synctest.Wait() // it has found the lease, and knows nothing of its targets
				fail(one)
				_, err = s.Acquire(t.Context(), worker("w"), ask)
				want(t, "repeated", err, headgate.CodeSealFailed)
				if out := headgate.AsError(err).Info().Outcome; out != headgate.Unknown {
					t.Errorf("the outcome is %s", out)
				}
				one.set(nil, false)
				if _, err := s.Renew(t.Context(), worker("w"), "a", g.Token, 0); err != nil {
					t.Errorf("the holder renews: %v", err)
				}
				again, err := s.Acquire(t.Context(), worker("w"), ask)
				if err != nil || again[0].Epoch != g.Epoch || one.knows("a") != g.Epoch {
					t.Errorf("repeated once more: %+v, %v, the target knows %d", again, err, one.knows("a"))
				}
			})
		})
	}
}

// unread is a store that cannot be read when it is told so.
type unread struct {
	store.Store
	away func() bool
}

func (u *unread) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	if u.away() {
		return headgate.NewError(headgate.CodeUnavailable, "away")
	}
	return u.Store.View(ctx, fn)
}

// TestRepeatWhileTheStoreIsAway: that a repetition cannot read whether its grant
// stands is no reason to end it.
func TestRepeatWhileTheStoreIsAway(t *testing.T) {
	before, one, _ := sealing(t)
	ask := Request{Resources: []string{"a"}, Seal: []string{"one"}, RequestID: "r"}
	g := sealedGrant(t, before, ask)
	away := false
	s, err := Open(t.Context(), Config{Store: &unread{before.cfg.Store, func() bool { return away }}, Seal: map[string]Target{
		"one": {Seal: func(ctx context.Context, f Sealing) ([]headgate.BlockingSession, error) {
			away = true
			return one.seal(ctx, f)
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Acquire(t.Context(), worker("w"), ask)
	want(t, "repeated", err, headgate.CodeSealFailed)
	if out := headgate.AsError(err).Info().Outcome; out != headgate.Unknown {
		t.Errorf("the outcome is %s", out)
	}
	away = false
	if _, err := s.Renew(t.Context(), worker("w"), "a", g.Token, 0); err != nil {
		t.Errorf("the holder renews: %v", err)
	}
}

// TestFirstCallFailsBesideARepeat: when both calls of a request fail, nobody has
// the lease, and the last of them gives it back.
func TestFirstCallFailsBesideARepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, _ := sealing(t)
		slowly(s, one, time.Hour)
		ask := Request{Resources: []string{"a"}, Seal: []string{"one"}, Wait: 2 * time.Second, TTL: time.Minute, RequestID: "r"}
		first := make(chan error, 1)
		go func() {
			_, err := s.Acquire(t.Context(), worker("w"), ask)
			first <- err
		}()
		synctest.Wait()
		ask.Wait = 10 * time.Second
		_, err := s.Acquire(t.Context(), worker("w"), ask)
		want(t, "the repetition", err, headgate.CodeSealFailed)
		want(t, "the first call", <-first, headgate.CodeSealFailed)
		if st, err := s.Get(t.Context(), "a"); err != nil || st.Held() {
			t.Errorf("nobody knows of the lease, and it is held: %+v, %v", st, err)
		}
	})
}
