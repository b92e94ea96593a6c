package pgrelay_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5/pgconn"
)

func (r *rig) sqlState(sql string, args ...any) string {
	r.t.Helper()
	_, err := r.connect().Exec(context.Background(), sql, args...)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	must(r.t, err)
	return ""
}

func TestChangesThatMakeNoEventFail(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`CREATE TABLE public.orders (id text PRIMARY KEY, note text, raw bytea, doc json)`)
	must(t, pgrelay.Watch(context.Background(), r.db, "public.orders", "orders"))
	r.exec(`INSERT INTO public.orders VALUES ('a', 'small')`)
	for _, c := range []struct{ sql, want string }{
		{`UPDATE public.orders SET note = repeat('x', 150000000)`, "HG102"}, // no JSON is made of it
		{`UPDATE public.orders SET note = repeat('x', 6400000)`, "HG102"},
		{`UPDATE public.orders SET raw = decode(repeat('00', 3200000), 'hex')`, "HG102"}, // twice as long in JSON
		{`INSERT INTO public.orders VALUES ('b', repeat('x', 6400000))`, "HG102"},
		{`UPDATE public.orders SET doc = '{"a":"\u0000"}'`, "HG110"},
		{`UPDATE public.orders SET note = repeat('x', 2900000)`, ""},
		{`UPDATE public.orders SET note = repeat('z', 3500000)`, "HG102"}, // before and after
		{`SELECT set_config('headgate.cause', repeat('x', 5000), false), headgate.emit('order.placed', '{"n":1}')`, "HG104"},
		{`SELECT set_config('headgate.cause', 'no token', false), headgate.emit('order.placed', '{"n":1}')`, "HG104"},
		{`WITH s AS MATERIALIZED (SELECT set_config('headgate.cause', 'no token', false) AS v) UPDATE public.orders SET note = v FROM s`, "HG104"},
		{`SELECT headgate.set_cause(repeat('x', 5000))`, "HG104"},
		{`INSERT INTO headgate.outbox (id, role, type, data) VALUES ('x', 'headgate', 'order.placed', convert_to(repeat('x', 6300000), 'UTF8'))`, "23514"},
		{`DELETE FROM public.orders`, ""},
	} {
		if got := r.sqlState(c.sql); got != c.want {
			t.Errorf("%.90s: SQLSTATE %q, want %q", c.sql, got, c.want)
		}
	}
}

// Keys may hold what no subject may: the change is told all the same.
func TestWatchedKeysOfAnyCharacter(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`CREATE TABLE public.orders (id text PRIMARY KEY)`)
	must(t, pgrelay.Watch(context.Background(), r.db, "public.orders", "orders"))
	keys := []string{"plain", "line\nbreak", "\u0001", "del\u007f", "c1\u0085", "\ufdd0", "\uffff", "\U0001ffff", strings.Repeat("é", 1200)}
	x := r.run(nil)
	for _, key := range keys {
		r.exec(`INSERT INTO public.orders VALUES ($1)`, key)
	}
	for i, c := range r.changes(x, len(keys)) {
		if i == 0 && c.Key["id"] == "plain" && x.Wait(t, 1)[0].Row.Event.Subject == "" {
			t.Error("a plain key has no subject")
		}
	}
	if n := len(r.Kept()); n > 0 {
		t.Errorf("%d changes are in quarantine", n)
	}
	r.exec("CREATE TABLE public.\"a\nb\" (id int PRIMARY KEY)")
	if err := pgrelay.Watch(context.Background(), r.db, "public.\"a\nb\"", "orders"); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
		t.Errorf("a table whose name no key may hold: %v", err)
	}
}

// Rows of the table's owner are bound by nothing. What is larger than an event
// is passed in bounded memory: its head is kept, the row stays.
func TestOversizedRowStopsNobody(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`ALTER TABLE headgate.outbox DROP CONSTRAINT outbox_data_check`)
	x := r.run(func(c *relay.Config) { c.InFlightBytes = 4 << 20 })
	const size = 40 << 20
	r.exec(`INSERT INTO headgate.outbox (id, role, type, key, data) VALUES ('huge', session_user, 'order.placed', 'k1', convert_to(repeat('x', $1), 'UTF8'))`, size)
	r.exec(`INSERT INTO headgate.outbox (id, role, type, key, cause) VALUES ('cause', session_user, 'order.placed', 'k2', repeat('x', 20000000))`)
	r.emit(1, 20)
	x.Wait(t, 22)
	r.Verify(20)
	check := func() {
		t.Helper()
		kept := r.Kept()
		if len(kept) != 2 {
			t.Fatalf("%d records are kept, want 2", len(kept))
		}
		for _, k := range kept {
			var body struct {
				ID, Oversized, Data string
				Bytes               int
				Truncated           bool
			}
			must(t, json.Unmarshal(k.Body, &body))
			if k.Reason != "too_large" || !body.Truncated || len(k.Body) > 3<<20 ||
				body.ID == "huge" && (body.Oversized != "data" || body.Bytes != size || len(body.Data) != 2+2<<20) ||
				body.ID == "cause" && (body.Oversized != "cause" || body.Bytes < 65537) || body.ID == "" {
				t.Errorf("kept: %s %q, %d bytes: %s, %s of %d bytes", k.Reason, k.Message, len(k.Body), body.ID, body.Oversized, body.Bytes)
			}
		}
	}
	check()
	x.Stop()
	// Read from the table it is the same, and makes no second record.
	r.exec(`UPDATE headgate.relay_state SET repair = 'a test', proven_snapshot = NULL`)
	x = r.run(nil)
	x.Wait(t, 22)
	check()
	r.Verify(20)
	// The rest of the row is nowhere else, so its partition stays.
	r.until("all of it is proven", func() bool {
		return pgtest.Exec(t, r.db, `SELECT NOT EXISTS (SELECT FROM headgate.outbox, headgate.relay_state WHERE NOT coalesce(pg_visible_in_snapshot(xid, proven_snapshot), false))`)[0][0] == "t"
	})
	if got := pgtest.Exec(t, r.db, `SELECT cardinality(headgate.maintain('-3 days'))`); got[0][0] == "0" {
		t.Errorf("no partition is dropped at all")
	}
	if got := pgtest.Exec(t, r.db, `SELECT octet_length(data) FROM headgate.outbox WHERE id = 'huge'`); len(got) != 1 {
		t.Error("the row is gone")
	}
}
