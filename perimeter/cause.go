package perimeter

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
)

// MaxParents bounds the causes of one submission, tokens included.
const MaxParents = 16

// cause judges the causes and reserves gas.
func (r *run) cause(ctx context.Context, i int) *headgate.Error {
	if err := ctx.Err(); err != nil {
		return canceled(err)
	}
	r.verify()
	if r.causeErr != nil {
		return r.causeErr
	}
	e, t := r.results[i].Event, r.entries[i].typ
	gas, err := r.p.cfg.Causal.Reserve(ctx, causal.Request{
		Principal: r.s.Principal, Causes: r.causes, Type: e.Type, EventID: e.ID, Origin: r.s.Origin, Now: r.clock,
		TTL: t.TTL, Gas: t.Gas, Breadth: t.Breadth, Repeats: t.Repeats, Origins: t.Origins,
	})
	if err != nil {
		return errorOf(err)
	}
	r.entries[i].gas = gas
	return nil
}

// verify checks the tokens once for the whole submission. A bad one refuses
// every item: none of them can say what caused it.
func (r *run) verify() {
	if r.verified {
		return
	}
	r.verified = true
	r.causes = r.s.Causes
	if len(r.s.Tokens) == 0 && len(r.s.Causes) <= MaxParents {
		return
	}
	if n := len(r.s.Tokens) + len(r.s.Causes); n > MaxParents {
		r.causeErr = headgate.NewError(headgate.CodeInvalidArgument, "there are %d causes; at most %d are allowed", n, MaxParents)
		return
	}
	r.causes = slices.Clone(r.s.Causes)
	for k, token := range r.s.Tokens {
		if slices.Contains(r.s.Tokens[:k], token) {
			continue // the same delivery again
		}
		c, err := r.verifyToken(token)
		if err != nil {
			r.causeErr = errorOf(err)
			r.ignored(string(r.causeErr.Code))
			return
		}
		r.causes = append(r.causes, c)
	}
}

func (r *run) verifyToken(token string) (*causal.Cause, error) {
	if r.s.AsOf.IsZero() {
		return r.p.cfg.Causal.Verify(token, r.s.Principal.Name)
	}
	return r.p.cfg.Causal.VerifyAt(token, r.s.Principal.Name, r.s.AsOf)
}

// parent returns the direct cause's event id and root, as far as the run got
// to know them.
func (r *run) parent() (id, root string) {
	causes := r.causes
	if !r.verified {
		causes = r.s.Causes
	}
	if len(causes) == 0 || causes[0] == nil {
		return "", ""
	}
	return causes[0].EventID, causes[0].Root
}
