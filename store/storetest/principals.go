package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var principalCases = map[string]func(*testing.T, store.Store){
	"RoundTrip": principalRoundTrip,
	"List":      principalList,
	"Tokens":    principalTokens,
	"Delete":    principalDelete,
}

func putPrincipal(t testing.TB, s store.Store, p store.Principal) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Principals.Put(ctx, p) })
}

func principalRoundTrip(t *testing.T, s store.Store) {
	full := store.Principal{
		Principal: headgate.Principal{
			Name: "triage", Kind: headgate.KindAgent, Roles: []headgate.Role{headgate.RoleViewer, headgate.RoleDeveloper},
			Emit: []string{"ticket.*", `a"b`, "日本"}, Listen: []string{}, Roots: headgate.RootRight{Allowed: true, Rate: 0.1, Burst: 7}, Disabled: true,
		},
		Managed: "config", Created: epoch,
	}
	for _, p := range []store.Principal{full, {Principal: headgate.Principal{Name: "zero"}}} {
		putPrincipal(t, s, p)
		equal(t, "principal", getPrincipal(t, s, p.Name), p)
	}
	full.Kind, full.Roles, full.Disabled, full.Roots, full.Managed = headgate.KindHuman, nil, false, headgate.RootRight{}, "api"
	putPrincipal(t, s, full)
	equal(t, "replaced principal", getPrincipal(t, s, full.Name), full)
	err := failing(t, s, func(ctx context.Context, tx *store.Tx) (store.Principal, error) {
		return tx.Principals.Get(ctx, "Triage")
	})
	code(t, "another case", err, headgate.CodeNotFound)
}

func getPrincipal(t testing.TB, s store.Store, name string) store.Principal {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) (store.Principal, error) { return tx.Principals.Get(ctx, name) })
}

func principalList(t *testing.T, s store.Store) {
	for _, name := range []string{"b", "a", "c", "B", "aa"} {
		putPrincipal(t, s, store.Principal{Principal: headgate.Principal{Name: name}})
	}
	all := read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.Principal, error) { return tx.Principals.List(ctx) })
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	equal(t, "names", names, []string{"B", "a", "aa", "b", "c"})
}

func tokensOf(t testing.TB, s store.Store, principal string) (ids []string) {
	t.Helper()
	all := read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.Token, error) {
		return tx.Principals.Tokens(ctx, principal)
	})
	for _, tok := range all {
		ids = append(ids, tok.ID)
	}
	return ids
}

func putToken(t testing.TB, s store.Store, tok store.Token) error {
	t.Helper()
	return s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Principals.PutToken(ctx, tok) })
}

func principalTokens(t *testing.T, s store.Store) {
	tok := store.Token{ID: "t1", Principal: "p", Hash: []byte{0, 1, 255}, Expires: epoch, Created: epoch}
	code(t, "token of nobody", putToken(t, s, tok), headgate.CodeNotFound)
	putPrincipal(t, s, store.Principal{Principal: headgate.Principal{Name: "p"}})
	putPrincipal(t, s, store.Principal{Principal: headgate.Principal{Name: "q"}})
	get := func(ctx context.Context, tx *store.Tx) (store.Token, error) { return tx.Principals.Token(ctx, "t1") }
	code(t, "absent token", failing(t, s, get), headgate.CodeNotFound)
	for _, expires := range []time.Time{epoch, {}, epoch.Add(time.Nanosecond)} {
		tok.Expires = expires
		if err := putToken(t, s, tok); err != nil {
			t.Fatalf("PutToken: %v", err)
		}
		equal(t, "token", read(t, s, get), tok)
	}
	for i, name := range []string{"p", "q", "p"} {
		if err := putToken(t, s, store.Token{ID: fmt.Sprint("u", i), Principal: name, Created: epoch.Add(-time.Duration(i))}); err != nil {
			t.Fatalf("PutToken: %v", err)
		}
	}
	equal(t, "tokens, oldest first", tokensOf(t, s, "p"), []string{"u2", "t1", "u0"})
	for range 2 {
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Principals.DeleteToken(ctx, "t1") })
	}
	equal(t, "tokens", tokensOf(t, s, "p"), []string{"u2", "u0"})
}

func principalDelete(t *testing.T, s store.Store) {
	for _, name := range []string{"p", "q"} {
		putPrincipal(t, s, store.Principal{Principal: headgate.Principal{Name: name}})
		if err := putToken(t, s, store.Token{ID: "t" + name, Principal: name}); err != nil {
			t.Fatalf("PutToken: %v", err)
		}
	}
	remove := func(ctx context.Context, tx *store.Tx) error { return tx.Principals.Delete(ctx, "p") }
	update(t, s, remove)
	code(t, "deleted twice", s.Update(t.Context(), remove), headgate.CodeNotFound)
	err := failing(t, s, func(ctx context.Context, tx *store.Tx) (store.Token, error) { return tx.Principals.Token(ctx, "tp") })
	code(t, "token of a deleted principal", err, headgate.CodeNotFound)
	equal(t, "tokens of the other", tokensOf(t, s, "q"), []string{"tq"})
}
