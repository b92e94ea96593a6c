package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/hold"
	"github.com/headgate/headgate/store"
)

var resources = []string{"r/0", "r/1", "r/2", "r/3"}

// client is a holder on a host of its own, with one goroutine.
type client struct {
	*actor
	host   int
	p      *headgate.Principal
	tokens []string // that it was ever given, the latest last
	last   *lease.Request
	asked  int
	frozen bool // stopped from outside
}

func principal(name string) *headgate.Principal {
	return &headgate.Principal{Name: name, Kind: headgate.KindAgent, Lease: []string{"*"}}
}

// calls sends a request to a node.
func calls[T any](ctx context.Context, a *actor, c *client, n *node, most time.Duration, op string, fn func(context.Context, *actor, *life) (T, error)) (T, error) {
	return call(ctx, a, c.host, n, most, op, func(ctx context.Context, a *actor) (T, error) { return fn(ctx, a, n.life) })
}

// pause is what the host does to a holder now and then.
func (c *client) pause() {
	for c.frozen {
		c.some(20*time.Millisecond, 60*time.Millisecond)
	}
}

// run does random things until the workload ends.
func (c *client) run(ctx context.Context) {
	steps := []func(context.Context){
		c.acquire, c.acquire, c.acquire, c.again, c.renew, c.release, c.revoke, c.publish, c.publish, c.publish, c.writeUsers, c.writeUsers,
		c.finish, c.verify, c.look, c.watch,
	}
	for !c.w.stopped.Load() {
		c.some(0, 40*time.Millisecond)
		c.pause()
		steps[c.rng.IntN(len(steps))](ctx)
	}
}

// request draws one.
func (c *client) request() lease.Request {
	r := lease.Request{
		Resources: []string{pick(c.actor, resources...)}, TTL: pick[time.Duration](c.actor, 120, 240, 480, 960, 2400) * time.Millisecond,
		Wait: pick[time.Duration](c.actor, 0, 0, 50, 200, 1000) * time.Millisecond, Audience: []string{"data"}, Worker: fmt.Sprint("w", c.host),
	}
	if c.chance(0.25) {
		n := 2 + c.rng.IntN(2)
		r.Resources = slices.Clone(resources)
		c.rng.Shuffle(len(r.Resources), func(i, j int) { r.Resources[i], r.Resources[j] = r.Resources[j], r.Resources[i] })
		r.Resources = r.Resources[:n]
	}
	if c.chance(0.5) {
		c.asked++
		r.RequestID = fmt.Sprint(c.host, "-", c.asked)
	}
	if c.chance(0.4) {
		r.Seal = []string{"data", "more"}[:1+c.rng.IntN(2)]
	}
	if c.chance(0.1) {
		r.MaxHold = 600 * time.Millisecond
	}
	return r
}

func (c *client) acquire(ctx context.Context) {
	r := c.request()
	c.ask(ctx, c.actor, r)
}

// again repeats the last request under its id, whether it was answered or not.
func (c *client) again(ctx context.Context) {
	if c.last != nil {
		c.ask(ctx, c.actor, *c.last)
	}
}

func (c *client) ask(ctx context.Context, a *actor, r lease.Request) ([]lease.Grant, error) {
	if r.RequestID != "" {
		copied := r
		c.last = &copied
	}
	patience := r.Wait + a.between(100*time.Millisecond, 3*time.Second)
	grants, err := calls(ctx, a, c, pick(a, a.w.nodes...), patience, "acquire", func(ctx context.Context, d *actor, l *life) ([]lease.Grant, error) {
		r, original := r, r
		r.Resources = slices.Clone(r.Resources)
		if d.w.broken == requestIDIgnored && r.RequestID != "" {
			r.RequestID = fmt.Sprint(r.RequestID, "/", d.id)
		}
		before := d.w.judge.holds(c.p.Name, &original)
		grants, err := l.s.Acquire(ctx, c.p, r)
		d.wait(0)
		if !l.dead {
			d.w.judge.granted(d, l, c.p.Name, &original, before, grants, err)
		}
		return grants, err
	})
	for i := range grants {
		c.keep(grants[i].Token)
	}
	return grants, err
}

func (c *client) keep(token string) {
	if c.tokens = append(c.tokens, token); len(c.tokens) > 24 {
		c.tokens = c.tokens[1:]
	}
}

// token draws one of those that were given, mostly a late one.
func (c *client) token() string {
	n := len(c.tokens)
	if n == 0 {
		return ""
	}
	if c.chance(0.6) {
		return c.tokens[n-1]
	}
	return c.tokens[c.rng.IntN(n)]
}

// under calls a node with a token, and judges the answer.
func under[T any](ctx context.Context, a *actor, c *client, op, token string, fn func(context.Context, *actor, *life) (T, error)) (T, error) {
	return calls(ctx, a, c, pick(a, a.w.nodes...), a.between(100*time.Millisecond, 3*time.Second), op, func(ctx context.Context, d *actor, l *life) (T, error) {
		p := d.w.judge.begins(token)
		v, err := fn(ctx, d, l)
		d.wait(0)
		if !l.dead {
			d.w.judge.ends(d, p, err)
		}
		return v, err
	})
}

