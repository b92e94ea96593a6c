package sqlstore

import (
	"context"
	"encoding/json"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const principalColumns = "name, kind, roles, emit, listen, roots, root_rate, root_burst, disabled, managed, created, lease"

// list binds strings as a JSON array; nil stays nil.
func list[S ~string](q query, values []S) {
	if values == nil {
		q.Blob(nil)
		return
	}
	b, err := json.Marshal(values)
	if err != nil {
		q.Fail(err)
	}
	q.Blob(b)
}

func colList[S ~string](q query) []S {
	b := q.ColBlob()
	if b == nil {
		return nil
	}
	values := []S{}
	if err := json.Unmarshal(b, &values); err != nil {
		q.Fail(err)
	}
	return values
}

func scanPrincipal(q query) store.Principal {
	p := store.Principal{}
	p.Name, p.Kind = q.ColText(), headgate.Kind(q.ColText())
	p.Roles, p.Emit, p.Listen = colList[headgate.Role](q), colList[string](q), colList[string](q)
	p.Roots = headgate.RootRight{Allowed: q.ColBool(), Rate: q.ColFloat(), Burst: int(q.ColInt())}
	p.Disabled, p.Managed, p.Created = q.ColBool(), q.ColText(), q.colTime()
	p.Lease = colList[string](q)
	return p
}

// Put implements store.Principals.
func (r principals) Put(_ context.Context, p store.Principal) error {
	q := r.query("INSERT INTO @principals (" + principalColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, roles = excluded.roles, emit = excluded.emit,
		listen = excluded.listen, roots = excluded.roots, root_rate = excluded.root_rate, root_burst = excluded.root_burst,
		disabled = excluded.disabled, managed = excluded.managed, created = excluded.created,
		lease = excluded.lease`)
	q.Text(p.Name)
	q.Text(string(p.Kind))
	list(q, p.Roles)
	list(q, p.Emit)
	list(q, p.Listen)
	q.Bool(p.Roots.Allowed)
	q.Float(p.Roots.Rate)
	q.Int(int64(p.Roots.Burst))
	q.Bool(p.Disabled)
	q.Text(p.Managed)
	q.time(p.Created)
	list(q, p.Lease)
	return q.Run()
}

// Get implements store.Principals.
func (r principals) Get(_ context.Context, name string) (store.Principal, error) {
	q := r.query("SELECT " + principalColumns + " FROM @principals WHERE name = ?")
	q.Text(name)
	if !q.Next() {
		if err := q.Close(); err != nil {
			return store.Principal{}, err
		}
		return store.Principal{}, notFound("principal", name)
	}
	p := scanPrincipal(q)
	return p, q.Close()
}

// List implements store.Principals.
func (r principals) List(context.Context) ([]store.Principal, error) {
	q := r.query("SELECT " + principalColumns + " FROM @principals ORDER BY name")
	var all []store.Principal
	for q.Next() {
		all = append(all, scanPrincipal(q))
	}
	return all, q.Close()
}

// Delete implements store.Principals.
func (r principals) Delete(_ context.Context, name string) error {
	q := r.query("DELETE FROM @principals WHERE name = ?")
	q.Text(name)
	n, err := q.Change()
	if err != nil {
		return err
	}
	if n == 0 {
		return notFound("principal", name)
	}
	q = r.query("DELETE FROM @tokens WHERE principal = ?")
	q.Text(name)
	return q.Run()
}

const tokenColumns = "id, principal, hash, expires, created"

func scanToken(q query) store.Token {
	return store.Token{ID: q.ColText(), Principal: q.ColText(), Hash: q.ColBlob(), Expires: q.colTime(), Created: q.colTime()}
}

// PutToken implements store.Principals.
func (r principals) PutToken(ctx context.Context, t store.Token) error {
	if _, err := r.Get(ctx, t.Principal); err != nil {
		return err
	}
	q := r.query("INSERT INTO @tokens (" + tokenColumns + `) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
		principal = excluded.principal, hash = excluded.hash, expires = excluded.expires, created = excluded.created`)
	q.Text(t.ID)
	q.Text(t.Principal)
	q.Blob(t.Hash)
	q.time(t.Expires)
	q.time(t.Created)
	return q.Run()
}

// Token implements store.Principals.
func (r principals) Token(_ context.Context, id string) (store.Token, error) {
	q := r.query("SELECT " + tokenColumns + " FROM @tokens WHERE id = ?")
	q.Text(id)
	if !q.Next() {
		if err := q.Close(); err != nil {
			return store.Token{}, err
		}
		return store.Token{}, headgate.NewError(headgate.CodeNotFound, "there is no such token")
	}
	t := scanToken(q)
	return t, q.Close()
}

// Tokens implements store.Principals.
func (r principals) Tokens(_ context.Context, principal string) ([]store.Token, error) {
	q := r.query("SELECT " + tokenColumns + " FROM @tokens WHERE principal = ? ORDER BY created, id")
	q.Text(principal)
	var all []store.Token
	for q.Next() {
		all = append(all, scanToken(q))
	}
	return all, q.Close()
}

// DeleteToken implements store.Principals.
func (r principals) DeleteToken(_ context.Context, id string) error {
	q := r.query("DELETE FROM @tokens WHERE id = ?")
	q.Text(id)
	return q.Run()
}
