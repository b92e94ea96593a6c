package lease_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencetable"
	"github.com/headgate/headgate/lease/hold"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// An old backup takes the place of a node's database while agents go on. What
// they were granted since is lost; none of it may pass any more, here or in a
// database elsewhere that saw it, and the agents come back by themselves.

// place is where a node runs now and then.
type place struct {
	t         *testing.T
	path      string
	wrap      func(store.Store) store.Store
	elsewhere *sql.DB

	mu sync.RWMutex // held for reading while the node is used
	st *sqlitestore.Store
	s  *lease.Service
	by store.Store // st as the service sees it

	seen   sync.Mutex
	given  map[string]string // nonce by resource@epoch
	high   map[string]int64
	tokens []string
	faults []string
	grants int
}

var errDown = &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.NotApplied, Detail: "the node is down"}

func newPlace(t *testing.T, wrap func(store.Store) store.Store) *place {
	t.Helper()
	dir := t.TempDir()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "elsewhere.db")+"?_pragma=busy_timeout(20000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // a test's scratch
	p := &place{t: t, path: filepath.Join(dir, "headgate.db"), wrap: wrap, elsewhere: db, given: map[string]string{}, high: map[string]int64{}}
	if err := table.Create(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE journal (n INTEGER PRIMARY KEY, resource TEXT, epoch INTEGER)"); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(p.stop)
	return p
}

var table = fencetable.Table{Dialect: fencetable.SQLite}

func (p *place) start() {
	p.t.Helper()
	ctx := context.WithoutCancel(p.t.Context())
	st, err := sqlitestore.Open(ctx, sqlitestore.Config{Path: p.path})
	if err != nil {
		p.t.Fatal(err)
	}
	by := p.wrap(st)
	s, err := lease.Open(ctx, lease.Config{Store: by})
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.st, p.by, p.s = st, by, s
}

func (p *place) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.st != nil {
		if err := p.st.Close(); err != nil {
			p.t.Error(err)
		}
	}
	p.st, p.by, p.s = nil, nil, nil
}

// restore puts a backup in the place of the database.
func (p *place) restore(backup string) {
	p.t.Helper()
	p.stop()
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(p.path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			p.t.Fatal(err)
		}
	}
	if err := os.Rename(backup, p.path); err != nil {
		p.t.Fatal(err)
	}
	p.start()
}

// with calls the node, if it is up.
func with[T any](p *place, fn func(*lease.Service, store.Store) (T, error)) (T, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.s == nil {
		var none T
		return none, errDown
	}
	return fn(p.s, p.by)
}

func agentOf(name string) *headgate.Principal {
	return &headgate.Principal{Name: name, Kind: headgate.KindAgent, Lease: []string{"*"}}
}

// granted judges a grant.
func (p *place) granted(token string) {
	f, err := fence.Parse(token)
	p.seen.Lock()
	defer p.seen.Unlock()
	if err != nil {
		p.faults = append(p.faults, err.Error())
		return
	}
	nonce, again := p.given[f.String()]
	switch {
	case again && nonce != f.NonceText():
		p.faults = append(p.faults, f.String()+" was given twice")
	case !again && f.Epoch <= p.high[f.Resource]:
		p.faults = append(p.faults, fmt.Sprintf("%s was given after %d", f, p.high[f.Resource]))
	}
	p.given[f.String()] = f.NonceText()
	p.high[f.Resource] = max(p.high[f.Resource], f.Epoch)
	p.tokens = append(p.tokens, token)
	p.grants++
}

// agent is a keeper for one of them.
type agent struct {
	*place
	p *headgate.Principal
}

func (a agent) AcquireLease(ctx context.Context, resource string, w hold.Want) (hold.Granted, error) {
	return with(a.place, func(s *lease.Service, _ store.Store) (hold.Granted, error) {
		g, err := s.Keeper(a.p).AcquireLease(ctx, resource, w)
		if err == nil {
			a.granted(g.Token)
		}
		return g, err
	})
}

func (a agent) RenewLease(ctx context.Context, resource, token string, ttl time.Duration) (hold.Granted, error) {
	return with(a.place, func(s *lease.Service, _ store.Store) (hold.Granted, error) {
		return s.Keeper(a.p).RenewLease(ctx, resource, token, ttl)
	})
}

func (a agent) ReleaseLease(ctx context.Context, resource, token string) error {
	_, err := with(a.place, func(s *lease.Service, _ store.Store) (struct{}, error) {
		return struct{}{}, s.Keeper(a.p).ReleaseLease(ctx, resource, token)
	})
	return err
}

// writes commits one event with the node, and one row elsewhere.
func (p *place) writes(ctx context.Context, token string) (here, there error) {
	var f lease.Fence
	_, here = with(p, func(s *lease.Service, st store.Store) (none struct{}, err error) {
		if f, err = s.Read(ctx, token, ""); err != nil {
			return none, err
		}
		return none, st.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
			if err := s.Guard(ctx, tx, &f); err != nil {
				return err
			}
			return tx.Outbox.Append(ctx, []store.OutboxRow{{Stream: "s", Event: []byte(f.String())}})
		})
	})
	parsed, err := fence.Parse(token)
	if err != nil {
		return here, err
	}
	there = func() error {
		tx, err := p.elsewhere.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		err = table.Check(ctx, tx, lease.Fence{Resource: parsed.Resource, Epoch: parsed.Epoch, Nonce: parsed.Nonce})
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO journal (resource, epoch) VALUES (?, ?)", parsed.Resource, parsed.Epoch)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}()
	return here, there
}