func (c *client) renew(ctx context.Context) {
	token := c.token()
	if token == "" {
		return
	}
	if n, err := c.renewed(ctx, c.actor, token, 0); err == nil {
		c.keep(n.Token)
	}
}

func (c *client) renewed(ctx context.Context, a *actor, token string, ttl time.Duration) (lease.Renewed, error) {
	return under(ctx, a, c, "renew", token, func(ctx context.Context, d *actor, l *life) (lease.Renewed, error) {
		n, err := l.s.Renew(ctx, c.p, "", token, ttl)
		if d.w.broken == renewalRevives && headgate.CodeOf(err) == headgate.CodeLeaseLost {
			return revive(ctx, d, l, token)
		}
		return n, err
	})
}

func (c *client) release(ctx context.Context) {
	if token := c.token(); token != "" {
		_ = c.released(ctx, c.actor, token)
	}
}

func (c *client) released(ctx context.Context, a *actor, token string) error {
	_, err := under(ctx, a, c, "release", token, func(ctx context.Context, d *actor, l *life) (none struct{}, err error) {
		if err = l.s.Release(ctx, c.p, "", token); err == nil && !l.dead {
			f := d.w.judge.begins(token).f
			d.w.judge.ended(d, f.Resource, f.Epoch)
		}
		return none, err
	})
	return err
}

func (c *client) revoke(ctx context.Context) {
	resource := pick(c.actor, resources...)
	r := lease.Revocation{Terminate: c.chance(0.5), Deadline: pick[time.Duration](c.actor, 50, 500, 2000) * time.Millisecond}
	_, _ = calls(ctx, c.actor, c, pick(c.actor, c.w.nodes...), r.Deadline+c.between(100*time.Millisecond, 3*time.Second), "revoke",
		func(ctx context.Context, d *actor, l *life) (lease.Revoked, error) {
			before := d.w.judge.epoch(resource)
			got, err := l.s.Revoke(ctx, resource, r)
			d.wait(0)
			d.w.judge.counts["revoke "+string(headgate.CodeOf(err))]++
			if err == nil && !l.dead {
				d.w.judge.ended(d, resource, max(before, got.Epoch-1))
			}
			return got, err
		})
}

// publish commits an event under the service's own guard.
func (c *client) publish(ctx context.Context) {
	if token := c.token(); token != "" {
		_ = c.published(ctx, c.actor, token)
	}
}

func (c *client) published(ctx context.Context, a *actor, token string) error {
	c.asked++
	id := fmt.Sprint(c.host, "-", c.asked)
	_, err := under(ctx, a, c, "publish", token, func(ctx context.Context, d *actor, l *life) (none struct{}, err error) {
		f, err := l.s.Read(ctx, token, "")
		if err != nil {
			return none, err
		}
		if d.w.broken == "" {
			if err := l.s.Superseded(&f); err != nil {
				return none, err
			}
		}
		if err := guarded(ctx, d, l, &f, id); err != nil {
			return none, err
		}
		if !l.dead {
			d.w.judge.events[eventOf("publish", &f, id)] = true
		}
		return none, nil
	})
	return err
}

func (c *client) finish(ctx context.Context) {
	token := c.token()
	if token == "" {
		return
	}
	c.asked++
	id := fmt.Sprint(c.host, "-", c.asked)
	_, _ = under(ctx, c.actor, c, "finish", token, func(ctx context.Context, d *actor, l *life) (none struct{}, err error) {
		f, err := l.s.Read(ctx, token, "")
		if err != nil {
			return none, err
		}
		var freed store.Lease
		err = (&session{database: d.w.db, life: l}).Update(ctx, func(ctx context.Context, tx *store.Tx) error {
			if freed, err = l.s.Finish(ctx, tx, &f); err != nil {
				return err
			}
			return tx.Outbox.Append(ctx, []store.OutboxRow{{Event: []byte(eventOf("finish", &f, id))}})
		})
		if err == nil && !l.dead {
			d.w.judge.events[eventOf("finish", &f, id)] = true
			d.w.judge.ended(d, f.Resource, f.Epoch)
			l.s.Ended(&freed)
		}
		return none, err
	})
}

func (c *client) writeUsers(ctx context.Context) {
	if token := c.token(); token != "" {
		_ = c.wroteUsers(ctx, c.actor, token)
	}
}

func (c *client) wroteUsers(ctx context.Context, a *actor, token string) error {
	c.asked++
	id := fmt.Sprint(c.host, "-", c.asked)
	_, err := call(ctx, a, c.host, c.w.data, time.Second, "users' write", func(ctx context.Context, d *actor) (struct{}, error) {
		return d.w.data.write(ctx, d, token, id)
	})
	return err
}

