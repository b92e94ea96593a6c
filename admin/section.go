package admin

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/gateway"
)

const (
	// sectionTime bounds what one part of the diagnosis asks others: a diagnosis
	// is wanted most when somebody does not answer.
	sectionTime = 5 * time.Second
	// balanceTime is for the part that reads what is pending.
	balanceTime = 20 * time.Second
	// asksAtOnce bounds the questions under way, also of callers that have their
	// answer: what waits for a lock does not hear that its time is over.
	asksAtOnce = 32
)

// section is one part of the diagnosis, under way.
type section struct {
	what string // cannot be done, for the finding
	fail error
	done chan struct{}
	keep func() // puts the result into the diagnosis
}

// asks bounds the questions under way.
type asks chan struct{}

// section begins to ask for a part; f returns what puts the result into the
// diagnosis. It ends within d whatever f does.
func (a asks) section(ctx context.Context, what string, d time.Duration, f func(context.Context) (func(), error)) *section {
	s := &section{what: what, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		select {
		case a <- struct{}{}:
		case <-ctx.Done():
			s.fail = late(d, context.Cause(ctx))
			return
		}
		type result struct {
			keep func()
			err  error
		}
		got := make(chan result, 1)
		go func() {
			defer func() { <-a }()
			keep, err := f(ctx)
			got <- result{keep, err}
		}()
		select {
		case r := <-got:
			if s.keep, s.fail = r.keep, r.err; r.err != nil && ctx.Err() != nil {
				s.fail = late(d, r.err)
			}
		case <-ctx.Done():
			s.fail = late(d, context.Cause(ctx))
		}
	}()
	return s
}

// late says that a part took too long.
func late(d time.Duration, cause error) error {
	return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "no answer within " + d.String(), Err: cause}
}

// put waits for a part and puts it into the diagnosis: what it found, or that it
// could not look.
func (s *section) put(c *gateway.Call, out *api.Doctor) {
	<-s.done
	if s.fail == nil {
		s.keep()
		return
	}
	e := c.Public(s.fail)
	f := api.Finding{Severity: "error", What: s.what + ": " + e.Detail, Fix: e.Info().Fix}
	if e.Detail == "" {
		f.What = s.what + ": " + e.Info().Title
	}
	out.Problems = append(out.Problems, f)
}
