package lease

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// target is a database that keeps the newest grant it was told of.
type target struct {
	mu     sync.Mutex
	newest map[string]int64
	fail   error
	hangs  bool
}

func (t *target) seal(ctx context.Context, f Sealing) ([]headgate.BlockingSession, error) {
	return nil, t.keep(ctx, f.Fence)
}

func (t *target) keep(ctx context.Context, f Fence) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.hangs:
		<-ctx.Done()
		return ctx.Err()
	case t.fail != nil:
		return t.fail
	case f.Epoch < t.newest[f.Resource]:
		return headgate.NewError(headgate.CodeStaleFence, "superseded")
	}
	t.newest[f.Resource] = f.Epoch
	return nil
}

func sealing(t *testing.T) (s *Service, one, two *target) {
	t.Helper()
	one, two = &target{newest: map[string]int64{}}, &target{newest: map[string]int64{}}
	s, err := Open(t.Context(), Config{Store: memory(t), Seal: map[string]Target{"one": {Seal: one.seal}, "two": {Seal: two.seal}}})
	if err != nil {
		t.Fatal(err)
	}
	return s, one, two
}

// TestSeal: the grant is returned once every target knows of it.
func TestSeal(t *testing.T) {
	s, one, two := sealing(t)
	ask := Request{Resources: []string{"a", "b"}, Seal: []string{"two", "one"}, RequestID: "r"}
	g, err := s.Acquire(t.Context(), worker("w"), ask)
	if err != nil {
		t.Fatal(err)
	}
	for _, db := range []*target{one, two} {
		if len(db.newest) != 2 || db.newest["a"] != g[0].Epoch || db.newest["b"] != g[1].Epoch {
			t.Errorf("sealed %v with %+v", db.newest, g)
		}
	}
	again, err := s.Acquire(t.Context(), worker("w"), ask) // the answer was lost
	if err != nil || !again[0].Again || again[0].Epoch != g[0].Epoch || one.newest["a"] != g[0].Epoch {
		t.Errorf("repeated: %+v, %v, sealed %v", again, err, one.newest)
	}
	_, err = s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"c"}, Seal: []string{"three"}})
	want(t, "a target that nobody declared", err, headgate.CodeInvalidArgument)
	if _, err := s.Get(t.Context(), "c"); headgate.CodeOf(err) != headgate.CodeNotFound {
		t.Errorf("and yet it was leased: %v", err)
	}
}

// TestSealFailure: the leases are given back, the answer names the target and
// repeats nothing of what the database said.
func TestSealFailure(t *testing.T) {
	for what, c := range map[string]struct {
		set  func(*target)
		says string
	}{
		"down":              {func(db *target) { db.fail = errors.New("password=secret") }, "see the log"},
		"knows a newer one": {func(db *target) { db.newest["a"] = maxEpoch }, "newer grant"},
		"hangs":             {func(db *target) { db.hangs = true }, "in time"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, two := sealing(t)
				c.set(two)
				begun := time.Now()
				_, err := s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"a"}, Seal: []string{"one", "two"}, Wait: 10 * time.Second, RequestID: "r"})
				want(t, "acquire", err, headgate.CodeSealFailed)
				e := headgate.AsError(err)
				if e.Info().Outcome != headgate.NotApplied || !strings.Contains(e.Detail, "target two") || !strings.Contains(e.Detail, c.says) || strings.Contains(e.Detail, "secret") {
					t.Errorf("%+v", e)
				}
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("it took %s, longer than the wait", took)
				}
				if st, err := s.Get(t.Context(), "a"); err != nil || st.Held() {
					t.Errorf("still held: %+v, %v", st, err)
				}
				_, err = s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"a"}, Seal: []string{"one", "two"}, Wait: 10 * time.Second, RequestID: "r"})
				want(t, "the same request again", err, headgate.CodeConflict)
			})
		})
	}
}

// TestSealOutlivesTheCaller: whoever went away may repeat the request.
func TestSealOutlivesTheCaller(t *testing.T) {
	s, one, _ := sealing(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.cfg.Seal["one"] = Target{Seal: func(ctx context.Context, f Sealing) ([]headgate.BlockingSession, error) {
		cancel()
		if ctx.Err() != nil {
			t.Error("the caller's end ended the sealing")
		}
		return one.seal(ctx, f)
	}}
	ask := Request{Resources: []string{"a"}, Seal: []string{"one"}, RequestID: "r"}
	first, err := s.Acquire(ctx, worker("w"), ask)
	if err != nil || one.newest["a"] != first[0].Epoch {
		t.Errorf("%+v, %v", first, err)
	}
}
