package router

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Subscription is a subscription as users see it.
type Subscription struct {
	Name    string    `json:"name"`
	Spec    Spec      `json:"spec"`
	Paused  bool      `json:"paused"`
	Created time.Time `json:"created"`
	Managed string    `json:"managed"` // "config" or "api"
}

// Put adds or changes a subscription. By is who asks; nil for the node's own
// configuration. It needs the role developer, or a principal that consumes
// only itself. Every problem of the specification is reported at once, as
// invalid_argument.
//
// A new subscription starts where spec.From says. A change keeps the progress
// in every stream that the subscription had; streams that it adds start where
// the new spec.From says. A running subscription is stopped and started again:
// its open claims are given up without using up an attempt. Putting what is
// there already changes nothing.
func (r *Router) Put(ctx context.Context, by *headgate.Principal, name string, spec Spec, managed string) (Subscription, error) {
	old, err := r.stored(ctx, name)
	exists := err == nil
	if err != nil && headgate.CodeOf(err) != headgate.CodeNotFound {
		return Subscription{}, err
	}
	if spec.As == "" {
		spec.As = r.defaultAs(by, old, exists)
	}
	if err := mayManage(by, spec, old, exists); err != nil {
		return Subscription{}, err
	}
	if err := r.check(ctx, name, spec); err != nil {
		return Subscription{}, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return Subscription{}, headgate.NewError(headgate.CodeInvalidArgument, "subscription: %s", errText(err))
	}
	now := r.now()
	row := store.Subscription{Name: name, Spec: text, Managed: managed, Created: now, Updated: now}
	if exists {
		row.Paused, row.Created = old.Paused, old.Created
		if had, err := json.Marshal(old.Spec); err == nil && bytes.Equal(had, text) && old.Managed == managed {
			return old, nil
		}
	}
	if err := r.change(ctx, name, func(ctx context.Context) error { return r.store1(ctx, by, row, spec) }); err != nil {
		return Subscription{}, err
	}
	return r.stored(ctx, name)
}

// defaultAs is the principal of a specification that names none.
func (r *Router) defaultAs(by *headgate.Principal, old Subscription, exists bool) string {
	switch {
	case exists:
		return old.Spec.As
	case by != nil:
		return by.Name
	}
	return ""
}

// maxOwn bounds the subscriptions that consume as one principal and were added
// by it, without the role developer: each costs memory, and readers of its own
// when it is slow, so that an agent that makes one for each task would end the node.
const maxOwn = 100

// mayPut checks the right to change what is stored by now: the look before may
// have seen something else.
func mayPut(ctx context.Context, tx *store.Tx, by *headgate.Principal, name string, spec Spec) error {
	row, err := tx.Subscriptions.Get(ctx, name)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return mayAdd(ctx, tx, by)
	}
	if err != nil {
		return err
	}
	old, err := decodeSubscription(row)
	if err != nil {
		return err
	}
	return mayManage(by, spec, old, true)
}

// mayAdd checks that a principal has room for one more subscription.
func mayAdd(ctx context.Context, tx *store.Tx, by *headgate.Principal) error {
	if by == nil || by.Can(headgate.RoleDeveloper) {
		return nil
	}
	rows, err := tx.Subscriptions.List(ctx)
	if err != nil {
		return err
	}
	n := 0
	for _, row := range rows {
		if sub, err := decodeSubscription(row); err == nil && sub.Spec.As == by.Name {
			n++
		}
	}
	if n < maxOwn {
		return nil
	}
	return &headgate.Error{
		Code: headgate.CodeForbidden, Detail: fmt.Sprintf("the principal has %d subscriptions; it may add up to %d by itself", n, maxOwn),
		Fix: "Delete those that are not needed any more, or ask a developer to add it.",
	}
}

// mayManage checks the right to add or change a subscription.
func mayManage(by *headgate.Principal, spec Spec, old Subscription, exists bool) error {
	if by == nil || by.Can(headgate.RoleDeveloper) {
		return nil
	}
	if by.Disabled || spec.As != by.Name || (exists && old.Spec.As != by.Name) {
		return &headgate.Error{
			Code: headgate.CodeForbidden, Detail: "managing subscriptions of others needs the role developer",
			Fix: "Create a subscription that consumes as yourself, or ask for the role developer.",
		}
	}
	return nil
}

// check reports every problem of a specification at once.
func (r *Router) check(ctx context.Context, name string, spec Spec) error {
	p, bad := spec.compile(r.defaults)
	bad = append(bad, p.useless()...)
	if !ValidName(name) {
		bad = append(bad, "name: want 1 to 100 letters, digits, \".\", \"_\" or \"-\", starting with a letter or digit")
	}
	if spec.Lease != "" && r.leases == nil {
		bad = append(bad, "lease: this node grants no leases")
	}
	from, ok := parseFrom(spec.From)
	if ok && from.kind == "position" && !slices.Contains(r.streamsFor(spec.Types), from.stream) {
		bad = append(bad, "from: no type of the subscription is in stream "+clip(from.stream, 60))
	}
	bad = append(bad, r.checkPrincipal(ctx, spec)...)
	if len(bad) > 0 {
		return headgate.NewError(headgate.CodeInvalidArgument, "subscription %s: %s", clip(name, 100), strings.Join(bad, "; "))
	}
	return nil
}

func (r *Router) checkPrincipal(ctx context.Context, spec Spec) (bad []string) {
	if spec.As == "" {
		return []string{"as: a principal is needed"}
	}
	p, err := r.principals.Get(ctx, spec.As)
	if err != nil {
		return []string{"as: " + errText(err)}
	}
	for _, t := range spec.Types {
		if headgate.ValidPattern(t) && !p.MayListen(t) {
			bad = append(bad, "as: principal "+clip(spec.As, 60)+" may not listen to "+t)
		}
	}
	return bad
}

