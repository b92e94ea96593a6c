package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// ofNode is the request of leases that last no longer than the node that took
// them (see Request.OfNode). No principal's request id begins with a space.
const ofNode = " node"

// leftPage is how many leases are read, and ended at once.
const leftPage = 64

// EndLeft ends the leases that an earlier life of this node took with
// Request.OfNode, and returns how many. It is for the start after a crash,
// when nobody can hold such a lease any more: what their workers still write
// is refused from now on. Those that could not be ended run out; the error is
// that of one of them.
func (s *Service) EndLeft(ctx context.Context) (ended int, err error) {
	after := ""
	for {
		var rows []store.Lease
		listed := s.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
			now, err := tx.Leases.Now(ctx)
			if err != nil {
				return err
			}
			rows, err = tx.Leases.List(ctx, store.LeaseFilter{After: after, HeldAt: now, Limit: leftPage})
			return err
		})
		if listed != nil {
			return ended, errors.Join(err, listed)
		}
		errs := make([]error, len(rows))
		var wg sync.WaitGroup
		for i := range rows {
			if rows[i].Request == ofNode {
				ended++
				wg.Go(func() { errs[i] = s.endLeft(ctx, &rows[i]) })
			}
		}
		wg.Wait()
		for _, one := range errs {
			if one != nil {
				ended--
				err = one
			}
		}
		if len(rows) < leftPage {
			return ended, err
		}
		after = rows[len(rows)-1].Resource
	}
}

// endLeft ends one lease, unless another has it by now.
func (s *Service) endLeft(ctx context.Context, left *store.Lease) error {
	var freed store.Lease
	err := s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		l, err := tx.Leases.Get(ctx, left.Resource)
		if err != nil {
			return err
		}
		if l.Epoch != left.Epoch {
			freed = l
			return nil
		}
		freed, err = s.end(ctx, tx, &l)
		return err
	})
	if err != nil {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: fmt.Sprintf("the lease on %q was not ended, it runs out", left.Resource), Err: err}
	}
	s.changed(&freed)
	return nil
}
