package main

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/broker/natsbroker"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/node"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/headgate/headgate/relay/sqliterelay"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/pgstore"
	"github.com/headgate/headgate/store/sqlitestore"
)

// drivers is what this build offers.
func drivers() node.Drivers {
	return node.Drivers{
		Stores: map[string]func(context.Context, node.StoreOptions) (store.Store, error){
			"sqlite":   openSQLite,
			"postgres": openPostgres,
		},
		Brokers: map[string]func(context.Context, node.BrokerOptions) (broker.Broker, error){
			"nats":   openNATS,
			"memory": openMemory,
		},
		CheckStore: map[string]func(node.StoreOptions) error{
			"postgres": func(o node.StoreOptions) error { c := postgresConfig(o); return c.Validate() },
		},
		CheckBroker: map[string]func(node.BrokerOptions) error{
			"nats": func(o node.BrokerOptions) error { _, err := natsConfig(o); return err },
		},
		Seals: map[string]func(node.SealOptions) (lease.Target, func(), error){
			"postgres":   sealPostgres,
			"postgresql": sealPostgres,
			"sqlite":     sealSQLite,
			"https":      sealHTTP,
			"http":       sealHTTP,
		},
		Outboxes: map[string]func(node.OutboxOptions) (relay.Source, error){
			"postgres":   openPostgresOutbox,
			"postgresql": openPostgresOutbox,
			"sqlite":     openSQLiteOutbox,
		},
	}
}

func openSQLite(ctx context.Context, o node.StoreOptions) (store.Store, error) {
	cfg := sqlitestore.Config{Path: filepath.Join(o.Dir, "headgate.db"), Memory: o.Memory, Relaxed: o.Relaxed, Logger: o.Log}
	return sqlitestore.Open(ctx, cfg)
}

func openPostgres(ctx context.Context, o node.StoreOptions) (store.Store, error) {
	return pgstore.Open(ctx, postgresConfig(o))
}

func postgresConfig(o node.StoreOptions) pgstore.Config {
	return pgstore.Config{URL: o.URL, Relaxed: o.Relaxed, Logger: o.Log}
}

func openPostgresOutbox(o node.OutboxOptions) (relay.Source, error) {
	return pgrelay.New(pgrelay.Config{URL: o.URL, Retain: o.Retain, WALBudget: o.WALBudget, Log: o.Log})
}

func openSQLiteOutbox(o node.OutboxOptions) (relay.Source, error) {
	path := sqlitePath(o.URL)
	connect := func() (*sql.DB, error) { return connectSQLite(path) }
	return sqliterelay.New(sqliterelay.Config{Path: path, Connect: connect, Retain: o.Retain, Log: o.Log})
}

func openMemory(_ context.Context, o node.BrokerOptions) (broker.Broker, error) {
	return membroker.New(membroker.Config{MaxEventBytes: o.MaxEventBytes}), nil
}

func openNATS(ctx context.Context, o node.BrokerOptions) (broker.Broker, error) {
	cfg, err := natsConfig(o)
	if err != nil {
		return nil, err
	}
	return natsbroker.Open(ctx, cfg)
}

// natsConfig refuses options that no server could make right.
func natsConfig(o node.BrokerOptions) (natsbroker.Config, error) {
	cfg := natsbroker.Config{URL: o.URL, Prefix: o.Prefix, Replicas: o.Replicas, MaxEventBytes: o.MaxEventBytes, Logger: o.Log}
	if o.URL == "" {
		cfg.Dir = o.Dir
	}
	cfg.Auth.CredsFile = o.Credentials
	if o.Relaxed {
		cfg.Durability = broker.DurabilityProcess
	}
	for one := range strings.SplitSeq(o.URL, ",") {
		if problem := natsProblem(strings.TrimSpace(one)); o.URL != "" && problem != "" {
			return cfg, headgate.NewError(headgate.CodeInvalidConfig, "broker.url: %s", problem)
		}
	}
	return cfg, cfg.Validate()
}

// natsProblem says what is wrong with the URL of one server, without repeating
// it: it may hold a password.
func natsProblem(raw string) string {
	if !strings.Contains(raw, "://") {
		raw = "nats://" + raw
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Hostname() == "":
		return "want a URL such as nats://HOST:4222, or several with commas between"
	case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
		return "want nats, tls, ws or wss as the scheme"
	case u.Port() != "" && !node.ValidPort(u.Port()):
		return "want a port from 1 to 65535"
	}
	return ""
}
