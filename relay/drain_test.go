package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// ending is a source whose last transaction, a heartbeat, is read when the relay
// was told to end: steps are what it returns, and end is called before the second.
type ending struct {
	Session
	steps  [][]Change
	end    func()
	proven int
}

func (e *ending) Open(context.Context) (Session, error) { return e, nil }

func (e *ending) Receive(ctx context.Context) ([]Change, error) {
	synctest.Wait() // whoever was woken is at rest again
	if len(e.steps) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	next := e.steps[0]
	e.steps = e.steps[1:]
	if len(e.steps) == 1 {
		e.end()
	}
	return next, nil
}

func (e *ending) Confirm(Position)                  {}
func (e *ending) Prove(context.Context, Mark) error { e.proven++; return nil }
func (e *ending) Lead() error                       { return nil }
func (e *ending) Close(context.Context) error       { return nil }

// An orderly stop does not wait for a heartbeat that nobody proves any more.
func TestStopProvesWhatWasReadLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		src := &ending{steps: [][]Change{{{Kind: Begin}}, {{Kind: Beat, Mark: Mark{Number: 1}}}, {{Kind: Commit, Position: 1}}}, end: cancel}
		r, err := New(Config{
			Name: "x", Source: src, Admit: struct{ Admitter }{}, Keep: struct{ Keeper }{},
			Principal: func(string) (*headgate.Principal, error) { return nil, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second || src.proven != 1 {
			t.Errorf("the stop took %v; %d heartbeats were proven", took, src.proven)
		}
	})
}
