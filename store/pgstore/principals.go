package pgstore

import (
	"context"
	"encoding/json"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const principalColumns = "name, kind, roles, emit, listen, roots, root_rate, root_burst, disabled, managed, created, lease"

// list binds strings as a JSON array; nil stays nil.
func list[S ~string](q *query, values []S) {
	if values == nil {
		q.blob(nil)
		return
	}
	b, err := json.Marshal(values)
	if err != nil && q.err == nil {
		q.err = err
	}
	q.blob(b)
}

func colList[S ~string](q *query) []S {
	b := q.colBlob()
	if b == nil {
		return nil
	}
	values := []S{}
	if err := json.Unmarshal(b, &values); err != nil && q.err == nil {
		q.err = err
	}
	return values
}

func scanPrincipal(q *query) store.Principal {
	p := store.Principal{}
	p.Name, p.Kind = q.colText(), headgate.Kind(q.colText())
	p.Roles, p.Emit, p.Listen = colList[headgate.Role](q), colList[string](q), colList[string](q)
	p.Roots = headgate.RootRight{Allowed: q.colBool(), Rate: q.colFloat(), Burst: int(q.colInt())}
	p.Disabled, p.Managed, p.Created = q.colBool(), q.colText(), q.colTime()
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
	q.text(p.Name)
	q.text(string(p.Kind))
	list(&q, p.Roles)
	list(&q, p.Emit)
	list(&q, p.Listen)
	q.bool(p.Roots.Allowed)
	q.float(p.Roots.Rate)
	q.int(int64(p.Roots.Burst))
	q.bool(p.Disabled)
	q.text(p.Managed)
	q.time(p.Created)
	list(&q, p.Lease)
	return q.run()
}

// Get implements store.Principals.
func (r principals) Get(_ context.Context, name string) (store.Principal, error) {
	q := r.query("SELECT " + principalColumns + " FROM @principals WHERE name = ?")
	q.text(name)
	if !q.next() {
		if err := q.close(); err != nil {
			return store.Principal{}, err
		}
		return store.Principal{}, notFound("principal", name)
	}
	p := scanPrincipal(&q)
	return p, q.close()
}

// List implements store.Principals.
func (r principals) List(context.Context) ([]store.Principal, error) {
	q := r.query("SELECT " + principalColumns + " FROM @principals ORDER BY name")
	var all []store.Principal
	for q.next() {
		all = append(all, scanPrincipal(&q))
	}
	return all, q.close()
}

// Delete implements store.Principals.
func (r principals) Delete(_ context.Context, name string) error {
	q := r.query("DELETE FROM @principals WHERE name = ?")
	q.text(name)
	n, err := q.change()
	if err != nil {
		return err
	}
	if n == 0 {
		return notFound("principal", name)
	}
	q = r.query("DELETE FROM @tokens WHERE principal = ?")
	q.text(name)
	return q.run()
}

const tokenColumns = "id, principal, hash, expires, created"

func scanToken(q *query) store.Token {
	return store.Token{ID: q.colText(), Principal: q.colText(), Hash: q.colBlob(), Expires: q.colTime(), Created: q.colTime()}
}

// PutToken implements store.Principals.
func (r principals) PutToken(ctx context.Context, t store.Token) error {
	if _, err := r.Get(ctx, t.Principal); err != nil {
		return err
	}
	q := r.query("INSERT INTO @tokens (" + tokenColumns + `) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
		principal = excluded.principal, hash = excluded.hash, expires = excluded.expires, created = excluded.created`)
	q.text(t.ID)
	q.text(t.Principal)
	q.blob(t.Hash)
	q.time(t.Expires)
	q.time(t.Created)
	return q.run()
}

// Token implements store.Principals.
func (r principals) Token(_ context.Context, id string) (store.Token, error) {
	q := r.query("SELECT " + tokenColumns + " FROM @tokens WHERE id = ?")
	q.text(id)
	if !q.next() {
		if err := q.close(); err != nil {
			return store.Token{}, err
		}
		return store.Token{}, headgate.NewError(headgate.CodeNotFound, "there is no such token")
	}
	t := scanToken(&q)
	return t, q.close()
}

// Tokens implements store.Principals.
func (r principals) Tokens(_ context.Context, principal string) ([]store.Token, error) {
	q := r.query("SELECT " + tokenColumns + " FROM @tokens WHERE principal = ? ORDER BY created, id")
	q.text(principal)
	var all []store.Token
	for q.next() {
		all = append(all, scanToken(&q))
	}
	return all, q.close()
}

// DeleteToken implements store.Principals.
func (r principals) DeleteToken(_ context.Context, id string) error {
	q := r.query("DELETE FROM @tokens WHERE id = ?")
	q.text(id)
	return q.run()
}
