package fencepg_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
)

// The server is crashed again and again, as a whole and one session at a time,
// under a storm of takeovers. What was acknowledged is there, what was refused
// is not, and the log is in the order of epochs from end to end.
func TestCrashes(t *testing.T) {
	crashes := 2
	if campaign() {
		crashes = 15
	}
	c := pgtest.Start(t, "wal_level=logical", "max_connections=60")
	r := newRig(t, c.URL(), byCall, byInline, byRows, byPartition)
	r.slot()
	var over sync.WaitGroup
	stop := make(chan struct{})
	over.Go(func() {
		r.stress(8, 3, func() bool {
			select {
			case <-stop:
				return true
			default:
				return t.Failed()
			}
		})
	})
	random := rand.New(rand.NewPCG(1, 2))
	accepted := int64(0)
	for i := range crashes {
		r.until(accepted + 100)
		if i%2 == 0 {
			c.Crash()
			c.Restart()
		} else {
			r.killSession(random)
		}
		accepted = r.fenced.Load()
	}
	r.until(accepted + 100) // it goes on
	close(stop)
	over.Wait()
	r.pool.Reset()
	p := r.prove()
	t.Logf("%d crashes; %d accepted, %d refused as stale, %d unknown, %d other; in the log %d writes, %d raised epochs, %d stale writes, %d epochs fell",
		crashes, r.fenced.Load(), r.stale.Load(), r.unknown.Load(), r.other.Load(), p.writes, p.raises, p.violations, p.falls)
	if p.violations != 0 || p.falls != 0 {
		t.Errorf("%d stale writes, %d epochs fell", p.violations, p.falls)
	}
	if int64(p.writes) < r.fenced.Load() {
		t.Errorf("the log has %d writes, %d were acknowledged", p.writes, r.fenced.Load())
	}
	r.verify()
}

// until waits for accepted writes.
func (r *rig) until(n int64) {
	begun := time.Now()
	for r.fenced.Load() < n && !r.t.Failed() {
		if time.Since(begun) > time.Minute {
			r.t.Fatalf("only %d writes of %d after a minute", r.fenced.Load(), n)
		}
		wait(r.t.Context(), 5*time.Millisecond)
	}
}

// killSession kills one server process of ours, which makes the server start
// over.
func (r *rig) killSession(random *rand.Rand) {
	r.t.Helper()
	rows := pgtest.Exec(r.t, r.url, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'")
	if len(rows) == 0 {
		return
	}
	pid, err := strconv.Atoi(rows[random.IntN(len(rows))][0])
	if err != nil {
		r.t.Fatal(err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
}

const fakeTime = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

// The database's clock jumps an hour forth and back under a storm. That is a
// matter of who holds a lease when, and never of whose writes count.
func TestClockJumps(t *testing.T) {
	if _, err := os.Stat(fakeTime); err != nil {
		absent(t, "the package faketime is not installed: %v", err)
	}
	jumps := 4
	if campaign() {
		jumps = 40
	}
	dir, err := os.MkdirTemp("", "headgate-clock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a folder of temporary files
	file := filepath.Join(dir, "offset")
	set := func(offset string) {
		if err := os.WriteFile(file+".new", []byte(offset+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	set("+0")
	for name, value := range map[string]string{
		"LD_PRELOAD": fakeTime, "FAKETIME_TIMESTAMP_FILE": file, "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1",
	} {
		t.Setenv(name, value) // for the server; this process is not affected any more
	}
	c := pgtest.Start(t, "wal_level=logical", "max_connections=60")
	r := newRig(t, c.URL(), byCall, byInline, byRows, byPartition)
	r.slot()
	var over sync.WaitGroup
	stop := make(chan struct{})
	over.Go(func() {
		r.stress(8, 3, func() bool {
			select {
			case <-stop:
				return true
			default:
				return t.Failed()
			}
		})
	})
	offsets := []string{"+1h", "+0", "-1h", "+0"}
	seen := map[string]bool{}
	for i := range jumps {
		r.until(r.fenced.Load() + 20)
		set(offsets[i%len(offsets)])
		wait(t.Context(), 500*time.Millisecond)
		seen[pgtest.Exec(t, r.url, "SELECT round(extract(epoch FROM clock_timestamp() - '"+time.Now().UTC().Format(time.RFC3339)+"'::timestamptz) / 3600)")[0][0]] = true
	}
	close(stop)
	over.Wait()
	p := r.prove()
	t.Logf("%d jumps, clocks off by %v h; %d accepted, %d refused as stale, %d as expired; in the log %d writes, %d raised epochs, %d stale writes, %d epochs fell",
		jumps, seen, r.fenced.Load(), r.stale.Load(), r.expired.Load(), p.writes, p.raises, p.violations, p.falls)
	if !seen["1"] || !seen["-1"] {
		t.Errorf("the clock did not jump: %v", seen)
	}
	if p.violations != 0 || p.falls != 0 {
		t.Errorf("%d stale writes, %d epochs fell", p.violations, p.falls)
	}
	r.verify()
}
