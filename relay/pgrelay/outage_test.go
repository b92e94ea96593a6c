package pgrelay_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/broker/natsbroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5"
)

// outsideNATS is a driver on a server that other tests use too: its streams are
// its own, by their prefix.
func outsideNATS(t testing.TB, url string) (br *natsbroker.Broker, prefix string) {
	t.Helper()
	prefix = fmt.Sprintf("T%X", time.Now().UnixNano())
	br, err := natsbroker.Open(context.Background(), natsbroker.Config{URL: url, Prefix: prefix})
	must(t, err)
	t.Cleanup(func() { _ = br.Close(context.Background()) })
	return br, prefix
}

func natsURL(t testing.TB) string {
	t.Helper()
	url := os.Getenv("HEADGATE_TEST_NATS")
	if url == "" {
		if os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1" {
			t.Fatal("HEADGATE_TEST_NATS names no server")
		}
		t.Skip("HEADGATE_TEST_NATS names no server; scripts/services run CMD starts one")
	}
	return url
}

// writing writes numbered events at 500 transactions a second over 64 keys, each
// key by one of eight connections.
type writing struct {
	r    *rig
	last atomic.Int64
	stop chan struct{}
	all  sync.WaitGroup
}

func (r *rig) write() *writing {
	r.t.Helper()
	const workers, rate = 8, 500
	w := &writing{r: r, stop: make(chan struct{})}
	for k := range workers {
		c, err := pgx.Connect(context.Background(), r.db)
		must(r.t, err)
		w.all.Go(func() {
			defer c.Close(context.Background())
			tick := time.NewTicker(workers * time.Second / rate)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-w.stop:
					return
				}
				n := w.last.Add(1)
				key := fmt.Sprintf("k%d.%d", k, n%8)
				_, err := c.Exec(context.Background(), `SELECT headgate.emit('order.placed', jsonb_build_object('n', $1::bigint, 'pad', repeat('x', 350)), $2::text)`, n, key)
				if err != nil {
					r.t.Errorf("writing: %v", err)
					return
				}
			}
		})
	}
	return w
}

// end stops writing and returns how many events there are.
func (w *writing) end() int {
	close(w.stop)
	w.all.Wait()
	return int(w.last.Load())
}

// lags collects the times from commit to acknowledgement, by the second of the
// acknowledgement.
type lags struct {
	mu sync.Mutex
	by map[int64][]time.Duration
}

func (l *lags) add(d relay.Done) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by[d.At.Unix()] = append(l.by[d.At.Unix()], d.At.Sub(d.Row.Committed))
}

// p99 is that of one second.
func (l *lags) p99(second int64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Sorted(slices.Values(l.by[second]))
	if len(all) == 0 {
		return 0
	}
	return all[len(all)*99/100]
}

// The broker cannot be reached for long while transactions go on: the database
// keeps what the relay's budget allows, and nothing is lost, doubled or out of
// order when the broker is back.
func TestTrap13BrokerAway(t *testing.T) {
	away, before, after, budget, beat := 12*time.Second, time.Second, 3*time.Second, int64(24<<20), time.Second
	if relaytest.Campaign() {
		away, before, after, budget, beat = 10*time.Minute, 10*time.Second, time.Minute, 64<<20, 5*time.Second
	}
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "min_wal_size=32MB", "max_wal_size=64MB")
	w, through := newWire(t, natsURL(t))
	br, _ := outsideNATS(t, through)
	r := newRigOn(t, server.URL(), br)
	src := r.sourceOf(pgrelay.Config{Beat: beat, WALBudget: budget})
	l := &lags{by: map[int64][]time.Duration{}}
	var done atomic.Int64
	x := r.run(func(c *relay.Config) {
		c.Source = src
		c.Done = func(d relay.Done) { l.add(d); done.Add(1) }
	})
	writing := r.write()
	pause := func(d time.Duration) { <-time.NewTimer(d).C }
	pause(before)
	w.cut()
	gone := time.Now()
	worst := 0
	for time.Since(gone) < away {
		pause(away / 60)
		_, held := r.slot()
		worst = max(worst, held)
	}
	waiting := writing.last.Load() - done.Load()
	w.mend()
	back := time.Now()
	recovered := time.Duration(0)
	for end := back.Add(after); time.Now().Before(end) || recovered == 0; {
		pause(100 * time.Millisecond)
		second := time.Now().Unix() - 1
		if p := l.p99(second); recovered == 0 && p > 0 && p < 100*time.Millisecond {
			recovered = time.Since(back)
		}
		if time.Since(back) > away+time.Minute+after {
			t.Fatalf("the relay does not catch up: %+v", x.Status())
		}
	}
	n := writing.end()
	end := pgtest.Exec(t, r.db, `SELECT pg_current_wal_insert_lsn()`)[0][0]
	r.until("all are done", func() bool {
		return pgtest.Exec(t, r.db, `SELECT r.confirmed_flush_lsn >= '`+end+`' AND s.repair IS NULL FROM headgate.relay_state s JOIN pg_replication_slots r ON r.slot_name = s.slot`)[0][0] == "t"
	})
	t.Logf("away %v, %d events waited, the slot held at most %d MiB; p99 below 100 ms again %v after the broker was back; %d events", away, waiting, worst>>20, recovered, n)
	if relaytest.Campaign() && recovered > 30*time.Second {
		t.Errorf("p99 was below 100 ms again only %v after the broker was back", recovered)
	}
	// The log that the slot held, what the server may keep by itself, and two files.
	if size := atoi(pgtest.Exec(t, r.db, `SELECT sum(size) FROM pg_ls_waldir()`)[0][0]); size > int(budget)+(64+32)<<20 {
		t.Errorf("pg_wal has %d MiB", size>>20)
	}
	if limit := int(budget) + 16<<20; worst > limit {
		t.Errorf("the slot held %d MiB of log, more than its budget", worst>>20)
	}
	r.Verify(n)
	x.Stop()
}
