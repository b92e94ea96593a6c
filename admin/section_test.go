package admin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// TestSectionsEnd: a part that hangs, also one that does not hear that its time is
// over, ends in its time; one that fails says why; and no more are under way than
// the bound, however many ask.
func TestSectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := make(asks, 2)
		deaf := make(chan struct{})
		began := time.Now()
		ask := func(f func(context.Context) (func(), error)) *section {
			return a.section(t.Context(), "it", sectionTime, f)
		}
		hangs := ask(func(ctx context.Context) (func(), error) { <-ctx.Done(); return nil, ctx.Err() })
		<-hangs.done
		if headgate.CodeOf(hangs.fail) != headgate.CodeUnavailable || time.Since(began) != sectionTime {
			t.Errorf("%v after %v", hangs.fail, time.Since(began))
		}
		why := errors.New("why")
		fails := ask(func(context.Context) (func(), error) { return nil, why })
		if <-fails.done; !errors.Is(fails.fail, why) {
			t.Errorf("%v", fails.fail)
		}
		for range 3 { // the third has no place
			s := ask(func(context.Context) (func(), error) { <-deaf; return nil, nil })
			began := time.Now()
			if <-s.done; headgate.CodeOf(s.fail) != headgate.CodeUnavailable || time.Since(began) != sectionTime {
				t.Errorf("%v after %v", s.fail, time.Since(began))
			}
		}
		if len(a) != cap(a) {
			t.Errorf("%d are under way, want %d", len(a), cap(a))
		}
		close(deaf)
		synctest.Wait()
		kept := false
		good := ask(func(context.Context) (func(), error) { return func() { kept = true }, nil })
		if <-good.done; good.fail != nil || len(a) > 1 {
			t.Errorf("%v", good.fail)
		}
		if good.keep(); !kept {
			t.Error("the result is lost")
		}
	})
}
