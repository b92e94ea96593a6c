package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// slowly lets the target one take its time.
func slowly(s *Service, one *target, took time.Duration) {
	s.cfg.Seal["one"] = Target{Seal: func(ctx context.Context, f Sealing) ([]headgate.BlockingSession, error) {
		select {
		case <-time.After(took):
			return one.seal(ctx, f)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}

// TestRevokedWhileSealed: a grant that ended while its target was told of it is
// not handed out, and the target does not let it through.
func TestRevokedWhileSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, _ := sealing(t)
		slowly(s, one, 4*time.Second)
		revoked := make(chan Revoked, 1)
		granted := make(chan int64, 1)
		go func() {
			<-time.After(time.Second)
			held, err := s.Get(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			granted <- held.Epoch
			out, err := s.Revoke(t.Context(), "a", Revocation{Terminate: true})
			if err != nil {
				t.Error(err)
			}
			revoked <- out
		}()
		g, err := s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"a"}, Seal: []string{"one"}, Wait: 20 * time.Second, TTL: time.Minute})
		want(t, "acquire", err, headgate.CodeLeaseLost)
		out, epoch := <-revoked, <-granted
		synctest.Wait()
		one.mu.Lock()
		defer one.mu.Unlock()
		if len(g) > 0 || one.newest["a"] != epoch+1 || out.Epoch <= epoch {
			t.Errorf("granted %+v; the target knows %d, the lease was %d and was revoked to %d", g, one.newest["a"], epoch, out.Epoch)
		}
	})
}

// TestAnImpatientRepeatGivesNothingBack: what the first call of a request is
// about to get stands, although its repetition could not wait for the target.
func TestAnImpatientRepeatGivesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, _ := sealing(t)
		slowly(s, one, 4*time.Second)
		ask := Request{Resources: []string{"a"}, Seal: []string{"one"}, Wait: 20 * time.Second, TTL: time.Minute, RequestID: "r"}
		type answered struct {
			g   []Grant
			err error
		}
		first := make(chan answered, 1)
		go func() {
			g, err := s.Acquire(t.Context(), worker("w"), ask)
			first <- answered{g, err}
		}()
		synctest.Wait()
		ask.Wait = time.Second
		_, err := s.Acquire(t.Context(), worker("w"), ask)
		want(t, "the repetition", err, headgate.CodeSealFailed)
		if headgate.AsError(err).Info().Outcome != headgate.Unknown {
			t.Errorf("outcome of %v", err)
		}
		got := <-first
		if got.err != nil {
			t.Fatal(got.err)
		}
		if _, err := s.Renew(t.Context(), worker("w"), "", got.g[0].Token, 0); err != nil {
			t.Errorf("the first call's lease: %v", err)
		}
	})
}

// TestOtherTargetsAreAnotherRequest.
func TestOtherTargetsAreAnotherRequest(t *testing.T) {
	s, _, _ := sealing(t)
	ask := Request{Resources: []string{"a"}, RequestID: "r", TTL: time.Minute}
	if _, err := s.Acquire(t.Context(), worker("w"), ask); err != nil {
		t.Fatal(err)
	}
	ask.Seal = []string{"one"}
	_, err := s.Acquire(t.Context(), worker("w"), ask)
	want(t, "with a target", err, headgate.CodeConflict)
}

// TestOneRequestAtTheSameTime: calls of one request that do not wait all get
// its grant, however they meet.
func TestOneRequestAtTheSameTime(t *testing.T) {
	s := service(t, memory(t))
	for range 20 {
		ask := Request{Resources: []string{"a"}, RequestID: "r" + time.Now().Format(time.RFC3339Nano), TTL: time.Minute}
		type answered struct {
			g   []Grant
			err error
		}
		all := make(chan answered, 4)
		for range cap(all) {
			go func() {
				g, err := s.Acquire(t.Context(), worker("w"), ask)
				all <- answered{g, err}
			}()
		}
		var token string
		var epoch int64
		for range cap(all) {
			a := <-all
			if a.err != nil {
				t.Fatal(a.err)
			}
			if epoch != 0 && a.g[0].Epoch != epoch {
				t.Fatalf("epochs %d and %d", epoch, a.g[0].Epoch)
			}
			epoch, token = a.g[0].Epoch, a.g[0].Token
		}
		if err := s.Release(t.Context(), worker("w"), "", token); err != nil {
			t.Fatal(err)
		}
	}
}