func (c *client) verify(ctx context.Context) {
	token := c.token()
	if token == "" {
		return
	}
	_, _ = under(ctx, c.actor, c, "verify", token, func(ctx context.Context, d *actor, l *life) (lease.Fence, error) {
		f, _, err := l.s.Verify(ctx, token, "data")
		return f, err
	})
}

func (c *client) look(ctx context.Context) {
	resource := pick(c.actor, resources...)
	_, _ = calls(ctx, c.actor, c, pick(c.actor, c.w.nodes...), time.Second, "look", func(ctx context.Context, d *actor, l *life) (lease.State, error) {
		before := d.w.judge.epoch(resource)
		if d.w.rotates() && d.w.rotations < 2 && d.chance(0.2) {
			d.w.rotations++ // more would drop the key that signs
			if err := l.s.Rotate(ctx, true); err != nil {
				return lease.State{}, err
			}
		}
		st, err := l.s.Get(ctx, resource)
		if err == nil && !l.dead && st.Epoch < before {
			d.w.judge.fault(d, "%s is shown although %d was current before", at(resource, st.Epoch), before)
		}
		return st, err
	})
}

var errSeenEnough = errors.New("seen enough")

func (c *client) watch(ctx context.Context) {
	resource := pick(c.actor, resources...)
	_, _ = calls(ctx, c.actor, c, pick(c.actor, c.w.nodes...), c.between(200*time.Millisecond, time.Second), "watch", func(ctx context.Context, d *actor, l *life) (none struct{}, err error) {
		last, n := int64(0), 0
		return none, l.s.Watch(ctx, resource, func(st lease.State) error {
			defer d.w.beat.Add(1)
			if !l.dead && st.Epoch < last {
				d.w.judge.fault(d, "a watcher of %s saw %d after %d", resource, st.Epoch, last)
			}
			last = st.Epoch
			if n++; n == 4 {
				return errSeenEnough
			}
			return nil
		})
	})
}

// work is a holder that works under leases of package hold.
func (c *client) work(ctx context.Context, renewals *actor) {
	k := keeper{c, renewals}
	for !c.w.stopped.Load() {
		c.some(0, 100*time.Millisecond)
		c.pause()
		r := c.request()
		c.asked++
		// Half a span of margin: whatever ends by the lease's time does so at an
		// instant that is no actor's.
		o := &hold.Opts{Margin: r.TTL/10 + span/2, Want: hold.Want{TTL: r.TTL, Wait: r.Wait, MaxHold: r.MaxHold, Worker: r.Worker, Audience: r.Audience, Seal: r.Seal, RequestID: fmt.Sprint("hold-", c.host, "-", c.asked)}, Random: func() float64 { return 0.5 }}
		held, l, err := hold.Acquire(ctx, k, r.Resources[0], o)
		c.wait(0)
		if err != nil {
			continue
		}
		c.w.judge.counts["held"]++
		for range 2 + c.rng.IntN(6) {
			if c.chance(0.5) {
				_ = c.published(held, c.actor, l.Token())
			} else {
				_ = c.wroteUsers(held, c.actor, l.Token())
			}
			c.some(0, 80*time.Millisecond)
			c.pause()
			if held.Err() != nil {
				// A zombie tries all the same.
				c.w.judge.counts["lost while working"]++
				_ = c.published(ctx, c.actor, l.Token())
				_ = c.wroteUsers(ctx, c.actor, l.Token())
				break
			}
		}
		_ = l.Release(ctx)
		c.wait(0)
	}
}

// keeper is the way of package hold to the nodes.
type keeper struct {
	c        *client
	renewals *actor // who renews
}

func (k keeper) AcquireLease(ctx context.Context, resource string, w hold.Want) (hold.Granted, error) {
	g, err := k.c.ask(ctx, k.c.actor, lease.Request{
		Resources: []string{resource}, TTL: w.TTL, Wait: w.Wait, MaxHold: w.MaxHold, Worker: w.Worker, Audience: w.Audience, Seal: w.Seal, RequestID: w.RequestID,
	})
	// What begins with the grant, the renewals, goes by the instants of who renews.
	k.renewals.wait(0)
	if err != nil {
		return hold.Granted{}, err
	}
	return hold.Granted{Resource: resource, Epoch: g[0].Epoch, Token: g[0].Token, ExpiresIn: g[0].ExpiresIn}, nil
}

func (k keeper) RenewLease(ctx context.Context, resource, token string, ttl time.Duration) (hold.Granted, error) {
	n, err := k.c.renewed(ctx, k.renewals, token, ttl)
	return hold.Granted{Resource: resource, Epoch: n.Epoch, Token: n.Token, ExpiresIn: n.ExpiresIn}, err
}

func (k keeper) ReleaseLease(ctx context.Context, _, token string) error {
	return k.c.released(ctx, k.c.actor, token)
}
