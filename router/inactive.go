package router

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// minInactive is longer than a consumer needs for its deliveries between two
// long polls.
const minInactive = time.Minute

// active counts a call that pulls.
func (s *sub) active(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulling += n
	s.pulled = s.r.now()
}

// abandoned reports whether the subscription is temporary and nobody pulled,
// nor holds a claim, for too long. One that the configuration declares would
// come back at the next start: it stays.
func (s *sub) abandoned(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan.inactive > 0 && s.managed != "config" && s.pulling == 0 && len(s.claims.byID) == 0 && now.Sub(s.pulled) >= s.plan.inactive
}

// RemoveInactive removes the temporary subscriptions that nobody uses any
// more. After a start their time begins anew. Errors: those of [Router.Delete].
func (r *Router) RemoveInactive(ctx context.Context) error {
	r.mu.Lock()
	var names []string
	for name, s := range r.subs {
		if s.abandoned(r.now()) {
			names = append(names, name)
		}
	}
	r.mu.Unlock()
	for _, name := range names {
		if err := r.Delete(ctx, name); err != nil && headgate.CodeOf(err) != headgate.CodeNotFound {
			return err
		}
		r.log.Info("a temporary subscription that nobody pulls from is removed", "subscription", name)
	}
	return nil
}
