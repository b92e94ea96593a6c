package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// MaxSeal bounds the targets that one call seals.
const MaxSeal = 8

const (
	// sealTime is how long the targets of a call that does not wait, or has
	// waited, have at least.
	sealTime = 2 * time.Second
	// unsealTime bounds giving the leases back when a target failed.
	unsealTime = 5 * time.Second
)

// Seal tells a database of the user's, away from the leases, of a new grant.
// When it returns nil, everything that older grants did there is committed and
// visible, and nothing of theirs passes any more. It is repeated safely, and
// ends when ctx does. Errors: stale_fence when the database knows a newer
// grant, fence_conflict, and its own.
type Seal func(ctx context.Context, f Fence) error

// knowsTargets refuses names that stand for no target.
func (s *Service) knowsTargets(names []string) *headgate.Error {
	if len(names) > MaxSeal {
		return headgate.NewError(headgate.CodeInvalidArgument, "seal names %d targets, at most %d are allowed.", len(names), MaxSeal)
	}
	for _, name := range names {
		if s.cfg.Seal[name] == nil {
			return &headgate.Error{
				Code: headgate.CodeInvalidArgument, Detail: "This node has no target " + quoted(name) + " to seal.",
				Fix: "Declare it in the configuration under leases.seal, or correct the name.",
			}
		}
	}
	return nil
}

// quoted repeats what a caller sent, as far as it can be a name.
func quoted(name string) string {
	if !ValidTarget(name) {
		return "of that name"
	}
	return `"` + name + `"`
}

// sealed seals the targets with the grants, each in a transaction of its own,
// and gives the leases back when one of them cannot be sealed. That the caller
// went away is no reason to stop: it may repeat its request.
func (s *Service) sealed(ctx context.Context, p *headgate.Principal, r *Request, grants []Grant, end time.Time) ([]Grant, error) {
	begun := time.Now()
	most := max(time.Until(end), sealTime)
	for i := range grants {
		most = min(most, grants[i].ExpiresIn)
	}
	ctx = context.WithoutCancel(ctx)
	sealing, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	target, err := s.sealAll(sealing, r.Seal, grants)
	took := time.Since(begun)
	if err == nil {
		for i := range grants {
			grants[i].ExpiresIn -= took
		}
		return grants, nil
	}
	s.cfg.Log.Warn("target not sealed, the leases are given back", "target", target, "resources", r.Resources, "err", err)
	back, cancelBack := context.WithTimeout(ctx, unsealTime)
	defer cancelBack()
	e := &headgate.Error{Code: headgate.CodeSealFailed, Detail: "The target " + target + " could not be sealed: " + sealFault(err) + ".", Err: err}
	for i := range grants {
		if gone := s.Release(back, p, "", grants[i].Token); gone != nil && headgate.CodeOf(gone) != headgate.CodeLeaseLost {
			e.Outcome, e.Err = headgate.Unknown, errors.Join(err, gone)
			e.Detail += " The lease could not be given back either, and runs out."
			break
		}
	}
	return nil, e
}

// sealFault says what may be told of a target's failure: its own words may
// hold what a client must not see.
func sealFault(err error) string {
	switch code := headgate.CodeOf(err); {
	case code == headgate.CodeStaleFence:
		return "it knows a newer grant of the resource than this node gives"
	case code == headgate.CodeFenceConflict:
		return "it knows another grant with the same epoch"
	case code == headgate.CodeUnavailable, errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time, or transactions under an older grant are in the way"
	case headgate.AsError(err) != nil:
		return string(code)
	}
	return "it failed, see the log of the node"
}

// sealAll seals all targets with all grants, targets beside each other, and
// returns the first one that failed.
func (s *Service) sealAll(ctx context.Context, names []string, grants []Grant) (target string, err error) {
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for k, name := range names {
		all.Go(func() {
			for i := range grants {
				f, err := s.Read(ctx, grants[i].Token, "")
				if err == nil {
					err = s.cfg.Seal[name](ctx, f)
				}
				if err != nil {
					errs[k] = err
					return
				}
			}
		})
	}
	all.Wait()
	for k, err := range errs {
		if err != nil {
			return names[k], err
		}
	}
	return "", nil
}
