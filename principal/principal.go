package principal

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// The owners of a principal's record.
const (
	ManagedConfig = "config"
	ManagedAPI    = "api"
)

// Config configures a directory.
type Config struct {
	Store store.Store
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Random is the source of ids and secrets; default crypto/rand.
	Random io.Reader
}

// Directory knows the principals. It is safe for concurrent use.
type Directory struct {
	store  store.Store
	now    func() time.Time
	random io.Reader

	change  sync.Mutex // held while the store and then the picture change
	picture atomic.Pointer[picture]
}

// picture is what the directory knows at one moment. It is never modified.
type picture struct {
	principals map[string]*store.Principal
	tokens     map[string]*credential // by id
	replaced   chan struct{}          // closed when there is a newer one
}

func newPicture(principals map[string]*store.Principal, tokens map[string]*credential) *picture {
	return &picture{principals: principals, tokens: tokens, replaced: make(chan struct{})}
}

// Open loads the directory.
func Open(ctx context.Context, cfg Config) (*Directory, error) {
	if cfg.Store == nil {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "the directory of principals needs a store")
	}
	d := &Directory{store: cfg.Store, now: cfg.Now, random: cmp.Or[io.Reader](cfg.Random, rand.Reader)}
	if d.now == nil {
		d.now = time.Now
	}
	return d, d.Reload(ctx)
}

// Reload reads everything anew from the store. It is needed only when
// something other than this directory changed the store.
func (d *Directory) Reload(ctx context.Context) error {
	d.change.Lock()
	defer d.change.Unlock()
	return d.load(ctx)
}

