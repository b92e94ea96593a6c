package sim

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// deed is one thing that is done to a store, and what it answers.
type deed func(context.Context, *store.Tx) (any, error)

// drawn draws a deed.
func drawn(t *rapid.T) (string, deed) {
	resource := rapid.SampledFrom([]string{"a", "b", "b/c", "é"}).Draw(t, "resource")
	epoch := rapid.Int64Range(1, 6).Draw(t, "epoch")
	at := time.Unix(1_800_000_000+rapid.Int64Range(0, 5).Draw(t, "at"), 0).UTC()
	key := rapid.SampledFrom([]string{"k/1", "k/2", "l", ""}).Draw(t, "key")
	some := []byte(rapid.SampledFrom([]string{"x", "yy"}).Draw(t, "value"))
	kind := rapid.SampledFrom([]string{"grant", "grant", "touch", "get", "list", "put", "delete", "read", "settings", "remember", "remembered", "forget"}).Draw(t, "kind")
	text := fmt.Sprint(kind, " ", resource, " ", epoch, " ", at.Unix(), " ", key)
	return text, map[string]deed{
		"grant": func(ctx context.Context, tx *store.Tx) (any, error) {
			l := store.Lease{Resource: resource, Epoch: epoch, Nonce: some, Holder: key, TTL: time.Second, Audience: []string{"x"}, Acquired: at, Expires: at, Changed: at}
			return nil, tx.Leases.Grant(ctx, l)
		},
		"touch": func(ctx context.Context, tx *store.Tx) (any, error) {
			return nil, tx.Leases.Touch(ctx, resource, epoch, at, at, len(some) == 1)
		},
		"get": func(ctx context.Context, tx *store.Tx) (any, error) { return tx.Leases.Get(ctx, resource) },
		"list": func(ctx context.Context, tx *store.Tx) (any, error) {
			f := store.LeaseFilter{Prefix: key, After: resource, Limit: int(epoch)}
			if len(some) == 1 {
				f = store.LeaseFilter{HeldAt: at}
			}
			all, err := tx.Leases.List(ctx, f)
			return append([]store.Lease{}, all...), err
		},
		"put":    func(ctx context.Context, tx *store.Tx) (any, error) { return nil, tx.Settings.Put(ctx, key, some) },
		"delete": func(ctx context.Context, tx *store.Tx) (any, error) { return nil, tx.Settings.Delete(ctx, key) },
		"read":   func(ctx context.Context, tx *store.Tx) (any, error) { return tx.Settings.Get(ctx, key) },
		"settings": func(ctx context.Context, tx *store.Tx) (any, error) {
			return tx.Settings.List(ctx, key)
		},
		"remember": func(ctx context.Context, tx *store.Tx) (any, error) {
			return nil, tx.Leases.Remember(ctx, some, some, at)
		},
		"remembered": func(ctx context.Context, tx *store.Tx) (any, error) { return tx.Leases.Remembered(ctx, some) },
		"forget": func(ctx context.Context, tx *store.Tx) (any, error) {
			return tx.Leases.Forget(ctx, at, int(epoch)%3, 1)
		},
	}[kind]
}

// done runs deeds in one transaction; any failure rolls all of them back when
// keep is false.
func done(ctx context.Context, st store.Store, deeds []deed, keep bool) (answers []string) {
	err := st.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		answers = nil
		for _, d := range deeds {
			v, err := d(ctx, tx)
			if code := headgate.CodeOf(err); code != "" {
				v = code
			}
			answers = append(answers, fmt.Sprintf("%+v", v))
		}
		if !keep {
			return headgate.NewError(headgate.CodeConflict, "rolled back")
		}
		return nil
	})
	return append(answers, string(headgate.CodeOf(err)))
}

// TestDatabase: the simulated database answers as the real one does, also after
// a crash.
func TestDatabase(t *testing.T) {
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		if checks++; raced && checks > 15 {
			return // a database of SQLite takes long to open under the detector
		}
		type step struct {
			texts []string
			deeds []deed
			keep  bool
		}
		var steps []step
		for range rapid.IntRange(1, 12).Draw(rt, "transactions") {
			s := step{keep: rapid.IntRange(0, 3).Draw(rt, "keep") > 0}
			for range rapid.IntRange(1, 4).Draw(rt, "deeds") {
				text, d := drawn(rt)
				s.texts, s.deeds = append(s.texts, text), append(s.deeds, d)
			}
			steps = append(steps, s)
		}
		real, err := sqlitestore.Open(rt.Context(), sqlitestore.Config{Memory: true})
		if err != nil {
			rt.Fatal(err)
		}
		defer real.Close()
		wanted := make([][]string, len(steps))
		for i, s := range steps {
			wanted[i] = done(rt.Context(), real, s.deeds, s.keep)
		}
		var fault string
		synctest.Test(t, func(*testing.T) {
			w := &world{seed: 1}
			w.judge = newJudge(w)
			w.faults.heal()
			w.db = newDatabase(w, 0)
			a := w.actor("test")
			st := &session{database: w.db, life: &life{node: &node{w: w}}}
			for i, s := range steps {
				if diff := cmp.Diff(wanted[i], done(a.in(context.Background()), st, s.deeds, s.keep)); diff != "" {
					fault = fmt.Sprintf("%v: -real +simulated\n%s", s.texts, diff)
					return
				}
				w.db.crash(a)
				w.db.up = true
			}
		})
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}
