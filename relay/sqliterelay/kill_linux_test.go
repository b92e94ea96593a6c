package sqliterelay

import (
	"context"
	"database/sql"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
)

// The harnesses run this test binary again as the processes that they kill.
func TestMain(m *testing.M) {
	if mode, path, power := strings.Cut(os.Getenv(powerVariable), ":"); power {
		fmt.Fprintln(os.Stderr, victim(context.Background(), mode, path))
		os.Exit(1)
	}
	os.Exit(relaytest.Main(m, relaytest.Database{
		Source: func(path string, fault func(string)) (relay.Source, error) {
			return New(Config{Path: path, Connect: connector(path), fault: fault})
		},
		Writer: func(ctx context.Context, path string) (func(relaytest.Transaction) error, func(), error) {
			db, err := connect(path, "synchronous(normal)")
			if err != nil {
				return nil, nil, err
			}
			pause := time.NewTicker(20 * time.Millisecond)
			write := func(w relaytest.Transaction) error {
				<-pause.C
				return writeOnce(ctx, db, w)
			}
			return write, func() { _ = db.Close() }, nil // it is closed because it failed
		},
	}))
}

func writeOnce(ctx context.Context, db *sql.DB, w relaytest.Transaction) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit there is nothing to undo
	for range w.Rows {
		for _, statement := range []string{
			`UPDATE keys SET n = n + 1 WHERE k = ?1`,
			`INSERT INTO orders (k, n, poison) SELECT k, n, ?2 FROM keys WHERE k = ?1`,
			`INSERT INTO headgate_outbox (type, key, data) SELECT 'order.placed', 'k' || k, json_object('n', CASE WHEN ?2 THEN 'k' || k || '/' || shown ELSE shown END)
				FROM (SELECT k, CASE WHEN ?3 THEN -n ELSE n END AS shown FROM keys WHERE k = ?1)`,
		} {
			args := []any{w.Key, w.Poison, w.Rollback}
			highest := max(1, strings.Count(statement, "?2")*2, strings.Count(statement, "?3")*3)
			if _, err := tx.ExecContext(ctx, statement, args[:highest]...); err != nil {
				return err
			}
		}
	}
	if w.Rollback {
		return nil
	}
	return tx.Commit()
}

func newKilling(t *testing.T) *relaytest.Killing {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	db := open(t, path)
	must(t, Install(t.Context(), db))
	run(t, db, `CREATE TABLE keys (k INTEGER PRIMARY KEY, n INT NOT NULL DEFAULT 0); CREATE TABLE orders (k INT, n INT, poison INT NOT NULL, PRIMARY KEY (k, n))`)
	for k := range relaytest.Keys {
		run(t, db, `INSERT INTO keys (k) VALUES (?)`, k)
	}
	rows := func(which string) []string {
		ids, err := list(context.Background(), db, `SELECT 'k' || k || '/' || n FROM orders WHERE `+which)
		must(t, err)
		return ids
	}
	return relaytest.NewKilling(t, relaytest.Target{
		Place: path, Points: []string{"after read", "before cursor", "after cursor"},
		Committed: func() []string { return rows(`NOT poison`) },
		Poisoned:  func() []string { return rows(`poison`) },
		Rest: func() func() int64 {
			end := value[int64](t, db, `SELECT coalesce(max(seq), 0) FROM headgate_outbox_rows`)
			return func() int64 { return end - value[int64](t, db, `SELECT confirmed FROM headgate_outbox_state`) }
		},
		Aside: func() (n int) {
			pages, err := readAside(context.Background(), db)
			must(t, err)
			for _, p := range pages {
				for _, b := range p.Bits {
					n += bits.OnesCount8(b)
				}
			}
			return n
		},
	})
}

func TestKillsLoseNothing(t *testing.T) {
	t.Parallel() // it waits for processes of its own
	kills := 20
	if relaytest.Campaign() {
		kills = 500
	}
	h := newKilling(t)
	h.Slow = true
	h.LoseNothing(kills)
}

// The same with the broker in a process of its own, which dies as well, while
// node and writer live on.
func TestKillsOfTheBrokerLoseNothing(t *testing.T) {
	t.Parallel() // it waits for processes of its own
	kills := 12
	if relaytest.Campaign() {
		kills = 500
	}
	h := newKilling(t)
	h.Apart()
	h.LoseNothing(kills)
}

// A node that does not keep what it sets aside loses that when it dies, which is
// seen.
func TestKillsCatchForgettingWhatIsSetAside(t *testing.T) {
	t.Parallel() // it waits for processes of its own
	h := newKilling(t)
	h.Slow, h.Variant = true, relaytest.Forgetful
	h.StartWriter()
	db := open(t, h.Place)
	const rows = 300 // those of a minute
	relaytest.Until(t, "enough is written", func() bool {
		return value[int64](t, db, `SELECT coalesce(max(seq), 0) FROM headgate_outbox_rows`) > rows
	})
	h.KillWriter()
	h.StartNode("")
	relaytest.Until(t, "rows that wait for their rate are passed", func() bool {
		return value[int64](t, db, `SELECT confirmed FROM headgate_outbox_state`) >= rows
	})
	h.KillNode()
	h.Variant = relaytest.Right
	h.StartNode("")
	v := h.Finish()
	if t.Logf("%+v", v); v.Missing == 0 {
		t.Errorf("nothing is missing: the harness cannot see it: %+v", v)
	}
}

// behindStall lets the broker stand still while rows go on being written, until
// the relay has read some of them, and then kills node and broker: what was
// sent meanwhile is gone. It returns how often the database was told that rows
// are done which the broker cannot have.
func behindStall(t *testing.T, variant relaytest.Variant, times int) (moved int, v relaytest.Verdict) {
	t.Helper()
	h := newKilling(t)
	h.Apart()
	h.Variant = variant
	h.StartWriter()
	db := open(t, h.Place)
	highest := func() int64 { return value[int64](t, db, `SELECT coalesce(max(seq), 0) FROM headgate_outbox_rows`) }
	confirmed := func() int64 { return value[int64](t, db, `SELECT confirmed FROM headgate_outbox_state`) }
	for range times {
		before := confirmed()
		h.StartNode("")
		relaytest.Until(t, "it relays", func() bool { return confirmed() > before })
		h.StallBroker()
		stalled := highest()
		relaytest.Until(t, "more is written", func() bool { return highest() > stalled+1000 || confirmed() > stalled })
		if confirmed() > stalled {
			moved++
		}
		h.KillNode()
		h.KillBroker()
		h.StartBroker()
	}
	h.StartNode("")
	v = h.Finish()
	t.Logf("%d of %d times the cursor passed what the broker has: %+v", moved, times, v)
	return moved, v
}

func TestStallsOfTheBrokerLoseNothing(t *testing.T) {
	t.Parallel() // it waits for processes of its own
	if moved, v := behindStall(t, relaytest.Right, 3); moved > 0 || v.Committed == 0 || v.Faults() > 0 {
		t.Errorf("the cursor passed what the broker has %d times; %+v", moved, v)
	}
}

// A harness that cannot fail proves nothing: a relay that confirms before the
// acknowledgement must be caught. The broker stands still meanwhile, since one
// in the same process has an event in the system's cache, which a kill spares,
// before the cursor is on the disk.
func TestKillsCatchConfirmBeforeAck(t *testing.T) {
	t.Parallel() // it waits for processes of its own
	if moved, v := behindStall(t, relaytest.Early, 3); moved == 0 || v.Missing == 0 {
		t.Errorf("a relay that confirms too early lost nothing: the harness cannot see it: %+v", v)
	}
}