func (d *Directory) load(ctx context.Context) error {
	p := newPicture(map[string]*store.Principal{}, map[string]*credential{})
	err := d.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		all, err := tx.Principals.List(ctx)
		if err != nil {
			return err
		}
		for i := range all {
			all[i].Roles = slices.DeleteFunc(all[i].Roles, func(r headgate.Role) bool { return RoleFault(all[i].Kind, r) != "" })
			p.principals[all[i].Name] = &all[i]
			tokens, err := tx.Principals.Tokens(ctx, all[i].Name)
			if err != nil {
				return err
			}
			for _, t := range tokens {
				p.tokens[t.ID] = credentialOf(t)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.show(p)
	return nil
}

// Put adds or replaces a principal. Managed is ManagedConfig or ManagedAPI: a
// record that the configuration owns cannot be replaced through the API
// (conflict), while the configuration takes over what has its name. A
// configured principal that an operator disabled stays disabled. Invalid
// fields are invalid_argument, and all of them are named.
func (d *Directory) Put(ctx context.Context, p headgate.Principal, managed string) error {
	if err := Validate(p); err != nil {
		return err
	}
	if managed != ManagedConfig && managed != ManagedAPI {
		return headgate.NewError(headgate.CodeInvalidArgument, "managed is %q, want %q or %q", managed, ManagedConfig, ManagedAPI)
	}
	p = clone(p)
	return d.alter(ctx, p.Name, func(old *store.Principal) (*store.Principal, error) {
		next := &store.Principal{Principal: p, Managed: managed, Created: d.now()}
		if old == nil {
			return next, nil
		}
		next.Created = old.Created
		switch {
		case managed == ManagedConfig:
			next.Disabled = next.Disabled || old.Disabled
		case old.Managed == ManagedConfig:
			return nil, &headgate.Error{
				Code: headgate.CodeConflict, Detail: "the principal " + p.Name + " belongs to the configuration",
				Fix: "Change it in the configuration file.",
			}
		}
		return next, nil
	})
}

// Disable refuses every further request of a principal, at once. The last
// admin cannot be disabled (conflict).
func (d *Directory) Disable(ctx context.Context, name string) error {
	return d.setDisabled(ctx, name, true)
}

// Enable ends what Disable began.
func (d *Directory) Enable(ctx context.Context, name string) error {
	return d.setDisabled(ctx, name, false)
}

func (d *Directory) setDisabled(ctx context.Context, name string, disabled bool) error {
	return d.alter(ctx, name, func(old *store.Principal) (*store.Principal, error) {
		if old == nil {
			return nil, unknown(name)
		}
		next := *old
		next.Disabled = disabled
		return &next, nil
	})
}

// Delete removes a principal and its tokens. The last admin cannot be deleted
// (conflict).
func (d *Directory) Delete(ctx context.Context, name string) error {
	return d.alter(ctx, name, func(old *store.Principal) (*store.Principal, error) {
		if old == nil {
			return nil, unknown(name)
		}
		return nil, nil
	})
}

// Undeclare removes every principal that the configuration owns and does not
// declare any more, with its tokens, and returns their names: who leaves the
// file loses its access, also the last admin. Principals that were made through
// the API stay.
func (d *Directory) Undeclare(ctx context.Context, declared []string) (removed []string, err error) {
	for name, p := range d.picture.Load().principals {
		if p.Managed != ManagedConfig || slices.Contains(declared, name) {
			continue
		}
		err := d.alterAs(ctx, name, true, func(*store.Principal) (*store.Principal, error) { return nil, nil })
		if err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	slices.Sort(removed)
	return removed, nil
}

// alter replaces one principal's record by what next makes of it: nil deletes
// it. It keeps the last admin.
func (d *Directory) alter(ctx context.Context, name string, next func(old *store.Principal) (*store.Principal, error)) error {
	return d.alterAs(ctx, name, false, next)
}

// alterAs is alter; with force it does not keep the last admin.
func (d *Directory) alterAs(ctx context.Context, name string, force bool, next func(old *store.Principal) (*store.Principal, error)) error {
	d.change.Lock()
	defer d.change.Unlock()
	now := d.picture.Load()
	old := now.principals[name]
	record, err := next(old)
	if err != nil {
		return err
	}
	// The configuration may: whoever writes it rules the host, and another
	// admin may stand further down in it.
	configured := record != nil && record.Managed == ManagedConfig && old != nil && record.Disabled == old.Disabled
	if !force && !configured && now.lastAdmin(name) && (record == nil || !record.Can(headgate.RoleAdmin)) {
		return &headgate.Error{
			Code: headgate.CodeConflict, Detail: name + " is the last admin",
			Fix: "Make another principal admin first.",
		}
	}
	err = d.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		if record == nil {
			return tx.Principals.Delete(ctx, name)
		}
		return tx.Principals.Put(ctx, *record)
	})
	if err != nil {
		return d.failed(ctx, name, err)
	}
	p := now.copy()
	if record != nil {
		p.principals[name] = record
	} else {
		p.remove(name)
	}
	d.show(p)
	return nil
}

// failed handles a failed write: when it may have happened, the store is read
// anew, and when it cannot be read, the principal is refused.
func (d *Directory) failed(ctx context.Context, name string, err error) error {
	if e := headgate.AsError(err); e != nil && e.Info().Outcome == headgate.NotApplied {
		return err
	}
	if d.load(context.WithoutCancel(ctx)) != nil {
		p := d.picture.Load().copy()
		p.remove(name)
		d.show(p)
	}
	return err
}

// show makes a picture the present one. The caller holds d.change.
func (d *Directory) show(p *picture) {
	if old := d.picture.Swap(p); old != nil {
		close(old.replaced)
	}
}

// Changed returns a channel that is closed at the next change of a principal
// or a token. Who holds a principal for long, such as a live stream, asks for
// the channel first, then authenticates again, and then waits.
func (d *Directory) Changed() <-chan struct{} { return d.picture.Load().replaced }

// Get returns one principal, or not_found. Its slices are shared: do not
// modify them.
func (d *Directory) Get(_ context.Context, name string) (store.Principal, error) {
	p := d.picture.Load().principals[name]
	if p == nil {
		return store.Principal{}, unknown(name)
	}
	return *p, nil
}

// List returns all principals, ordered by name. Their slices are shared: do
// not modify them.
func (d *Directory) List(context.Context) ([]store.Principal, error) {
	var all []store.Principal
	for _, p := range d.picture.Load().principals {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b store.Principal) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (p *picture) copy() *picture {
	return newPicture(maps.Clone(p.principals), maps.Clone(p.tokens))
}

func (p *picture) remove(name string) {
	delete(p.principals, name)
	maps.DeleteFunc(p.tokens, func(_ string, t *credential) bool { return t.principal == name })
}

// lastAdmin reports whether name is an enabled admin and nobody else is.
func (p *picture) lastAdmin(name string) bool {
	is := false
	for _, other := range p.principals {
		if other.Can(headgate.RoleAdmin) {
			if other.Name != name {
				return false
			}
			is = true
		}
	}
	return is
}

func clone(p headgate.Principal) headgate.Principal {
	p.Roles, p.Emit, p.Listen = slices.Clone(p.Roles), slices.Clone(p.Emit), slices.Clone(p.Listen)
	p.Lease = slices.Clone(p.Lease)
	return p
}

func unknown(name string) error {
	return headgate.NewError(headgate.CodeNotFound, "there is no principal %q", clip(name))
}

// clip keeps echoed input short.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
