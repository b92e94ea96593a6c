package lease

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// gateTargets closes the gates of the targets that a lease was sealed at, and
// closes the channel when they have answered. A target that could not be
// reached is told once more when the lease has ended.
func (s *Service) gateTargets(ctx context.Context, l *store.Lease) <-chan struct{} {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealTime)
	var all sync.WaitGroup
	for _, name := range l.Sealed {
		if gate := s.cfg.Seal[name].Gate; gate != nil {
			all.Go(func() {
				if err := gate(ctx, l.Resource, l.Epoch+1); err != nil {
					s.cfg.Log.Warn("the gate of a target could not be closed", "target", name, "resource", l.Resource, "error", err)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		all.Wait()
	}()
	return done
}

// tellTargets tells the targets that a lease was sealed at of its end, and
// notes whom it could not tell and which sessions were ended.
func (s *Service) tellTargets(ctx context.Context, l *store.Lease, end bool, until time.Time, out *Revoked) {
	sessions, failed := s.tell(context.WithoutCancel(ctx), l, end, until)
	out.Sessions = append(out.Sessions, sessions...)
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		out.Untold = append(out.Untold, name)
		s.cfg.Log.Warn("a target does not know that a lease was revoked", "target", name, "resource", l.Resource, "epoch", l.Epoch, "error", failed[name])
	}
}

// tell seals the targets of a lease that has ended, and returns which sessions
// were ended, and who could not be told and why.
func (s *Service) tell(ctx context.Context, l *store.Lease, end bool, until time.Time) (sessions []headgate.BlockingSession, failed map[string]error) {
	if len(l.Sealed) == 0 {
		return nil, nil
	}
	f, err := s.endFence(ctx, l)
	ctx, cancel := context.WithTimeout(ctx, max(time.Until(until), sealTime))
	defer cancel()
	ended, errs := make([][]headgate.BlockingSession, len(l.Sealed)), make([]error, len(l.Sealed))
	var all sync.WaitGroup
	for k, name := range l.Sealed {
		all.Go(func() {
			if errs[k] = err; err == nil {
				ended[k], errs[k] = s.sealOne(ctx, name, f, end)
			}
		})
	}
	all.Wait()
	failed = map[string]error{}
	for k, name := range l.Sealed {
		sessions = append(sessions, ended[k]...)
		if errs[k] != nil && !knowsNewer(errs[k]) {
			failed[name] = errs[k]
		}
	}
	return sessions, failed
}

// endFence is what targets are sealed with when a lease has ended: the epoch that
// follows the one that ended and a nonce that nobody knows. The epoch that the
// lease has by now may be that of another holder, who seals with a nonce of its
// own.
func (s *Service) endFence(ctx context.Context, l *store.Lease) (Fence, error) {
	f := Fence{Resource: l.Resource, Epoch: l.Epoch + 1, Nonce: make([]byte, nonceSize), Holder: OwnAudience}
	s.randMu.Lock()
	_, err := io.ReadFull(s.cfg.Rand, f.Nonce)
	s.randMu.Unlock()
	if err != nil {
		return f, err
	}
	now, _, err := s.look(ctx, l.Resource)
	if headgate.CodeOf(err) == headgate.CodeNotFound { // of a store that was restored: nobody has it
		return f, nil
	}
	if err == nil && now.Epoch == f.Epoch && now.Holder != "" {
		err = headgate.NewError(headgate.CodeConflict, "the next epoch is another holder's")
	}
	return f, err
}

// knowsNewer: the target refuses an end because it has heard of something later.
func knowsNewer(err error) bool {
	code := headgate.CodeOf(err)
	return code == headgate.CodeStaleFence || code == headgate.CodeFenceConflict
}
