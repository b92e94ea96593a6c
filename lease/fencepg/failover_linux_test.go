package fencepg_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/store/pgstore"
)

// site is a node's lease service on one server, and a pool to it.
type site struct {
	t       *testing.T
	pool    *pgxpool.Pool
	service *lease.Service
}

func openSite(t *testing.T, url string) *site {
	t.Helper()
	st, err := pgstore.Open(t.Context(), pgstore.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() }) // its server may have crashed
	s, err := lease.Open(t.Context(), lease.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	return &site{t, connect(t, url), s}
}

// grant acquires, and returns the token to release it with.
func (s *site) grant(resource string) (fence.Fence, string) {
	s.t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < 20*time.Second; wait(s.t.Context(), 20*time.Millisecond) {
		var g []lease.Grant
		if g, err = s.service.Acquire(s.t.Context(), agent("agent"), lease.Request{Resources: []string{resource}, TTL: time.Minute}); err == nil {
			f, err := fence.Parse(g[0].Token)
			if err != nil {
				s.t.Fatal(err)
			}
			return f, g[0].Token
		}
	}
	s.t.Fatalf("%s was not granted: %v", resource, err)
	return fence.Fence{}, ""
}

func (s *site) release(resource, token string) {
	s.t.Helper()
	if err := s.service.Release(s.t.Context(), agent("agent"), resource, token); err != nil {
		s.t.Fatal(err)
	}
}

// wrote adds a row under the fence to a table of the resource's rows.
func wrote(ctx context.Context, pool *pgxpool.Pool, table string, f fence.Fence) error {
	return new(fencepg.DB).Tx(ctx, pool, f, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO "+table+" (resource, epoch) VALUES ($1, $2)", f.Resource, f.Epoch)
		return err
	})
}

const journal = "CREATE TABLE journal (n bigserial PRIMARY KEY, resource text NOT NULL, epoch bigint NOT NULL)"

// target is a database besides those of the leases, which is sealed.
func target(t *testing.T) *pgxpool.Pool {
	t.Helper()
	url := newDatabase(t)
	pgtest.Exec(t, url, journal)
	fenced(t, url, fencepg.Config{})
	return connect(t, url)
}

func fenced(t *testing.T, url string, c fencepg.Config) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := fencepg.Install(t.Context(), conn, c); err != nil {
		t.Fatal(err)
	}
	if _, err := fencepg.FenceTable(t.Context(), conn, "", "journal", "{resource}", false); err != nil {
		t.Fatal(err)
	}
}

// pair is a primary with a node's state, and a standby that follows it.
func pair(t *testing.T) (primary, standby *pgtest.Cluster) {
	t.Helper()
	primary = pgtest.Start(t, "wal_level=replica", "max_connections=40")
	openSite(t, primary.URL()) // makes the node's schema
	pgtest.Exec(t, primary.URL(), journal)
	fenced(t, primary.URL(), fencepg.Config{Node: "headgate"})
	primary.Stop()
	standby = primary.Clone(false)
	var host, port string
	conn, err := pgx.ParseConfig(primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	host, port = conn.Host, fmt.Sprint(conn.Port)
	standby.Write("postgresql.auto.conf", []byte("primary_conninfo = 'host="+host+" port="+port+" user=headgate'\n"))
	standby.Demote()
	primary.Restart()
	standby.Restart()
	return primary, standby
}

// follows waits until the standby has replayed what the primary has.
func follows(t *testing.T, primary, standby *pgtest.Cluster) {
	t.Helper()
	at := pgtest.Exec(t, primary.URL(), "SELECT pg_current_wal_flush_lsn()")[0][0]
	for begun := time.Now(); pgtest.Exec(t, standby.URL(), "SELECT pg_last_wal_replay_lsn() >= '"+at+"'")[0][0] != "t"; wait(t.Context(), 20*time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("the standby does not follow")
		}
	}
}

// cut ends the replication for good; the standby does not know what comes.
func cut(t *testing.T, standby *pgtest.Cluster) {
	t.Helper()
	standby.Write("postgresql.auto.conf", []byte("primary_conninfo = ''\n"))
	pgtest.Exec(t, standby.URL(), "SELECT pg_reload_conf()")
	for begun := time.Now(); pgtest.Exec(t, standby.URL(), "SELECT count(*) FROM pg_stat_wal_receiver")[0][0] != "0"; wait(t.Context(), 20*time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("the replication goes on")
		}
	}
}

