package pgrelay_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5"
)

// The harness runs this test binary again as the processes that it kills.
func TestMain(m *testing.M) {
	os.Exit(relaytest.Main(m, relaytest.Database{
		Source: func(url string, _ func(string)) (relay.Source, error) {
			return pgrelay.New(pgrelay.Config{URL: url, Beat: time.Second})
		},
		Writer: func(ctx context.Context, url string) (func(relaytest.Transaction) error, func(), error) {
			c, err := pgx.Connect(ctx, url)
			if err != nil {
				return nil, nil, err
			}
			write := func(w relaytest.Transaction) error { return writeOnce(ctx, c, w) }
			return write, func() { _ = c.Close(ctx) }, nil // it is closed because it failed
		},
	}))
}

func writeOnce(ctx context.Context, c *pgx.Conn, w relaytest.Transaction) error {
	tx, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	for range w.Rows {
		_, err = tx.Exec(ctx, `
			WITH n AS (UPDATE public.keys SET n = n + 1 WHERE k = $1 RETURNING n, CASE WHEN $2 THEN -n ELSE n END AS shown),
			     o AS (INSERT INTO public.orders (k, n, poison) SELECT $1, n, $3 FROM n)
			SELECT headgate.emit('order.placed', jsonb_build_object('n', CASE WHEN $3 THEN to_jsonb('k' || $1 || '/' || shown) ELSE to_jsonb(shown) END), 'k' || $1) FROM n`,
			w.Key, w.Rollback, w.Poison)
		if err != nil {
			return err
		}
	}
	if w.Rollback {
		return tx.Rollback(ctx)
	}
	return tx.Commit(ctx)
}

// newKilling prepares a server of the test's own.
func newKilling(t *testing.T) *relaytest.Killing {
	t.Helper()
	server := pgtest.Start(t, "wal_level=logical")
	return relaytest.NewKilling(t, target(t, server))
}

// target prepares a server for the harness.
func target(t *testing.T, server *pgtest.Cluster) relaytest.Target {
	t.Helper()
	url := server.URL()
	must(t, pgrelay.Install(context.Background(), url, pgrelay.InstallOptions{}))
	pgtest.Exec(t, url, fmt.Sprintf(`CREATE TABLE public.keys (k int PRIMARY KEY, n int NOT NULL DEFAULT 0);
		CREATE TABLE public.orders (k int, n int, poison boolean NOT NULL DEFAULT false, PRIMARY KEY (k, n)); INSERT INTO public.keys (k) SELECT generate_series(0, %d)`, relaytest.Keys-1))
	rows := func(which string) (all []string) {
		for _, row := range pgtest.Exec(t, url, `SELECT 'k' || k || '/' || n FROM public.orders WHERE `+which) {
			all = append(all, row[0])
		}
		return all
	}
	return relaytest.Target{
		Place:     url,
		Crash:     func() { server.Crash(); server.Restart() },
		Committed: func() []string { return rows(`NOT poison`) },
		Poisoned:  func() []string { return rows(`poison`) },
		Rest: func() func() int64 {
			// What the killed writer left open ends with its connection.
			pgtest.Exec(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '' AND state LIKE 'idle in%'`)
			end := pgtest.Exec(t, url, `SELECT pg_current_wal_insert_lsn()`)[0][0]
			return func() int64 {
				rows := pgtest.Exec(t, url, `SELECT greatest(0, '`+end+`' - r.confirmed_flush_lsn)::bigint + CASE WHEN s.repair IS NULL THEN 0 ELSE 1 END
					FROM headgate.relay_state s JOIN pg_replication_slots r ON r.slot_name = s.slot`)
				if len(rows) == 0 {
					return 1 << 62 // there is no slot at the moment
				}
				n, err := strconv.ParseInt(rows[0][0], 10, 64)
				must(t, err)
				return n
			}
		},
		Aside: func() int {
			n, err := strconv.Atoi(pgtest.Exec(t, url, `SELECT coalesce(sum(bit_count(bits)), 0) FROM headgate.outbox_aside`)[0][0])
			must(t, err)
			return n
		},
	}
}

func TestKillsLoseNothing(t *testing.T) {
	t.Parallel() // it has a server of its own
	kills := 16
	if relaytest.Campaign() {
		kills = 500
	}
	h := newKilling(t)
	h.Slow = true
	h.LoseNothing(kills)
}

// The same with the broker in a process of its own, which dies as well, while
// node, writer and database live on.
func TestKillsOfTheBrokerLoseNothing(t *testing.T) {
	t.Parallel() // it has servers of its own
	kills := 16
	if relaytest.Campaign() {
		kills = 500
	}
	h := newKilling(t)
	h.Apart()
	h.LoseNothing(kills)
}

// A harness that cannot fail proves nothing: a relay that confirms before the
// acknowledgement must be caught.
func TestKillsCatchConfirmBeforeAck(t *testing.T) {
	t.Parallel() // it has a server of its own
	h := newKilling(t)
	h.Variant = relaytest.Early
	h.StartWriter()
	for i := range 12 {
		h.StartNode("before publish:" + strconv.Itoa(5+i))
		h.AwaitEnd(time.Minute) // it kills itself with rows in hand
		h.StartNode("")
		<-time.NewTimer(400 * time.Millisecond).C
		h.KillNode()
	}
	h.StartNode("")
	v := h.Finish()
	t.Logf("%+v", v)
	if v.Missing == 0 {
		t.Error("a relay that confirms too early lost nothing: the harness cannot see it")
	}
}
