package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// A request whose answer was lost is repeated while others wait for its very
// lease: it gets its grant at once, whether it would wait or not, and not behind
// them.
func TestARepeatedRequestWaitsForNobody(t *testing.T) {
	for _, wait := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := service(t, memory(t))
			ask := Request{Resources: []string{"r"}, RequestID: "q", Wait: wait, TTL: time.Minute}
			first, err := s.Acquire(ctx, worker("a"), ask)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				go func() {
					_, err := s.Acquire(ctx, worker("b"), Request{Resources: []string{"r"}, Wait: MaxWait})
					want(t, "who waits", err, headgate.CodeCanceled)
				}()
			}
			synctest.Wait()
			begun := time.Now()
			again, err := s.Acquire(ctx, worker("a"), ask)
			if err != nil || again[0].Epoch != first[0].Epoch || !again[0].Again || time.Since(begun) > time.Second {
				t.Errorf("repeated with wait %s: %+v, %v, %s later", wait, again, err, time.Since(begun))
			}
			cancel()
			synctest.Wait()
		})
	}
}

// A request is repeated while the first call of it still waits, with others
// between the two: both get the grant as soon as it is made.
func TestARepeatedRequestIsServedWithTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := service(t, memory(t))
		held, err := s.Acquire(ctx, worker("h"), Request{Resources: []string{"r"}, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		type answered struct {
			g   []Grant
			err error
			at  time.Time
		}
		answers := make(chan answered, 2)
		ask := func() {
			g, err := s.Acquire(ctx, worker("a"), Request{Resources: []string{"r"}, RequestID: "q", Wait: 20 * time.Second, TTL: time.Minute})
			answers <- answered{g, err, time.Now()}
		}
		go ask()
		synctest.Wait()
		go func() {
			_, err := s.Acquire(ctx, worker("b"), Request{Resources: []string{"r"}, Wait: MaxWait})
			want(t, "who waits between", err, headgate.CodeCanceled)
		}()
		synctest.Wait()
		go ask()
		synctest.Wait()
		time.Sleep(time.Second) // virtual
		freed := time.Now()
		if err := s.Release(ctx, worker("h"), "r", held[0].Token); err != nil {
			t.Fatal(err)
		}
		one, two := <-answers, <-answers
		if one.err != nil || two.err != nil || one.g[0].Epoch != two.g[0].Epoch || one.g[0].Again == two.g[0].Again {
			t.Errorf("%+v, %v and %+v, %v", one.g, one.err, two.g, two.err)
		}
		if late := two.at.Sub(freed); late > time.Second {
			t.Errorf("the second call was answered %s after the lease was free", late)
		}
		cancel()
		synctest.Wait()
	})
}
