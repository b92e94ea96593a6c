package storetest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var settingsCases = map[string]func(*testing.T, store.Store){
	"RoundTrip": settingsRoundTrip,
	"List":      settingsList,
	"Delete":    settingsDelete,
	"Large":     settingsLarge,
}

func setting(t testing.TB, s store.Store, key string) []byte {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) ([]byte, error) { return tx.Settings.Get(ctx, key) })
}

func putSetting(t testing.TB, s store.Store, key string, value []byte) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Settings.Put(ctx, key, value) })
}

func settingsRoundTrip(t *testing.T, s store.Store) {
	err := failing(t, s, func(ctx context.Context, tx *store.Tx) ([]byte, error) { return tx.Settings.Get(ctx, "absent") })
	code(t, "absent", err, headgate.CodeNotFound)
	for i, key := range weird {
		for _, value := range [][]byte{[]byte(weird[len(weird)-1-i]), {}, nil, {0}, {0xff, 0, 0xfe}} {
			putSetting(t, s, key, value)
			equal(t, fmt.Sprintf("value of %.20q", key), setting(t, s, key), value)
		}
	}
	all := read(t, s, func(ctx context.Context, tx *store.Tx) (map[string][]byte, error) { return tx.Settings.List(ctx, "") })
	equal(t, "number of settings", len(all), len(weird))
}

func settingsList(t *testing.T, s store.Store) {
	keys := append([]string{"a/", "a/1", "a/2", "a0", "a.", "b/1", "a/\xff", "a/\xff\xff", "\xff\xff", "\xff\xffx", "%", "_/1", "A/1"}, weird...)
	want := map[string][]byte{}
	update(t, s, func(ctx context.Context, tx *store.Tx) error {
		for _, k := range keys {
			want[k] = []byte("v:" + k)
			if err := tx.Settings.Put(ctx, k, want[k]); err != nil {
				return err
			}
		}
		return nil
	})
	for _, prefix := range append([]string{"a/", "a/\xff", "\xff", "\xff\xff", "%", "_", "zz"}, weird...) {
		got := read(t, s, func(ctx context.Context, tx *store.Tx) (map[string][]byte, error) {
			return tx.Settings.List(ctx, prefix)
		})
		some := maps.Clone(want)
		maps.DeleteFunc(some, func(k string, _ []byte) bool { return !strings.HasPrefix(k, prefix) })
		equal(t, fmt.Sprintf("settings under %.20q", prefix), got, some)
	}
}

func settingsDelete(t *testing.T, s store.Store) {
	putSetting(t, s, "k", []byte("v"))
	for range 2 {
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Settings.Delete(ctx, "k") })
	}
	err := failing(t, s, func(ctx context.Context, tx *store.Tx) ([]byte, error) { return tx.Settings.Get(ctx, "k") })
	code(t, "deleted", err, headgate.CodeNotFound)
}

func settingsLarge(t *testing.T, s store.Store) {
	large := make([]byte, 1<<20)
	src := rand.NewChaCha8([32]byte{1})
	_, _ = src.Read(large) // never fails
	update(t, s, func(ctx context.Context, tx *store.Tx) error {
		for i := range 8 {
			if err := tx.Settings.Put(ctx, fmt.Sprint("large", i), large[i:]); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range 8 {
		if !bytes.Equal(setting(t, s, fmt.Sprint("large", i)), large[i:]) {
			t.Errorf("large value %d changed", i)
		}
	}
}
