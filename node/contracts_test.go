package node

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// A stored contract that does not compile is in the log at start, and is a
// finding until a new version is registered.
func TestBrokenContractIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	st, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	err = st.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return tx.Contracts.Put(ctx, store.Contract{Subject: "old", Version: 1, Digest: "d", Schema: []byte(`{"format":"no-longer"}`), Created: time.Unix(0, 0)})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	cfg, problems := Parse([]byte("listen: 127.0.0.1:0\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	cfg.Dev, cfg.Memory, cfg.Data = true, true, t.TempDir()
	var log bytes.Buffer
	n, err := Open(t.Context(), cfg, Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Drivers: Drivers{
		Stores: map[string]func(context.Context, StoreOptions) (store.Store, error){
			"sqlite": func(ctx context.Context, _ StoreOptions) (store.Store, error) {
				return sqlitestore.Open(ctx, sqlitestore.Config{Path: path})
			},
		},
		Brokers: map[string]func(context.Context, BrokerOptions) (broker.Broker, error){
			"memory": func(context.Context, BrokerOptions) (broker.Broker, error) {
				return membroker.New(membroker.Config{}), nil
			},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	const told = "version 1 of old no longer compiles"
	if !strings.Contains(log.String(), told) {
		t.Errorf("the log says nothing:\n%s", &log)
	}
	count := func() (found int) {
		for _, f := range n.findings(t.Context()) {
			if f.Severity == "error" && strings.Contains(f.What, told) && f.Fix != "" {
				found++
			}
		}
		return found
	}
	if got := count(); got != 1 {
		t.Errorf("%d findings, want 1: %+v", got, n.findings(t.Context()))
	}
	if _, err := n.Registry.Register(t.Context(), "old", contract.TypeJSON, []byte(`{"type":"object"}`), "admin"); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 0 {
		t.Errorf("%d findings after a new version, want none", got)
	}
}
