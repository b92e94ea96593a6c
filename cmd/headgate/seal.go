package main

import (
	"cmp"
	"context"
	"database/sql"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/lease/fencesqlite"
	"github.com/headgate/headgate/lease/fencetable"
	"github.com/headgate/headgate/node"
)

// sealConnections bounds what a node opens to one target of leases.seal.
const sealConnections = 8

// sealPostgres seals a PostgreSQL database: by the functions of its guards, or
// its fence table.
func sealPostgres(o node.SealOptions) (lease.Seal, func(), error) {
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns, cfg.MinConns = sealConnections, 0
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg) // connects when it is used
	if err != nil {
		return nil, nil, err
	}
	if o.Table != "" {
		db := stdlib.OpenDBFromPool(pool)
		return sealTable(db, fencetable.Table{Dialect: fencetable.Postgres, Name: o.Table}), func() { _ = db.Close(); pool.Close() }, nil
	}
	db := &fencepg.DB{Schema: cmp.Or(o.Schema, "headgate")}
	return func(ctx context.Context, f lease.Fence) error {
		return db.Seal(ctx, pool, fence.Fence{Resource: f.Resource, Epoch: f.Epoch, Nonce: f.Nonce})
	}, pool.Close, nil
}

// sealSQLite seals an SQLite database of this host.
func sealSQLite(o node.SealOptions) (lease.Seal, func(), error) {
	db, err := driver.Open(sqliteFile(strings.TrimPrefix(o.URL, "sqlite:")))
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(2)
	done := func() { _ = db.Close() } // every transaction has ended
	if o.Table != "" {
		return sealTable(db, fencetable.Table{Dialect: fencetable.SQLite, Name: o.Table}), done, nil
	}
	guard := &fencesqlite.DB{}
	return func(ctx context.Context, f lease.Fence) error {
		return guard.Seal(ctx, db, fence.Fence{Resource: f.Resource, Epoch: f.Epoch, Nonce: f.Nonce})
	}, done, nil
}

func sealTable(db *sql.DB, t fencetable.Table) lease.Seal {
	return func(ctx context.Context, f lease.Fence) error { return t.Seal(ctx, db, f) }
}

// sqliteFile is how an existing database of the user's is opened.
func sqliteFile(path string) string {
	return "file:" + strings.NewReplacer("?", "%3f", "#", "%23", "%", "%25").Replace(path) + "?mode=rw&_pragma=busy_timeout(10000)"
}
