package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/outbound"
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
func sealPostgres(o node.SealOptions) (lease.Target, func(), error) {
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return lease.Target{}, nil, err
	}
	cfg.MaxConns, cfg.MinConns = sealConnections, 0
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, connectWithin)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg) // connects when it is used
	if err != nil {
		return lease.Target{}, nil, err
	}
	if o.Table != "" {
		db := stdlib.OpenDBFromPool(pool)
		return sealTable(db, fencetable.Table{Dialect: fencetable.Postgres, Name: o.Table}), func() { _ = db.Close(); pool.Close() }, nil
	}
	db := &fencepg.DB{Schema: cmp.Or(o.Schema, "headgate")}
	return lease.Target{
		Gate: func(ctx context.Context, resource string, below int64) error {
			return db.Gate(ctx, pool, resource, below)
		},
		Seal: func(ctx context.Context, s lease.Sealing) ([]headgate.BlockingSession, error) {
			f := fence.Fence{Resource: s.Resource, Epoch: s.Epoch, Nonce: s.Nonce}
			if s.End {
				return db.SealEnding(ctx, pool, f)
			}
			return nil, db.Seal(ctx, pool, f)
		},
	}, pool.Close, nil
}

// sealSQLite seals an SQLite database of this host.
func sealSQLite(o node.SealOptions) (lease.Target, func(), error) {
	db, err := driver.Open(sqliteFile(strings.TrimPrefix(o.URL, "sqlite:")))
	if err != nil {
		return lease.Target{}, nil, err
	}
	db.SetMaxOpenConns(2)
	done := func() { _ = db.Close() } // every transaction has ended
	if o.Table != "" {
		return sealTable(db, fencetable.Table{Dialect: fencetable.SQLite, Name: o.Table}), done, nil
	}
	guard := &fencesqlite.DB{}
	return lease.Target{Seal: func(ctx context.Context, s lease.Sealing) ([]headgate.BlockingSession, error) {
		return nil, guard.Seal(ctx, db, fence.Fence{Resource: s.Resource, Epoch: s.Epoch, Nonce: s.Nonce})
	}}, done, nil
}

func sealTable(db *sql.DB, t fencetable.Table) lease.Target {
	return lease.Target{Seal: func(ctx context.Context, s lease.Sealing) ([]headgate.BlockingSession, error) {
		return nil, t.Seal(ctx, db, s.Fence)
	}}
}

// sealHTTP seals a service at the endpoint that the configuration names. Its
// host may therefore be in a private network; nothing else is called.
func sealHTTP(o node.SealOptions) (lease.Target, func(), error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return lease.Target{}, nil, err
	}
	return sealService(o, outbound.New(outbound.Config{Hosts: []string{u.Hostname()}}))
}

func sealService(o node.SealOptions, out *outbound.Client) (lease.Target, func(), error) {
	if err := out.Check(o.URL); err != nil {
		return lease.Target{}, nil, err
	}
	seal := func(ctx context.Context, s lease.Sealing) ([]headgate.BlockingSession, error) {
		resp, err := out.Post(ctx, o.URL, http.Header{api.HeaderFence: {s.Token}}, nil)
		if err != nil {
			return nil, err
		}
		return nil, sealAnswer(resp)
	}
	return lease.Target{Audience: o.Audience, Seal: seal}, func() {}, nil
}

// sealAnswer reads what a service said. Of a refusal its code counts, if it is
// one that a fence is refused by; its words are not repeated.
func sealAnswer(resp *outbound.Response) error {
	if resp.Status >= 200 && resp.Status < 300 {
		return nil
	}
	var said struct {
		Code headgate.Code `json:"code"`
	}
	if resp.Status >= 400 && resp.Status < 500 && json.Unmarshal(resp.Body, &said) == nil {
		switch said.Code {
		case headgate.CodeStaleFence, headgate.CodeFenceConflict, headgate.CodeFenceForeign, headgate.CodeFenceInvalid:
			return headgate.NewError(said.Code, "the service refuses the seal")
		}
	}
	return headgate.NewError(headgate.CodeUnavailable, "the service answered %d", resp.Status)
}

// sqliteFile is how an existing database of the user's is opened.
func sqliteFile(path string) string {
	return "file:" + strings.NewReplacer("?", "%3f", "#", "%23", "%", "%25").Replace(path) + "?mode=rw&_pragma=busy_timeout(10000)"
}
