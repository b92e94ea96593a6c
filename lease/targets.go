package lease

import (
	"context"
	"io"
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
//
// They are sealed with the epoch that follows the one that was revoked and a
// nonce that nobody knows: the epoch that the lease has by now may be that of
// another holder, who seals with a nonce of its own.
func (s *Service) tellTargets(ctx context.Context, l *store.Lease, end bool, until time.Time, out *Revoked) {
	if len(l.Sealed) == 0 {
		return
	}
	f := Fence{Resource: l.Resource, Epoch: l.Epoch + 1, Nonce: make([]byte, nonceSize), Holder: OwnAudience}
	s.randMu.Lock()
	_, err := io.ReadFull(s.cfg.Rand, f.Nonce)
	s.randMu.Unlock()
	if now, _, gone := s.look(ctx, l.Resource); err == nil {
		err = gone
		if gone == nil && now.Epoch == f.Epoch && now.Holder != "" {
			err = headgate.NewError(headgate.CodeConflict, "the next epoch is another holder's")
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(time.Until(until), sealTime))
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
	for k, name := range l.Sealed {
		out.Sessions = append(out.Sessions, ended[k]...)
		switch headgate.CodeOf(errs[k]) {
		case "", headgate.CodeStaleFence, headgate.CodeFenceConflict: // one or the other, it knows of something newer
		default:
			out.Untold = append(out.Untold, name)
			s.cfg.Log.Warn("a target does not know that a lease was revoked", "target", name, "resource", l.Resource, "epoch", l.Epoch, "error", errs[k])
		}
	}
}