// A primary dies with a grant that its replica has not heard of. The lost
// grant is refused by the promoted replica, the next one is above it, and a
// database elsewhere takes the newest alone, all the way.
func TestFailoverLosesAGrant(t *testing.T) {
	t.Parallel() // it waits for servers most of the time
	ctx := t.Context()
	primary, standby := pair(t)
	elsewhere, db := target(t), &fencepg.DB{}
	one := openSite(t, primary.URL())
	first, token := one.grant("job/1")
	want(t, "seal", db.Seal(ctx, elsewhere, first), "")
	want(t, "the first holder", wrote(ctx, one.pool, "journal", first), "")
	follows(t, primary, standby)
	cut(t, standby)
	one.release("job/1", token)
	lost, _ := one.grant("job/1")
	want(t, "seal", db.Seal(ctx, elsewhere, lost), "")
	want(t, "the lost grant before the crash", wrote(ctx, one.pool, "journal", lost), "")
	want(t, "elsewhere", wrote(ctx, elsewhere, "journal", lost), "")
	primary.Crash()
	pgtest.Exec(t, standby.URL(), "SELECT pg_promote()")

	two := openSite(t, standby.URL())
	want(t, "the lost grant", wrote(ctx, two.pool, "journal", lost), headgate.CodeStaleFence)
	want(t, "the first holder elsewhere", wrote(ctx, elsewhere, "journal", first), headgate.CodeStaleFence)
	// The replica has not heard of the release either.
	want(t, "the first holder", wrote(ctx, two.pool, "journal", first), "")
	two.release("job/1", token)
	next, _ := two.grant("job/1")
	if next.Epoch <= lost.Epoch {
		t.Errorf("the next epoch %d is not above the lost one, %d", next.Epoch, lost.Epoch)
	}
	want(t, "seal", db.Seal(ctx, elsewhere, next), "")
	for name, pool := range map[string]*pgxpool.Pool{"promoted": two.pool, "elsewhere": elsewhere} {
		for _, f := range []fence.Fence{first, lost} {
			want(t, name+": an older grant", wrote(ctx, pool, "journal", f), headgate.CodeStaleFence)
		}
		want(t, name+": the next grant", wrote(ctx, pool, "journal", next), "")
	}
}

// Two servers believe to be the primary, and both grant. Each server's own
// data takes its own grants alone; a sealed database takes the newest of both,
// in rising order, and never two.
func TestTwoPrimaries(t *testing.T) {
	t.Parallel() // it waits for servers most of the time
	ctx := t.Context()
	primary, standby := pair(t)
	follows(t, primary, standby)
	pgtest.Exec(t, standby.URL(), "SELECT pg_promote()")
	elsewhere, db := target(t), &fencepg.DB{}
	sites := [2]*site{openSite(t, primary.URL()), openSite(t, standby.URL())}
	var old []fence.Fence
	seen := map[int64]bool{}
	rounds, refused := 8, 0
	if campaign() {
		rounds = 500
	}
	for i := range rounds {
		here, there := sites[i%2], sites[1-i%2]
		f, token := here.grant("job/1")
		if seen[f.Epoch] {
			t.Errorf("epoch %d was granted twice", f.Epoch)
		}
		seen[f.Epoch] = true
		want(t, "seal", db.Seal(ctx, elsewhere, f), "")
		want(t, "the newest, elsewhere", wrote(ctx, elsewhere, "journal", f), "")
		want(t, "the newest, where it was granted", wrote(ctx, here.pool, "journal", f), "")
		want(t, "the newest, on the other primary", wrote(ctx, there.pool, "journal", f), headgate.CodeStaleFence)
		for _, o := range old[max(0, len(old)-4):] {
			want(t, "an older one, elsewhere", wrote(ctx, elsewhere, "journal", o), headgate.CodeStaleFence)
			want(t, "an older one seals", new(fencepg.DB).Seal(ctx, elsewhere, o), headgate.CodeStaleFence)
			refused += 2
		}
		old = append(old, f)
		here.release("job/1", token)
	}
	if n := count(t, elsewhere, "SELECT count(*) FROM (SELECT epoch < lag(epoch) OVER (ORDER BY n) AS fell FROM journal) j WHERE fell"); n != 0 {
		t.Errorf("epochs fell %d times", n)
	}
	t.Logf("%d grants of two primaries, %d stale attempts elsewhere: all refused", rounds, refused)
}
