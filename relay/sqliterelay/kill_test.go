package sqliterelay

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/natsbroker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/topology"
)

// The harnesses run this test binary again as the processes that they kill.
func TestMain(m *testing.M) {
	var err error
	mode, path, power := strings.Cut(os.Getenv(powerVariable), ":")
	switch child := os.Getenv("HEADGATE_KILL_CHILD"); {
	case power:
		err = victim(context.Background(), mode, path)
	case child == "node":
		err = nodeChild(context.Background())
	case child == "writer":
		err = writerChild(context.Background())
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func connector(path string) func() (*sql.DB, error) {
	return func() (*sql.DB, error) { return connect(path) }
}

// nodeChild is a node's inside on disk: embedded broker, store, relay. At the
// named point it kills itself.
func nodeChild(ctx context.Context) error {
	dir := os.Getenv("HEADGATE_KILL_DIR")
	st, err := sqlitestore.Open(ctx, sqlitestore.Config{Path: filepath.Join(dir, "store.db")})
	if err != nil {
		return err
	}
	br, err := openBroker(ctx, dir)
	if err != nil {
		return err
	}
	top, err := topology.New(nil, nil, topology.Defaults{})
	if err != nil {
		return err
	}
	reg, err := registry.Open(ctx, registry.Config{Store: st})
	if err != nil {
		return err
	}
	if _, err := reg.Register(ctx, "order.placed", contract.TypeJSON, []byte(orderSchema), "admin"); err != nil {
		return err
	}
	q, err := quarantine.Open(ctx, quarantine.Config{Store: st})
	if err != nil {
		return err
	}
	eng, err := causal.Open(ctx, causal.Config{Store: st})
	if err != nil {
		return err
	}
	door, err := perimeter.New(perimeter.Config{Broker: br, Contracts: reg, Causal: eng, Quarantine: q, Topology: top})
	if err != nil {
		return err
	}
	fault := faultFromEnv()
	path := filepath.Join(dir, "app.db")
	src, err := New(Config{Path: path, Connect: connector(path), fault: fault})
	if err != nil {
		return err
	}
	who := &headgate.Principal{Name: "orders", Kind: headgate.KindSystem, Emit: []string{"order.*"}, Roots: headgate.RootRight{Allowed: true, Rate: 1e6, Burst: 1e6}}
	cfg := relay.Config{
		Name: "orders", Source: src, Admit: door, Keep: q, Fault: fault,
		Principal: func(string) (*headgate.Principal, error) { return who, nil },
	}
	if os.Getenv("HEADGATE_KILL_EARLY") == "1" {
		cfg.Source = wrapped{src, func(s relay.Session) relay.Session { return early{s} }}
	}
	r, err := relay.New(cfg)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// early is the bug that this harness must find: it confirms what was received.
type early struct{ relay.Session }

func (e early) Receive(ctx context.Context) ([]relay.Change, error) {
	changes, err := e.Session.Receive(ctx)
	for _, c := range changes {
		if c.Position > 0 {
			e.Confirm(c.Position)
		}
	}
	return changes, err
}

// faultFromEnv reads POINT:N: the process dies when it comes to the point for
// the nth time.
func faultFromEnv() func(string) {
	point, text, ok := strings.Cut(os.Getenv("HEADGATE_KILL_AT"), ":")
	n, err := strconv.Atoi(text)
	if !ok || err != nil {
		return nil
	}
	seen := make(chan struct{}, n)
	return func(at string) {
		if at != point {
			return
		}
		select {
		case seen <- struct{}{}:
		default:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

func openBroker(ctx context.Context, dir string) (broker.Broker, error) {
	br, err := natsbroker.Open(ctx, natsbroker.Config{Dir: filepath.Join(dir, "broker")})
	if err != nil {
		return nil, err
	}
	_, err = br.Ensure(ctx, []broker.StreamSpec{{Name: topology.DefaultStream, Partitions: 2}})
	return br, err
}

// writerChild writes business rows and their events, one key for each of its
// workers, until it is killed. One transaction in five is rolled back.
func writerChild(ctx context.Context) error {
	db, err := connect(filepath.Join(os.Getenv("HEADGATE_KILL_DIR"), "app.db"), "synchronous(normal)")
	if err != nil {
		return err
	}
	failed := make(chan error)
	for k := range 6 {
		go func() {
			for {
				_ = writeKey(ctx, db, k) // a busy database; it goes on until this process is killed
			}
		}()
	}
	return <-failed
}

func writeKey(ctx context.Context, db *sql.DB, k int) error {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for range pause.C {
		if err := writeOnce(ctx, db, k); err != nil {
			return err
		}
	}
	return nil
}

func writeOnce(ctx context.Context, db *sql.DB, k int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit there is nothing to undo
	rollback := rand.N(5) == 0
	for range 1 + rand.N(4) {
		for _, statement := range []string{
			`UPDATE keys SET n = n + 1 WHERE k = ?1`,
			`INSERT INTO orders (k, n) SELECT k, n FROM keys WHERE k = ?1`,
			`INSERT INTO headgate_outbox (type, key, data) SELECT 'order.placed', 'k' || k, json_object('n', CASE WHEN ?2 THEN -n ELSE n END) FROM keys WHERE k = ?1`,
		} {
			args := []any{k, rollback}
			if _, err := tx.ExecContext(ctx, statement, args[:strings.Count(statement, "?2")+1]...); err != nil {
				return err
			}
		}
	}
	if rollback {
		return nil
	}
	return tx.Commit()
}

// killing is one run of the harness.
type killing struct {
	t      *testing.T
	db     *sql.DB
	dir    string
	early  bool
	rng    *rand.Rand
	node   *exec.Cmd
	writer *exec.Cmd
	kills  map[string]int
}

func startKilling(t *testing.T, early bool, seed uint64) *killing {
	t.Helper()
	h := &killing{t: t, early: early, dir: t.TempDir(), kills: map[string]int{}, rng: rand.New(rand.NewPCG(seed, 5))}
	h.db = open(t, filepath.Join(h.dir, "app.db"))
	must(t, Install(t.Context(), h.db))
	run(t, h.db, `CREATE TABLE keys (k INTEGER PRIMARY KEY, n INT NOT NULL DEFAULT 0); CREATE TABLE orders (k INT, n INT, PRIMARY KEY (k, n));
		INSERT INTO keys (k) VALUES (0), (1), (2), (3), (4), (5)`)
	h.startNode("")
	h.writer = h.start("writer", "")
	t.Cleanup(func() { h.kill(h.node); h.kill(h.writer) })
	return h
}

func (h *killing) start(what, at string) *exec.Cmd {
	h.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HEADGATE_KILL_CHILD="+what, "HEADGATE_KILL_DIR="+h.dir, "HEADGATE_KILL_AT="+at)
	if h.early {
		cmd.Env = append(cmd.Env, "HEADGATE_KILL_EARLY=1")
	}
	cmd.Stderr = testWriter{h.t}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(h.t, cmd.Start())
	return cmd
}

func (h *killing) startNode(at string) { h.node = h.start("node", at) }

func (h *killing) kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // it may have ended by itself, at its named point
	_ = cmd.Wait()
}

// points are the named points of the relay and of its source.
var points = []string{"before publish", "after publish", "before confirm", "after confirm", "after read", "before cursor", "after cursor"}

// once kills one process in one way and starts it again.
func (h *killing) once() {
	wait := time.NewTimer(time.Duration(20+h.rng.IntN(250)) * time.Millisecond)
	<-wait.C
	switch h.rng.IntN(6) {
	case 0, 1:
		h.kills["writer"]++
		h.kill(h.writer)
		h.writer = h.start("writer", "")
	case 2:
		h.kills["node"]++
		h.kill(h.node)
		h.startNode("")
	default:
		// The node kills itself at a point, or is killed while it gets there.
		point := points[h.rng.IntN(len(points))]
		h.kills[point]++
		h.kill(h.node)
		h.startNode(point + ":" + strconv.Itoa(h.rng.IntN(40)))
		h.awaitEnd(3 * time.Second)
		h.startNode("")
	}
}

// awaitEnd waits until the node has killed itself, or kills it.
func (h *killing) awaitEnd(most time.Duration) {
	ended := make(chan struct{})
	go func() { _ = h.node.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(most):
		_ = h.node.Process.Kill()
		<-ended
	}
}

// finish stops the writer and waits until the relay has confirmed everything,
// for as long as it gets on: a long run leaves a long backlog.
func (h *killing) finish() {
	h.kill(h.writer)
	end := value[int64](h.t, h.db, `SELECT max(seq) FROM headgate_outbox_rows`)
	for at := int64(-1); at < end; {
		before := at
		until(h.t, fmt.Sprintf("more than row %d of %d is confirmed", before, end), func() bool {
			at = value[int64](h.t, h.db, `SELECT confirmed FROM headgate_outbox_state`)
			return at > before
		})
	}
	h.kill(h.node)
}

// verdict compares what was committed with what is stored.
type verdict struct{ committed, stored, missing, uncommitted, twice, disorder int }

// faults is how often a promise was broken; any makes the harness fail.
func (v verdict) faults() int { return v.missing + v.uncommitted + v.twice + v.disorder }

func (h *killing) verdict() verdict {
	h.t.Helper()
	ctx := context.Background()
	var v verdict
	committed := map[string]bool{}
	ids, err := list(ctx, h.db, `SELECT 'k' || k || '/' || n FROM orders`)
	must(h.t, err)
	for _, id := range ids {
		committed[id] = true
	}
	v.committed = len(committed)
	br, err := openBroker(ctx, h.dir)
	must(h.t, err)
	defer br.Close(ctx)
	seen := map[string]bool{}
	last := map[string]int{}
	for p := range uint32(2) {
		from := headgate.Position{Partition: p}
		for {
			got, err := br.Browse(ctx, topology.DefaultStream, from, 1000)
			must(h.t, err)
			if len(got) == 0 {
				break
			}
			for _, s := range got {
				var d struct{ N int }
				must(h.t, json.Unmarshal(s.Event.Data, &d))
				id := s.Event.Key + "/" + strconv.Itoa(d.N)
				v.stored++
				if !committed[id] {
					v.uncommitted++
				}
				if seen[id] {
					v.twice++
				}
				if d.N < last[s.Event.Key] {
					v.disorder++
				}
				seen[id], last[s.Event.Key] = true, d.N
			}
			from.Offset = got[len(got)-1].Position.Offset + 1
		}
	}
	for id := range committed {
		if !seen[id] {
			v.missing++
		}
	}
	return v
}

func TestKillsLoseNothing(t *testing.T) {
	t.Parallel() // it waits for processes of its own
	kills, seed := 30, uint64(20260101)
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		kills, seed = 500, uint64(time.Now().UnixNano())
	}
	if s := os.Getenv("HEADGATE_KILL_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	t.Logf("seed %d: HEADGATE_KILL_SEED=%d repeats the schedule", seed, seed)
	h := startKilling(t, false, seed)
	for range kills {
		h.once()
	}
	h.finish()
	v := h.verdict()
	t.Logf("kills %v: %+v", h.kills, v)
	if v.committed == 0 || v.faults() > 0 {
		t.Errorf("%+v", v)
	}
}

// A harness that cannot fail proves nothing: a relay that confirms before the
// acknowledgement must be caught.
func TestKillsCatchConfirmBeforeAck(t *testing.T) {
	t.Parallel() // it waits for processes of its own
	h := startKilling(t, true, 7)
	for i := range 8 {
		h.kill(h.node)
		h.startNode("after cursor:" + strconv.Itoa(1+i))
		h.awaitEnd(20 * time.Second) // it kills itself when the cursor has just moved
	}
	h.startNode("")
	h.finish()
	v := h.verdict()
	t.Logf("%+v", v)
	if v.missing == 0 {
		t.Error("a relay that confirms too early lost nothing: the harness cannot see it")
	}
}
