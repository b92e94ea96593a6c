package causal

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/sqlitestore"
)

// TestStormOnSQLite is T46 and T47 on a real store, which is closed and opened
// again with new boots half way.
func TestStormOnSQLite(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "state.db")
	openStore := func() *sqlitestore.Store {
		s, err := sqlitestore.Open(ctx, sqlitestore.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := openStore()
	nodes := []*Engine{open(t, Config{Store: s}), open(t, Config{Store: s})}
	for _, gas := range []int{10, 400} {
		if got := storm(t, nodes, 16, gas); got != gas {
			t.Errorf("admitted %d, want exactly %d", got, gas)
		}
	}

	// A token of before the restart goes on with what the store has left: the
	// grant and the slice that died with their nodes are spent.
	const gas = 60
	root := admit(t, nodes[0], Request{Principal: desk, Type: "a", EventID: "again", Gas: gas})
	admit(t, nodes[1], Request{Principal: alice, Type: "b", EventID: "c", Causes: []*Cause{cause(nodes[1], root, alice)}})
	token := nodes[0].Mint(delivered(root, alice))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	e := open(t, Config{Store: s})
	c, err := e.Verify(token, "alice")
	if err != nil {
		t.Fatalf("token of before the restart: %v", err)
	}
	n := 0
	for ; err == nil; n++ {
		_, err = tryAdmit(e, Request{Principal: alice, Type: "b", EventID: "d", Causes: []*Cause{c}})
	}
	wantCode(t, err, headgate.CodeGasExhausted)
	if want := gas - GrantSize - firstSlice; n-1 != want {
		t.Errorf("%d children after the restart, want %d", n-1, want)
	}
}
