package pgrelay_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5/pgconn"
)

// change is the payload of a row change.
type change struct {
	Table, Change      string
	Key, Before, After map[string]any
}

func (r *rig) changes(x *relaytest.Running, n int) []change {
	r.t.Helper()
	var all []change
	for _, d := range x.Wait(r.t, n) {
		if d.Result.Err != nil {
			r.t.Errorf("a change was refused: %v", d.Result.Err)
		}
		var c change
		must(r.t, json.Unmarshal(d.Row.Event.Data, &c))
		all = append(all, c)
	}
	return all
}

func TestWatchedTableTellsEveryChange(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`CREATE TABLE public.customers (id int PRIMARY KEY)`)
	r.exec(`CREATE TABLE public.orders (id int PRIMARY KEY, customer int REFERENCES public.customers ON DELETE CASCADE, state text)`)
	must(t, pgrelay.Watch(context.Background(), r.db, "public.orders", "orders"))
	must(t, pgrelay.Watch(context.Background(), r.db, "public.orders", "orders")) // again changes nothing
	x := r.run(func(c *relay.Config) { c.Lanes = 1 })
	for _, sql := range []string{
		`INSERT INTO public.customers VALUES (1)`,
		`INSERT INTO public.orders VALUES (1, 1, 'new')`,
		`UPDATE public.orders SET state = 'paid'`,
		`MERGE INTO public.orders o USING (VALUES (1, 'sent'), (2, 'new')) v(id, state) ON o.id = v.id
			WHEN MATCHED THEN UPDATE SET state = v.state WHEN NOT MATCHED THEN INSERT VALUES (v.id, 1, v.state)`,
		`DELETE FROM public.customers`, // cascades
	} {
		r.exec(sql)
	}
	got := r.changes(x, 6)
	// Order is kept per key, and each table row is a key of its own.
	byKey := map[any][]change{}
	for _, c := range got {
		byKey[c.Key["id"]] = append(byKey[c.Key["id"]], c)
	}
	for key, want := range map[float64]string{1: "insert update update delete", 2: "insert delete"} {
		var verbs []string
		for _, c := range byKey[key] {
			verbs = append(verbs, c.Change)
		}
		if s := strings.Join(verbs, " "); s != want {
			t.Fatalf("the changes of row %v are %s, want %s", key, s, want)
		}
	}
	if c := byKey[1.0][1]; c.Table != "public.orders" || c.Before["state"] != "new" || c.After["state"] != "paid" || c.Key["id"] != 1.0 {
		t.Errorf("the update is %+v", c)
	}
	e := r.Stored()[0].Event
	if e.Header.Origin != headgate.OriginChange || e.Header.Principal != "orders" || e.Header.Actor != headgate.KindSystem {
		t.Errorf("the header is %+v", e.Header)
	}
	must(t, pgrelay.Unwatch(context.Background(), r.db, "public.orders"))
	r.exec(`TRUNCATE public.orders`)
}

func TestWatchedPartitionsAndTruncate(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`CREATE TABLE public.orders (id int PRIMARY KEY) PARTITION BY RANGE (id)`)
	r.exec(`CREATE TABLE public.orders_a PARTITION OF public.orders FOR VALUES FROM (0) TO (10)`)
	must(t, pgrelay.Watch(context.Background(), r.db, "public.orders", "orders"))
	r.exec(`CREATE TABLE public.orders_b PARTITION OF public.orders FOR VALUES FROM (10) TO (20)`)
	x := r.run(func(c *relay.Config) { c.Lanes = 1 })
	r.exec(`INSERT INTO public.orders VALUES (1), (11)`)
	r.exec(`INSERT INTO public.orders_a VALUES (2)`)
	r.exec(`UPDATE public.orders SET id = 12 WHERE id = 2`) // moves: a deletion and an insertion
	for _, c := range r.changes(x, 5) {
		if c.Table != "public.orders" {
			t.Errorf("a change is told of %s", c.Table)
		}
	}
	for _, name := range []string{"public.orders", "public.orders_a"} {
		_, err := r.connect().Exec(context.Background(), `TRUNCATE `+name)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "HG105" {
			t.Errorf("TRUNCATE %s: %v", name, err)
		}
	}
	found, err := pgrelay.Doctor(context.Background(), r.db)
	must(t, err)
	named := false
	for _, f := range found {
		named = named || strings.Contains(f.What, "orders_b") && strings.Contains(f.What, "TRUNCATE")
	}
	if !named {
		t.Errorf("the doctor does not name the partition without a guard: %+v", found)
	}
}