// store1 writes a subscription and the first progress in streams new to it.
func (r *Router) store1(ctx context.Context, by *headgate.Principal, row store.Subscription, spec Spec) error {
	from, _ := parseFrom(spec.From)
	var have []store.Progress
	err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		have, err = tx.Deliveries.Progress(ctx, row.Name)
		return err
	})
	if err != nil {
		return err
	}
	var rows []store.Progress
	for _, stream := range r.streamsFor(spec.Types) {
		if slices.ContainsFunc(have, func(p store.Progress) bool { return p.Stream == stream }) {
			continue
		}
		added, err := r.startRows(ctx, row.Name, stream, from)
		if err != nil {
			return err
		}
		rows = append(rows, added...)
	}
	return r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := mayPut(ctx, tx, by, row.Name, spec); err != nil {
			return err
		}
		if err := tx.Subscriptions.Put(ctx, row); err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		return tx.Deliveries.SaveProgress(ctx, rows)
	})
}

// change stops a subscription if it runs, changes it in the store, and starts
// it again if it is still there.
func (r *Router) change(ctx context.Context, name string, fn func(context.Context) error) error {
	r.starting.Lock()
	if !r.isRunning() {
		defer r.starting.Unlock()
		return fn(ctx)
	}
	r.starting.Unlock()
	ctx = context.WithoutCancel(ctx) // once stopped it must come back
	return r.command(ctx, func(c contexts) error {
		r.mu.Lock()
		s := r.subs[name]
		delete(r.subs, name)
		r.mu.Unlock()
		unclean := false
		if s != nil {
			if err := s.close(c.hard); err != nil {
				unclean = true
				r.log.Error("progress not saved at a change", "subscription", name, "err", err)
			}
		}
		changed := fn(ctx)
		var row store.Subscription
		err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			row, err = tx.Subscriptions.Get(ctx, name)
			return err
		})
		if headgate.CodeOf(err) == headgate.CodeNotFound {
			return changed
		}
		if err == nil {
			if s, err = r.startSub(c, row, unclean); err == nil {
				r.attachAll(c.soft, s)
			}
		}
		if changed != nil {
			return changed
		}
		return err
	})
}

// Get returns a subscription, or not_found.
func (r *Router) Get(ctx context.Context, name string) (Subscription, error) {
	return r.stored(ctx, name)
}

func (r *Router) stored(ctx context.Context, name string) (sub Subscription, err error) {
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		row, err := tx.Subscriptions.Get(ctx, name)
		if err != nil {
			return err
		}
		sub, err = decodeSubscription(row)
		return err
	})
	return sub, err
}

func decodeSubscription(row store.Subscription) (Subscription, error) {
	sub := Subscription{Name: row.Name, Paused: row.Paused, Created: row.Created, Managed: row.Managed}
	if err := json.Unmarshal(row.Spec, &sub.Spec); err != nil {
		return sub, headgate.NewError(headgate.CodeInternal, "the stored subscription %s is unreadable: %v", row.Name, err)
	}
	return sub, nil
}

// List returns all subscriptions, ordered by name.
func (r *Router) List(ctx context.Context) ([]Subscription, error) {
	var out []Subscription
	err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Subscriptions.List(ctx)
		if err != nil {
			return err
		}
		out = make([]Subscription, 0, len(rows))
		for _, row := range rows {
			sub, err := decodeSubscription(row)
			if err != nil {
				return err
			}
			out = append(out, sub)
		}
		return nil
	})
	return out, err
}

// Delete removes a subscription with its progress. Its open claims end. What
// it parked stays in quarantine.
func (r *Router) Delete(ctx context.Context, name string) error {
	if _, err := r.stored(ctx, name); err != nil {
		return err
	}
	return r.change(ctx, name, func(ctx context.Context) error {
		return r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
			for _, prefix := range []string{blockPrefix, suspectPrefix} {
				if err := deleteSettings(ctx, tx, prefix+name+"/"); err != nil {
					return err
				}
			}
			return tx.Subscriptions.Delete(ctx, name)
		})
	})
}

// Pause stops deliveries until Resume. Open claims may still be settled.
func (r *Router) Pause(ctx context.Context, name string) error { return r.setPaused(ctx, name, true) }

// Resume starts deliveries again.
func (r *Router) Resume(ctx context.Context, name string) error { return r.setPaused(ctx, name, false) }

func (r *Router) setPaused(ctx context.Context, name string, paused bool) error {
	err := r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		row, err := tx.Subscriptions.Get(ctx, name)
		if err != nil {
			return err
		}
		row.Paused, row.Updated = paused, r.now()
		return tx.Subscriptions.Put(ctx, row)
	})
	if err != nil {
		return err
	}
	if s := r.sub(name); s != nil {
		s.mu.Lock()
		s.paused = paused
		s.signal()
		s.mu.Unlock()
	}
	return nil
}

// Unblock lets the followers of a key go on whose head was parked under the
// order strict. It is for who released or discarded the head. A key that is
// not blocked is not_found.
func (r *Router) Unblock(ctx context.Context, name, stream, key string) error {
	s, err := r.open(ctx, name)
	if err != nil {
		return err
	}
	id := laneID{stream, key}
	s.mu.Lock()
	l := s.lanes[id]
	blocked := l != nil && l.blocked
	s.mu.Unlock()
	if !blocked {
		return headgate.NewError(headgate.CodeNotFound, "the key is not blocked in subscription %s", name)
	}
	return s.submitWait(ctx, &op{unblock: &id, durable: true, done: func(err error) {
		if err == nil {
			l.blocked = false
			s.kick(l)
		}
	}})
}
