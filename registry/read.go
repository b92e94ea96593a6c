package registry

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/store"
)

// Get returns a stored version, deleted or not; version 0 means the one in
// use. The code is not_found when there is none.
func (r *Registry) Get(ctx context.Context, subject string, version int) (store.Contract, error) {
	var row store.Contract
	err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		row, err = tx.Contracts.Get(ctx, subject, version)
		return err
	})
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return store.Contract{}, notFound(subject, version)
	}
	return row, err
}

// Compiled returns a version ready to check with, deleted or not; version 0
// means the one in use. Versions that are not in use are compiled when they
// are first asked for.
func (r *Registry) Compiled(ctx context.Context, subject string, version int) (*contract.Contract, error) {
	if c := r.Lookup(subject); c != nil && (version == 0 || c.Ref().Version == version) {
		return c, nil
	}
	row, err := r.Get(ctx, subject, version)
	if err != nil {
		return nil, err
	}
	return r.compile(row)
}

// Versions returns all versions of a subject in order, deleted ones included.
// The code is not_found for a subject that never had one.
func (r *Registry) Versions(ctx context.Context, subject string) ([]store.Contract, error) {
	var rows []store.Contract
	err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		rows, err = tx.Contracts.Versions(ctx, subject)
		return err
	})
	if err == nil && len(rows) == 0 {
		return nil, notFound(subject, 0)
	}
	return rows, err
}

// List returns the version in use of every subject, ordered by subject.
func (r *Registry) List(ctx context.Context) ([]store.Contract, error) {
	var rows []store.Contract
	err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		rows, err = tx.Contracts.Latest(ctx)
		return err
	})
	return rows, err
}