func TestTablesThatCannotBeWatchedAreRefused(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	for _, sql := range []string{
		`CREATE TABLE public.nokey (id int)`,
		`CREATE UNLOGGED TABLE public.unlogged (id int PRIMARY KEY)`,
		`CREATE VIEW public.seen AS SELECT * FROM public.nokey`,
		`CREATE TABLE public.parent (id int PRIMARY KEY)`,
		`CREATE TABLE public.child () INHERITS (public.parent)`,
		`CREATE TABLE public.whole (id int PRIMARY KEY) PARTITION BY RANGE (id)`,
		`CREATE TABLE public.part PARTITION OF public.whole DEFAULT`,
	} {
		r.exec(sql)
	}
	for name, want := range map[string]string{
		"public.nokey": "no primary key", "public.unlogged": "unlogged", "public.seen": "is no table", "public.parent": "inheritance",
		"public.part": "is a partition", "headgate.outbox": "schema headgate", "public.absent": "does not exist",
	} {
		err := pgrelay.Watch(context.Background(), r.db, name, "orders")
		if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeInvalidArgument || !strings.Contains(e.Detail, want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestWritersNeedNothingButTheFunctions(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	c := r.connect()
	ctx := context.Background()
	role := "w" + strings.TrimPrefix(c.Config().Database, "t_")
	r.exec(`CREATE ROLE ` + role + ` LOGIN`)
	t.Cleanup(func() { pgtest.Exec(t, pgtest.URL(t), `DROP ROLE `+role) })
	t.Cleanup(func() { pgtest.Exec(t, r.db, `REVOKE headgate_writer FROM `+role) })
	state := func(sql string) string {
		t.Helper()
		cfg := c.Config().Config.Copy()
		cfg.User = role
		w, err := pgconn.ConnectConfig(ctx, cfg)
		must(t, err)
		defer w.Close(ctx)
		_, err = w.Exec(ctx, sql).ReadAll()
		if e, ok := errors.AsType[*pgconn.PgError](err); ok {
			return e.Code
		}
		must(t, err)
		return ""
	}
	if s := state(`SELECT headgate.emit('order.placed', '{"n":1}')`); s != "42501" {
		t.Errorf("a role without the right: %q", s)
	}
	must(t, pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{Writers: []string{role}}))
	for sql, want := range map[string]string{
		`SELECT headgate.emit('order.placed', '{"n":1}')`:                               "",
		`SELECT headgate.emit('Order Placed', '{"n":1}')`:                               "HG101",
		`SELECT headgate.emit('order.placed', to_jsonb(repeat('x', 7000000)))`:          "HG102",
		`SELECT headgate.emit('order.placed', '{"n":1}', repeat('k', 5000))`:            "HG103",
		`SELECT headgate.set_cause('not a token')`:                                      "HG104",
		`INSERT INTO headgate.outbox (id, role, type) VALUES ('x', 'other', 'order.x')`: "42501",
		`SELECT count(*) FROM headgate.outbox`:                                          "42501",
		`SELECT headgate.maintain('1 day')`:                                             "42501",
		`UPDATE headgate.relay_state SET epoch = 0`:                                     "42501",
		`SET ROLE headgate`: "42501",
	} {
		if got := state(sql); got != want {
			t.Errorf("%.60s: SQLSTATE %q, want %q", sql, got, want)
		}
	}
	// The role is the session's, also behind SET ROLE within its rights.
	if got := pgtest.Exec(t, r.db, `SELECT role FROM headgate.outbox`); len(got) != 1 || got[0][0] != role {
		t.Errorf("rows: %v", got)
	}
}

func TestReplayMintsNewEvents(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 5)
	x.Wait(t, 5)
	ctx := context.Background()
	if n, err := pgrelay.Replay(ctx, r.db, pgrelay.ReplayFilter{Key: "k1"}, true); err != nil || n != 1 {
		t.Fatalf("dry run: %d, %v", n, err)
	}
	if n, err := pgrelay.Replay(ctx, r.db, pgrelay.ReplayFilter{Key: "k1"}, false); err != nil || n != 1 {
		t.Fatalf("replay: %d, %v", n, err)
	}
	again := x.Wait(t, 6)[5]
	if of, _ := again.Row.Event.Extension("replayof"); of == "" || again.Result.Err != nil || again.Result.Duplicate {
		t.Errorf("the replayed row ended as %+v", again.Result)
	}
	// Again, it is not the replay that is replayed, unless its id is named.
	if n, err := pgrelay.Replay(ctx, r.db, pgrelay.ReplayFilter{Key: "k1"}, false); err != nil || n != 1 {
		t.Fatalf("replay again: %d, %v", n, err)
	}
	if n, err := pgrelay.Replay(ctx, r.db, pgrelay.ReplayFilter{IDs: []string{again.Row.Event.ID}}, false); err != nil || n != 1 {
		t.Fatalf("replay of a replay: %d, %v", n, err)
	}
	of, _ := again.Row.Event.Extension("replayof")
	for _, d := range x.Wait(t, 8)[6:] {
		if got, _ := d.Row.Event.Extension("replayof"); got != of {
			t.Errorf("replayof is %q, want %q", got, of)
		}
	}
	if _, err := pgrelay.Replay(ctx, r.db, pgrelay.ReplayFilter{}, false); err == nil {
		t.Error("everything may be replayed at once")
	}
}

func TestInstallTwiceAndDryRun(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	must(t, pgrelay.Install(context.Background(), r.db, pgrelay.InstallOptions{}))
	err := pgrelay.Install(context.Background(), r.db, pgrelay.InstallOptions{Slot: "another"})
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeConflict {
		t.Errorf("another slot: %v", err)
	}
	if _, err := pgrelay.Script("x", pgrelay.InstallOptions{Slot: "Bad Name"}); err == nil {
		t.Error("a bad slot name passes")
	}
	if s, err := pgrelay.Script("x", pgrelay.InstallOptions{Writers: []string{`a"; DROP`}}); err != nil || !strings.Contains(s, `"a""; DROP"`) {
		t.Errorf("a role's name is not quoted: %v", err)
	}
}

// The login of the node needs REPLICATION and headgate_relay, and nothing else.
func TestRelayNeedsNothingButItsRole(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	src, err := pgrelay.New(pgrelay.Config{URL: r.asRelay().db, Beat: 500 * time.Millisecond, Log: r.Log()})
	must(t, err)
	x := r.run(func(c *relay.Config) { c.Source = src })
	r.emit(1, 10)
	x.Wait(t, 10)
	x.Stop()
	// It can also make the slot anew and repair from the table.
	r.dropSlot(false) // the server may not have noticed the end yet
	r.emit(11, 20)
	x = r.run(func(c *relay.Config) { c.Source = src })
	r.until("all are stored", func() bool { return len(r.Stored()) == 20 })
	r.Verify(20)
	x.Stop()
}
