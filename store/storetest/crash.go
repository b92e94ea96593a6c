package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Names of the environment variables of a crash test: the first makes a
// process the victim and holds its folder, the second asks for the long form.
const (
	victimVariable   = "HEADGATE_STORETEST_VICTIM"
	campaignVariable = "HEADGATE_CAMPAIGN"
)

const crashWorkers = 8

// Crash kills a process that floods the store with updates, opens what is
// left, and compares: every answered update is there, none is half there. It
// must be called first in a test of its own, which the victim runs too.
func Crash(t *testing.T, d Driver) {
	t.Helper()
	if dir := os.Getenv(victimVariable); dir != "" {
		s := d.Open(t, dir)
		Flood(t.Context(), t, s, os.Stdout)
		return
	}
	rounds := 4
	if os.Getenv(campaignVariable) != "" {
		rounds = 300
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	answered := make([]uint64, crashWorkers)
	total := 0
	for round := range rounds {
		if round%10 == 9 { // each round looks at all that was written so far
			dir, answered = t.TempDir(), make([]uint64, crashWorkers)
		}
		total += killed(t, dir, 1+rnd.IntN(2000), answered)
		s := d.Open(t, dir)
		VerifyFlood(t, s, answered)
		if err := s.Close(); err != nil {
			t.Fatalf("round %d: Close: %v", round, err)
		}
	}
	t.Logf("%d kills, %d answers read", rounds, total)
}

// killed runs a victim, kills it after it wrote some answers, and notes the
// highest answer of each worker.
func killed(t *testing.T, dir string, after int, answered []uint64) (lines int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), victimVariable+"="+dir)
	log, err := os.Create(filepath.Join(t.TempDir(), "victim.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // a line without its end was not an answer
		}
		if err != nil {
			t.Fatalf("reading the victim: %v", err)
		}
		var worker int
		var n uint64
		if _, err := fmt.Sscanf(line, "answered %d %d", &worker, &n); err != nil {
			t.Errorf("the victim says %q", line)
			continue
		}
		answered[worker] = max(answered[worker], n)
		if lines++; lines == after {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	if lines < after {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("the victim ended by itself: %v\n%s", err, text)
	}
	return lines
}

// Flood updates the store from several goroutines until ctx ends, and writes
// one line to out for each update that was answered. It goes on where the
// store stands. [VerifyFlood] knows what it leaves.
func Flood(ctx context.Context, t testing.TB, s store.Store, out io.Writer) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range crashWorkers {
		wg.Go(func() {
			n, err := floodFloor(ctx, s, w)
			for err == nil && ctx.Err() == nil {
				n++
				if err = s.Update(ctx, func(ctx context.Context, tx *store.Tx) error { return flood(ctx, tx, w, n) }); err != nil {
					break
				}
				mu.Lock()
				_, err = fmt.Fprintf(out, "answered %d %d\n", w, n)
				mu.Unlock()
				if n%3 == 0 { // a neighbour that fails and must leave nothing
					_ = s.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
						return errors.Join(flood(ctx, tx, w, n+1_000_000), errWanted)
					})
				}
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("flood: %v", err)
			}
		})
	}
	wg.Wait()
}

func floodName(w int) string { return fmt.Sprint("worker", w) }

func floodFloor(ctx context.Context, s store.Store, w int) (n uint64, err error) {
	err = s.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Deliveries.Progress(ctx, floodName(w))
		if len(rows) > 0 {
			n = rows[0].Floor
		}
		return err
	})
	return n, err
}

// flood is step n of a worker: every role that a settlement touches, with
// rows of several sizes.
func flood(ctx context.Context, tx *store.Tx, w int, n uint64) error {
	name := floodName(w)
	body := strings.Repeat(fmt.Sprint(n, " "), int(n%50))
	if err := tx.Deliveries.SaveProgress(ctx, []store.Progress{{
		Subscription: name, Stream: "s", Floor: n, Counts: store.Counts{Settled: n}, Done: []byte(body),
	}}); err != nil {
		return err
	}
	rows := []store.OutboxRow{{Stream: name, Event: fmt.Append(nil, n, "a ", body)}, {Stream: name, Event: fmt.Append(nil, n, "b ", body)}}
	if err := tx.Outbox.Append(ctx, rows); err != nil {
		return err
	}
	if _, err := tx.Quarantine.Put(ctx, store.QuarantineRecord{QID: fmt.Sprintf("%s-%08d", name, n), Subscription: name, Body: []byte(body)}); err != nil {
		return err
	}
	if got, err := tx.Gas.Debit(ctx, name, 1<<30, 0, 2, epoch); err != nil || got != 2 {
		return fmt.Errorf("debit got %d: %w", got, err)
	}
	return putNumber(ctx, tx, name, n)
}

// VerifyFlood checks what Flood left: each worker stands at or above its
// highest answer, and all that it wrote agrees with where it stands.
func VerifyFlood(t testing.TB, s store.Store, answered []uint64) {
	t.Helper()
	perStream := map[string]int{}
	for after := int64(0); ; {
		rows := pending(t, s, after, 5000)
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			n := uint64(perStream[r.Stream] / 2)
			want := fmt.Append(nil, n+1, string("ab"[perStream[r.Stream]%2]), " ")
			if !strings.HasPrefix(string(r.Event), string(want)) {
				t.Fatalf("outbox of %s has %.20q, want %q", r.Stream, r.Event, want)
			}
			perStream[r.Stream]++
			after = r.Seq
		}
	}
	for w, highest := range answered {
		name := floodName(w)
		floor, err := floodFloor(t.Context(), s, w)
		if err != nil {
			t.Fatalf("View: %v", err)
		}
		if floor < highest {
			t.Errorf("%s stands at %d, but %d was answered", name, floor, highest)
		}
		if floor == 0 {
			continue
		}
		verifyWorker(t, s, name, floor, perStream[name])
	}
}

func verifyWorker(t testing.TB, s store.Store, name string, floor uint64, rows int) {
	t.Helper()
	equal(t, "outbox rows of "+name, rows, int(2*floor))
	equal(t, "number of "+name, read(t, s, func(ctx context.Context, tx *store.Tx) (uint64, error) { return number(ctx, tx, name) }), floor)
	equal(t, "gas of "+name, account(t, s, name).Debited, int(2*floor))
	records := read(t, s, func(ctx context.Context, tx *store.Tx) (int, error) {
		groups, err := tx.Quarantine.Groups(ctx, store.QuarantineFilter{Subscription: name})
		if err != nil || len(groups) != 1 {
			return len(groups), err
		}
		return groups[0].Count, nil
	})
	equal(t, "records of "+name, records, int(floor))
	err := failing(t, s, func(ctx context.Context, tx *store.Tx) (store.QuarantineRecord, error) {
		return tx.Quarantine.Get(ctx, fmt.Sprintf("%s-%08d", name, floor+1))
	})
	code(t, "record of a step that was not taken", err, headgate.CodeNotFound)
}
