package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var registryCases = map[string]func(*testing.T, store.Store){
	"Schemas":       registrySchemas,
	"Versions":      registryVersions,
	"References":    registryReferences,
	"Remove":        registryRemove,
	"OneOfManyWins": registryRace,
}

func registrySchema(space string, id int, identity string) store.RegistrySchema {
	return store.RegistrySchema{Context: space, ID: id, Type: "JSON", Text: []byte(`{"a": 1}`), Identity: identity, GUID: "guid-" + identity}
}

func putRegistrySchema(t testing.TB, s store.Store, rs store.RegistrySchema) error {
	t.Helper()
	return s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Registry.PutSchema(ctx, rs) })
}

func putRegistryVersion(t testing.TB, s store.Store, v store.RegistryVersion, refs ...store.RegistryReference) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Registry.PutVersion(ctx, v, refs) })
}

func registryVersionsOf(t testing.TB, s store.Store, f store.RegistryFilter) []store.RegistryVersion {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.RegistryVersion, error) {
		return tx.Registry.Versions(ctx, f)
	})
}

func registrySchemas(t *testing.T, s store.Store) {
	for i, w := range weird {
		want := store.RegistrySchema{Context: w, ID: i + 1, Type: w, Text: []byte(w), Refs: nil, Extras: []byte(w), Identity: w, GUID: w}
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Registry.PutSchema(ctx, want) })
		equal(t, "by id", read(t, s, func(ctx context.Context, tx *store.Tx) (store.RegistrySchema, error) {
			return tx.Registry.Schema(ctx, w, i+1)
		}), want)
		equal(t, "by identity", read(t, s, func(ctx context.Context, tx *store.Tx) (store.RegistrySchema, error) {
			return tx.Registry.FindSchema(ctx, w, w)
		}), want)
		equal(t, "by GUID", read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.RegistrySchema, error) {
			return tx.Registry.SchemasByGUID(ctx, w)
		}), []store.RegistrySchema{want})
	}
	code(t, "an id twice", putRegistrySchema(t, s, registrySchema("", 1, "new")), headgate.CodeConflict)
	code(t, "an identity twice", putRegistrySchema(t, s, registrySchema("", 99, "")), headgate.CodeConflict)
	code(t, "absent id", failing(t, s, func(ctx context.Context, tx *store.Tx) (store.RegistrySchema, error) {
		return tx.Registry.Schema(ctx, "", 98)
	}), headgate.CodeNotFound)
	code(t, "absent identity", failing(t, s, func(ctx context.Context, tx *store.Tx) (store.RegistrySchema, error) {
		return tx.Registry.FindSchema(ctx, "", "absent")
	}), headgate.CodeNotFound)
	// Another context has ids of its own.
	for _, space := range []string{"y", "x"} {
		if err := putRegistrySchema(t, s, registrySchema(space, 1, "shared")); err != nil {
			t.Error(err)
		}
	}
	both := read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.RegistrySchema, error) {
		return tx.Registry.SchemasByGUID(ctx, "guid-shared")
	})
	equal(t, "one GUID in two contexts", both, []store.RegistrySchema{registrySchema("x", 1, "shared"), registrySchema("y", 1, "shared")})
}

func registryVersions(t *testing.T, s store.Store) {
	var all []store.RegistryVersion
	for i, subject := range []string{"a", "ab", "b", "日本"} {
		for v := 1; v <= 3; v++ {
			row := store.RegistryVersion{Subject: subject, Version: v, Context: "c", ID: i + 1, Deleted: v == 2}
			putRegistryVersion(t, s, row)
			all = append(all, row)
		}
	}
	equal(t, "all", registryVersionsOf(t, s, store.RegistryFilter{}), all)
	equal(t, "by prefix", registryVersionsOf(t, s, store.RegistryFilter{Prefix: "a"}), all[:6])
	equal(t, "by subject", registryVersionsOf(t, s, store.RegistryFilter{Subject: "a"}), all[:3])
	equal(t, "by schema", registryVersionsOf(t, s, store.RegistryFilter{Context: "c", ID: 3}), all[6:9])
	equal(t, "of another context", registryVersionsOf(t, s, store.RegistryFilter{Context: "d", ID: 3}), []store.RegistryVersion(nil))
	equal(t, "of no subject", registryVersionsOf(t, s, store.RegistryFilter{Subject: "zz"}), []store.RegistryVersion(nil))
	changed := all[4]
	changed.Deleted, changed.ID = false, 9
	putRegistryVersion(t, s, changed)
	equal(t, "replaced", registryVersionsOf(t, s, store.RegistryFilter{Subject: "ab"})[1], changed)
}

func registryReferences(t *testing.T, s store.Store) {
	base := store.RegistryReference{Subject: "base", Version: 1}
	for _, subject := range []string{"user2", "user1"} {
		putRegistryVersion(t, s, store.RegistryVersion{Subject: subject, Version: 1, Context: "c", ID: 1},
			base, base, store.RegistryReference{Subject: "base", Version: 2})
	}
	subjects := func(ref store.RegistryReference) string {
		out := ""
		for _, v := range registryVersionsOf(t, s, store.RegistryFilter{RefersTo: ref}) {
			out += v.Subject + " "
		}
		return out
	}
	equal(t, "who refers", subjects(base), "user1 user2 ")
	putRegistryVersion(t, s, store.RegistryVersion{Subject: "user1", Version: 1, Context: "c", ID: 1})
	equal(t, "who refers after a change", subjects(base), "user2 ")
	update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Registry.RemoveVersion(ctx, "user2", 1) })
	equal(t, "who refers after a removal", subjects(base), "")
}

func registryRemove(t *testing.T, s store.Store) {
	if err := putRegistrySchema(t, s, registrySchema("c", 1, "one")); err != nil {
		t.Fatal(err)
	}
	for v := 1; v <= 2; v++ {
		putRegistryVersion(t, s, store.RegistryVersion{Subject: "a", Version: v, Context: "c", ID: 1})
	}
	remove := func(version int) error {
		return s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Registry.RemoveVersion(ctx, "a", version) })
	}
	schema := func() headgate.Code {
		return headgate.CodeOf(failing(t, s, func(ctx context.Context, tx *store.Tx) (store.RegistrySchema, error) {
			return tx.Registry.Schema(ctx, "c", 1)
		}))
	}
	if err := remove(1); err != nil || schema() != "" {
		t.Errorf("a schema that another version has: %v, %s", err, schema())
	}
	code(t, "again", remove(1), headgate.CodeNotFound)
	if err := remove(2); err != nil || schema() != headgate.CodeNotFound {
		t.Errorf("a schema that no version has: %v, %q", err, schema())
	}
}

// Of writers that register the same at once, one adds it.
func registryRace(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { errs[i] = putRegistrySchema(t, s, registrySchema("c", i+1, "same")) })
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
		} else {
			code(t, fmt.Sprint("writer ", i), err, headgate.CodeConflict)
		}
	}
	equal(t, "winners", won, 1)
}
