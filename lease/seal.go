package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
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

// Sealing is one grant that a target is told of.
type Sealing struct {
	Fence
	// Token says the same, signed for the target's audience alone; empty for a
	// target without one.
	Token string
	// End: sessions of the target's database that are in the way are ended,
	// where that can be done.
	End bool
}

// Target is a place of the user's, away from the leases, that refuses
// superseded workers by itself: a database, or a service.
type Target struct {
	// Audience is whom tokens have to be meant for there; empty for a database,
	// which compares nonces. Grants that are sealed at the target are meant for
	// it, too.
	Audience string
	// Seal tells of a new grant. When it returns nil, everything that older
	// grants did there is committed and visible, and nothing of theirs passes
	// any more. It is repeated safely, and ends when ctx does. It returns the
	// sessions that it ended. Errors: stale_fence when the target knows a newer
	// grant, fence_conflict, and its own.
	Seal func(ctx context.Context, s Sealing) (ended []headgate.BlockingSession, err error)
	// Gate refuses what grants below the epoch begin from now on, and waits for
	// nothing. Nil where there is none.
	Gate func(ctx context.Context, resource string, below int64) error
}

// knowsTargets refuses names that stand for no target.
func (s *Service) knowsTargets(names []string) *headgate.Error {
	if len(names) > MaxSeal {
		return headgate.NewError(headgate.CodeInvalidArgument, "seal names %d targets, at most %d are allowed.", len(names), MaxSeal)
	}
	for _, name := range names {
		if s.cfg.Seal[name].Seal == nil {
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

// sealed seals the targets with the grants, each in a transaction of its own.
// When one of them cannot be sealed, or when one of the grants ended meanwhile,
// leases that this call was granted are given back; those of a call that repeats
// an earlier one are kept: somebody may work under them. That the caller went
// away is no reason to stop: it may repeat its request.
func (s *Service) sealed(ctx context.Context, p *headgate.Principal, r *Request, grants []Grant, end time.Time) ([]Grant, error) {
	if s.endings.whole(grants) {
		return grants, nil
	}
	ours := func(bool) bool { return !grants[0].Again }
	if r.RequestID != "" {
		ours = s.sealing.join(requestKey(p, r), !grants[0].Again)
	}
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
	e := &headgate.Error{Code: headgate.CodeSealFailed, Detail: "The target " + target + " could not be sealed: " + sealFault(err) + ".", Err: err}
	if err == nil {
		e = s.stand(ctx, r, grants)
	}
	if e == nil {
		for i := range grants {
			g := &grants[i]
			g.ExpiresIn -= took
			s.watched(&store.Lease{Resource: g.Resource, Epoch: g.Epoch, Sealed: r.Seal}, g.ExpiresIn+g.TTL, true)
		}
	}
	switch ours := ours(e == nil); {
	case e == nil:
		return grants, nil
	case !ours && e.Code != headgate.CodeSealFailed: // it has ended, or is about to
		return nil, e
	case !ours:
		s.cfg.Log.Warn("targets not sealed for a call that repeats another, the leases are kept", "target", target, "resources", r.Resources, "err", e)
		e.Outcome = headgate.Unknown
		e.Detail += " Another call of the same request has the lease, or will say what became of it; else it runs out."
		return nil, e
	}
	s.cfg.Log.Warn("targets not sealed, the leases are given back", "target", target, "resources", r.Resources, "err", e)
	return nil, s.giveBack(ctx, p, grants, e)
}

// giveBack releases grants that nobody was told of, and returns why.
func (s *Service) giveBack(ctx context.Context, p *headgate.Principal, grants []Grant, why *headgate.Error) *headgate.Error {
	ctx, cancel := context.WithTimeout(ctx, unsealTime)
	defer cancel()
	for i := range grants {
		if gone := s.Release(ctx, p, "", grants[i].Token); gone != nil && headgate.CodeOf(gone) != headgate.CodeLeaseLost {
			why.Outcome, why.Err = headgate.Unknown, errors.Join(why.Err, gone)
			why.Detail += " The lease could not be given back either, and runs out."
			break
		}
	}
	return why
}

// stand refuses grants of which one ended while they were sealed, and tells the
// targets, which may have heard of it only afterwards, that it did.
func (s *Service) stand(ctx context.Context, r *Request, grants []Grant) *headgate.Error {
	var first *headgate.Error
	for i := range grants {
		f, err := s.Read(ctx, grants[i].Token, "")
		if err == nil {
			err = s.Current(ctx, &f)
		}
		if err == nil {
			continue
		}
		said := &headgate.Error{Code: headgate.CodeOf(err), Err: err, Detail: "The lease on " + grants[i].Resource + " ended while its targets were sealed."}
		switch said.Code {
		case headgate.CodeStaleFence, headgate.CodeLeaseLost:
			said.Code = headgate.CodeLeaseLost
			gone := store.Lease{Resource: f.Resource, Epoch: f.Epoch, Sealed: r.Seal}
			s.tellTargets(ctx, &gone, false, time.Now().Add(sealTime), &Revoked{})
		case headgate.CodeFenceConflict, headgate.CodeLeaseClosing, headgate.CodeLeaseExpired:
		default:
			said.Code, said.Detail = headgate.CodeSealFailed, "It could not be read whether the lease on "+grants[i].Resource+" stands after its targets were sealed."
		}
		if first == nil {
			first = said
		}
	}
	return first
}

// sealings are the calls that seal, by request: one of them that fails must not
// give back what another got, or is about to get.
type sealings struct {
	mu  sync.Mutex
	all map[string]*sealingOf
}

type sealingOf struct {
	calls int
	first bool // one of them was granted the leases, rather than repeats another
	done  bool // one of them sealed everything
}

// join returns what a call says at its end: whether it sealed everything. The
// answer is whether the grants are its to give back: it was the last, none of
// those at work with it sealed everything, and the one that was granted the
// leases is among them. Without that one somebody may have been answered with
// them before.
func (a *sealings) join(request string, first bool) (leave func(done bool) (ours bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	here := a.all[request]
	if here == nil {
		here = &sealingOf{}
		if a.all == nil {
			a.all = map[string]*sealingOf{}
		}
		a.all[request] = here
	}
	here.calls++
	here.first = here.first || first
	return func(done bool) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		here.done = here.done || done
		if here.calls--; here.calls == 0 {
			delete(a.all, request)
		}
		return here.calls == 0 && here.first && !here.done
	}
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
		return "it cannot be reached, gave no whole answer in time, or transactions under an older grant are in the way"
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
					_, err = s.sealOne(ctx, name, f, false)
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

// sealOne seals one target with one grant. The token that goes there is good
// for nobody else.
func (s *Service) sealOne(ctx context.Context, name string, f Fence, end bool) ([]headgate.BlockingSession, error) {
	target, known := s.cfg.Seal[name]
	if !known {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "the target is not configured any more")
	}
	said := Sealing{Fence: f, End: end}
	if target.Audience != "" {
		ring := s.ring.Load()
		key := ring.find(f.KeyID)
		if key == nil {
			key = ring.signer(time.Now())
		}
		said.Audience, said.Issuer, said.KeyID = []string{target.Audience}, ring.issuer, key.id
		token, err := sign(&said.Fence, key.private)
		if err != nil {
			return nil, headgate.NewError(headgate.CodeInternal, "a lease token cannot be written: %v", err)
		}
		said.Token = token
	}
	ended, err := target.Seal(ctx, said)
	for i := range ended {
		ended[i].Target = name
	}
	return ended, err
}

// audience is whom the tokens of a request are meant for: whom it names, and
// the targets that it seals.
func (s *Service) audience(r *Request) ([]string, *headgate.Error) {
	all := slices.Clone(r.Audience)
	for _, name := range r.Seal {
		if a := s.cfg.Seal[name].Audience; a != "" {
			all = append(all, a)
		}
	}
	all = slices.Compact(slices.Sorted(slices.Values(all)))
	return all, checkAudience(all)
}
