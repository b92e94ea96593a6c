package lease

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/resource"
	"github.com/headgate/headgate/lease/hold"
)

// ReservedPrefix starts the resources of Headgate's own roles. No principal
// may lease them.
const ReservedPrefix = resource.Reserved

// keeper grants leases to one principal of this process.
type keeper struct {
	s        *Service
	p        *headgate.Principal
	internal bool
}

// Keeper returns a source of leases for package hold, in the name of a
// principal.
func (s *Service) Keeper(p *headgate.Principal) hold.Keeper { return &keeper{s: s, p: p} }

// NodeKeeper returns a source of leases on Headgate's own roles, below
// [ReservedPrefix].
func (s *Service) NodeKeeper() hold.Keeper {
	p := &headgate.Principal{Name: "headgate", Kind: headgate.KindSystem, Lease: []string{ReservedPrefix + "*"}}
	return &keeper{s: s, p: p, internal: true}
}

// AcquireLease implements hold.Keeper.
func (k *keeper) AcquireLease(ctx context.Context, resource string, w hold.Want) (hold.Granted, error) {
	g, err := k.s.Acquire(ctx, k.p, Request{
		Resources: []string{resource}, Worker: w.Worker, TTL: w.TTL, Wait: w.Wait, MaxHold: w.MaxHold, RequestID: w.RequestID,
		Audience: w.Audience, Seal: w.Seal, internal: k.internal,
	})
	if err != nil {
		return hold.Granted{}, err
	}
	return hold.Granted{Resource: g[0].Resource, Epoch: g[0].Epoch, Token: g[0].Token, ExpiresIn: g[0].ExpiresIn}, nil
}

// RenewLease implements hold.Keeper.
func (k *keeper) RenewLease(ctx context.Context, resource, token string, ttl time.Duration) (hold.Granted, error) {
	n, err := k.s.Renew(ctx, k.p, resource, token, ttl)
	return hold.Granted{Resource: n.Resource, Epoch: n.Epoch, Token: n.Token, ExpiresIn: n.ExpiresIn}, err
}

// ReleaseLease implements hold.Keeper.
func (k *keeper) ReleaseLease(ctx context.Context, resource, token string) error {
	return k.s.Release(ctx, k.p, resource, token)
}
