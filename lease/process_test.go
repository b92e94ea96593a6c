package lease

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// childFile makes this binary a worker that works on a database until it is
// killed.
const childFile = "HEADGATE_LEASE_CHILD_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		fmt.Fprintln(os.Stderr, child(path))
		os.Exit(1)
	}
	if args := os.Getenv(pausedHolder); args != "" {
		fmt.Println("failed:", holdWithin(strings.Split(args, "|")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// child acquires, writes and sometimes releases, and tells of everything that
// was acknowledged.
func child(path string) error {
	ctx := context.Background()
	st, err := sqlitestore.Open(ctx, sqlitestore.Config{Path: path})
	if err != nil {
		return err
	}
	s, err := Open(ctx, Config{Store: st})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for i := 0; ; i++ {
		g, err := s.Acquire(ctx, worker("child"), Request{Resources: []string{"r"}, TTL: MinTTL, Wait: MaxWait})
		if err != nil {
			return err
		}
		fmt.Printf("granted %d\n", g[0].Epoch)
		for range 3 {
			switch err := write(ctx, s, st, g[0].Token); headgate.CodeOf(err) {
			case "":
				fmt.Printf("wrote %d\n", g[0].Epoch)
			case headgate.CodeLeaseExpired: // the machine was slow
			default:
				return err
			}
		}
		if i%2 == 0 {
			if err := s.Release(ctx, worker("child"), "", g[0].Token); err != nil && headgate.CodeOf(err) != headgate.CodeLeaseLost {
				return err
			}
		}
	}
}

// TestCrashes kills the only process of a store again and again. What was
// acknowledged is there, epochs never fall, and the order of the writes is that
// of their epochs.
func TestCrashes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "headgate.db")
	acked := map[int64]int{}
	highest := int64(0)
	for range campaign(4, 200) {
		for kind, epoch := range killedChild(t, path) {
			if kind == "granted" && epoch <= highest {
				t.Fatalf("epoch %d was granted although %d was", epoch, highest)
			}
			highest = max(highest, epoch)
			if kind == "wrote" {
				acked[epoch]++
			}
		}
	}
	onFile(t, path, func(s *Service) {
		stored, last := map[int64]int{}, int64(0)
		err := s.cfg.Store.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			rows, err := tx.Outbox.Pending(ctx, 0, 1<<20)
			for _, r := range rows {
				var epoch int64
				if _, err := fmt.Sscanf(string(r.Event), "r@%d", &epoch); err != nil {
					t.Errorf("row %q", r.Event)
				}
				if epoch < last {
					t.Errorf("a write of epoch %d stands behind one of %d", epoch, last)
				}
				last = epoch
				stored[epoch]++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for epoch, n := range acked {
			if stored[epoch] < n {
				t.Errorf("%d writes of epoch %d were acknowledged, %d are there", n, epoch, stored[epoch])
			}
		}
		if len(acked) == 0 {
			t.Error("no child wrote anything")
		}
	})
}

// killedChild runs a child for a random time and yields what it said.
func killedChild(t *testing.T, path string) func(func(string, int64) bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childFile+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func(yield func(string, int64) bool) {
		lines := bufio.NewScanner(out)
		var die <-chan time.Time
		killed := false
		for lines.Scan() {
			if die == nil { // ready
				die = time.After(time.Duration(50+rand.IntN(300)) * time.Millisecond)
				continue
			}
			select {
			case <-die:
				if !killed {
					killed = true
					_ = cmd.Process.Kill() // what it said until then is still read
				}
			default:
			}
			var kind string
			var epoch int64
			if n, err := fmt.Sscanf(lines.Text(), "%s %d", &kind, &epoch); n != 2 || err != nil {
				continue // cut in the middle by the kill
			}
			if !yield(kind, epoch) {
				break
			}
		}
		if !killed {
			t.Error("the child ended by itself")
		}
		_ = cmd.Wait() // killed
	}
}

func TestFenceText(t *testing.T) {
	f := Fence{Resource: "a@b/c", Epoch: 7}
	if f.String() != "a@b/c@"+strconv.Itoa(7) {
		t.Error(f.String())
	}
}

// pausedHolder makes this binary a worker that stands within a guarded
// transaction: URL, schema of the functions, token.
const pausedHolder = "HEADGATE_LEASE_PAUSED_HOLDER"

func holdWithin(args []string) error {
	f, err := fence.Parse(args[2])
	if err != nil {
		return err
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, args[0])
	if err != nil {
		return err
	}
	defer pool.Close()
	db := &fencepg.DB{Schema: args[1]}
	return db.Tx(ctx, pool, f, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %q.rows VALUES (1)", args[1])); err != nil {
			return err
		}
		fmt.Println("within")
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	})
}