// works holds leases and writes until ctx ends, and counts its whole writes.
func (p *place) works(ctx context.Context, name, resource string, wrote *atomic.Int64) {
	a := agent{p, agentOf(name)}
	for ctx.Err() == nil {
		o := &hold.Opts{Want: hold.Want{TTL: 300 * time.Millisecond, Wait: time.Second}}
		held, l, err := hold.Acquire(ctx, a, resource, o)
		if err != nil {
			wait(ctx, 5*time.Millisecond)
			continue
		}
		if f, err := fence.Parse(l.Token()); err == nil {
			_ = table.Seal(held, p.elsewhere, lease.Fence{Resource: f.Resource, Epoch: f.Epoch, Nonce: f.Nonce}) // else its writes raise it
		}
		for range 5 {
			if here, there := p.writes(held, l.Token()); here == nil && there == nil {
				wrote.Add(1)
			}
		}
		_ = l.Release(context.WithoutCancel(ctx)) // the node may be down
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// stale tries every token that was given until now but the latest of its
// resource, and adds those that pass to the faults.
func (p *place) stale(tokens []string) (tried int) {
	for _, token := range tokens {
		here, there := p.writes(p.t.Context(), token)
		for at, err := range map[string]error{"here": here, "elsewhere": there} {
			tried++
			if code := headgate.CodeOf(err); code != headgate.CodeStaleFence && code != headgate.CodeFenceConflict {
				f, _ := fence.Parse(token)
				p.faults = append(p.faults, fmt.Sprintf("%s, a lost or old grant, %s: %v", f, at, err))
			}
		}
	}
	return tried
}

// journal checks that epochs never fell elsewhere.
func (p *place) journal() {
	var fell int
	row := p.elsewhere.QueryRowContext(p.t.Context(),
		"SELECT count(*) FROM (SELECT epoch < lag(epoch) OVER (PARTITION BY resource ORDER BY n) AS fell FROM journal) WHERE fell")
	if err := row.Scan(&fell); err != nil {
		p.t.Fatal(err)
	}
	if fell > 0 {
		p.faults = append(p.faults, fmt.Sprintf("epochs fell %d times elsewhere", fell))
	}
}

// swapped runs agents over restores of old backups. Most is how long an agent
// may take to come back.
func swapped(t *testing.T, wrap func(store.Store) store.Store, rounds int, most time.Duration) (p *place, tried int) {
	t.Helper()
	p = newPlace(t, wrap)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	counts := make([]atomic.Int64, 4)
	for i := range counts {
		all.Go(func() { p.works(ctx, fmt.Sprint("agent-", i), fmt.Sprint("job/", i%2), &counts[i]) })
	}
	// moved waits until every agent wrote anew.
	moved := func(what string) bool {
		begun := time.Now()
		for i := range counts {
			for from := counts[i].Load(); counts[i].Load() < from+5; wait(ctx, 5*time.Millisecond) {
				if time.Since(begun) > most {
					p.seen.Lock()
					p.faults = append(p.faults, fmt.Sprintf("agent %d does not come back after %s", i, what))
					p.seen.Unlock()
					return false
				}
			}
		}
		return true
	}
	for range rounds {
		if !moved("the start") {
			return p, tried
		}
		backup := p.path + ".backup"
		if err := p.st.Backup(ctx, backup); err != nil {
			t.Fatal(err)
		}
		if !moved("the backup") {
			return p, tried
		}
		p.restore(backup)
		p.seen.Lock()
		tokens := p.tokens
		p.tokens = nil
		p.seen.Unlock()
		if !moved("the restore") {
			return p, tried
		}
		tried += p.stale(tokens)
	}
	cancel()
	all.Wait()
	p.journal()
	return p, tried
}

// TestRestoreUnderRunningAgents (R13) on SQLite.
func TestRestoreUnderRunningAgents(t *testing.T) {
	rounds := 2
	if os.Getenv("HEADGATE_CAMPAIGN") != "" {
		rounds = 40
	}
	p, tried := swapped(t, func(st store.Store) store.Store { return st }, rounds, 30*time.Second)
	for _, f := range p.faults {
		t.Error(f)
	}
	t.Logf("%d restores, %d grants, %d attempts with lost or old tokens", rounds, p.grants, tried)
}

// counting is a store whose clock shows times before 1970, in microseconds
// below every epoch: what is left of the epochs is a plain counter.
type counting struct{ store.Store }

type countingLeases struct{ store.Leases }

func (c countingLeases) Now(ctx context.Context) (time.Time, error) {
	now, err := c.Leases.Now(ctx)
	return now.AddDate(-150, 0, 0), err
}

func (c counting) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return c.Store.Update(ctx, counted(fn))
}

func (c counting) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return c.Store.View(ctx, counted(fn))
}

func counted(fn func(context.Context, *store.Tx) error) func(context.Context, *store.Tx) error {
	return func(ctx context.Context, tx *store.Tx) error {
		other := *tx
		other.Leases = countingLeases{tx.Leases}
		return fn(ctx, &other)
	}
}

// TestRestoreNoticesAPlainCounter is the control: without the clock as their
// floor epochs are given twice.
func TestRestoreNoticesAPlainCounter(t *testing.T) {
	p, _ := swapped(t, func(st store.Store) store.Store { return counting{st} }, 1, 2*time.Second)
	twice, stale := 0, 0
	for _, f := range p.faults {
		switch {
		case strings.Contains(f, "was given"):
			twice++
		case strings.Contains(f, "a lost or old grant"):
			stale++
		}
	}
	if twice == 0 {
		t.Errorf("nobody noticed; said was %q", p.faults)
	}
	t.Logf("%d epochs were given again, %d lost or old grants passed", twice, stale)
}
