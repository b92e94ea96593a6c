package lease

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	// askedFor is how long the store remembers a request id after it was
	// granted, and after a row forgot it, unless more than askedLimit others
	// came since.
	askedFor   = time.Hour
	askedLimit = 1 << 16
	// forgetAtOnce bounds how many are deleted in one transaction.
	forgetAtOnce = 1000
)

// digestSize is how long the digest of a request is, in its key.
const digestSize = 16

// again: the request was granted before.
func again(l *store.Lease, p *headgate.Principal, r *Request) bool {
	return r.RequestID != "" && l.Request == requestKey(p, r)
}

// reused: the request id was used for another request before.
func reused(l *store.Lease, p *headgate.Principal, r *Request) bool {
	if r.RequestID == "" {
		return false
	}
	key := requestKey(p, r)
	return l.Request != key && len(l.Request) == len(key) && l.Request[:len(key)-digestSize] == key[:len(key)-digestSize]
}

// requestKey keeps the request ids of principals apart, and what was asked for
// under one id: all but how long to wait.
func requestKey(p *headgate.Principal, r *Request) string {
	h := sha256.New()
	lists := [][]string{r.Resources, {r.Worker, r.TTL.String(), r.MaxHold.String()}, r.Audience}
	if len(r.Seal) > 0 { // only then, since stored keys of others have none
		lists = append(lists, r.Seal)
	}
	for _, list := range lists {
		for _, s := range append([]string{strconv.Itoa(len(list))}, list...) {
			fmt.Fprintf(h, "%d:%s", len(s), s) // a hash takes everything
		}
	}
	return p.Name + " " + r.RequestID + " " + encoding.EncodeToString(h.Sum(nil))[:digestSize]
}

// splitKey parts the key of a request into what names it and what was asked
// for; nil for what is no principal's.
func splitKey(key string) (id, asked []byte) {
	if len(key) <= digestSize || key[0] == ' ' {
		return nil, nil
	}
	sum := sha256.Sum256([]byte(key[:len(key)-digestSize]))
	return sum[:16], []byte(key[len(key)-digestSize:])
}

// remember keeps the request, and those that the rows are about to forget:
// what a row says outlives it here.
func remember(ctx context.Context, tx *store.Tx, p *headgate.Principal, r *Request, old []store.Lease, now time.Time) error {
	keys := make([]string, 0, len(old)+1)
	for i := range old {
		keys = append(keys, old[i].Request)
	}
	if r.RequestID != "" {
		keys = append(keys, requestKey(p, r))
	}
	done := ""
	for _, key := range keys {
		id, asked := splitKey(key)
		if id == nil || key == done {
			continue
		}
		if err := tx.Leases.Remember(ctx, id, asked, now); err != nil {
			return err
		}
		done = key
	}
	return nil
}

// unasked refuses a request whose id was granted before, be it for the same:
// that grant has ended, unless a row says otherwise.
func unasked(ctx context.Context, tx *store.Tx, p *headgate.Principal, r *Request) error {
	if r.RequestID == "" {
		return nil
	}
	id, asked := splitKey(requestKey(p, r))
	known, err := tx.Leases.Remembered(ctx, id)
	switch {
	case err != nil:
		return err
	case known == nil:
		return nil
	case string(known) == string(asked):
		return errEnded()
	}
	return errOther()
}

// askedBefore refuses a request id that was granted something else, or whose
// grant has ended although others have the resources by now. It spares such a
// call to wait for them. Mine is true for a request that was granted and whose
// grant stands: who repeats it waits for nobody, least of all behind those who
// wait for its own lease.
func (s *Service) askedBefore(ctx context.Context, p *headgate.Principal, r *Request) (mine bool, err error) {
	if r.RequestID == "" {
		return false, nil
	}
	err = s.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		refusal := unasked(ctx, tx, p, r)
		if refusal == nil {
			return nil
		}
		for _, resource := range r.Resources {
			l, err := tx.Leases.Get(ctx, resource)
			if err != nil && headgate.CodeOf(err) != headgate.CodeNotFound {
				return err
			}
			if !again(&l, p, r) { // rows know best
				return refusal
			}
		}
		mine = true
		return nil
	})
	return mine && err == nil, err
}

// forget lets the store forget request ids that are old, or too many.
func (s *Service) forget(ctx context.Context) error {
	for {
		n := 0
		err := s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
			now, err := tx.Leases.Now(ctx)
			if err != nil {
				return err
			}
			n, err = tx.Leases.Forget(ctx, now.Add(-askedFor), askedLimit, forgetAtOnce)
			return err
		})
		if err != nil || n < forgetAtOnce {
			return err
		}
	}
}

func errOther() *headgate.Error {
	return &headgate.Error{
		Code: headgate.CodeConflict, Detail: "The request id was used for another request.",
		Fix: "Repeat the very same request, or acquire with a new request id.",
	}
}

func errEnded() *headgate.Error {
	return &headgate.Error{
		Code: headgate.CodeConflict, Detail: "The grant of this request id has ended.", Fix: "Acquire with a new request id.",
	}
}
