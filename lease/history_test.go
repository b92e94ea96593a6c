package lease

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// The histories: workers take, use, give back, lose and revoke leases at
// random, on stores whose clock jumps, and every write that was committed
// stands in the node outbox in the order of the commits.
//
// Two things are checked beside each other. Linearizability of what the
// callers saw; and that no write of an epoch was committed behind one of a
// higher epoch of the resource, which linearizability alone would allow for
// overlapping calls.

// opKind is what a worker did.
type opKind int

func (k opKind) String() string { return [...]string{"acquire", "release", "write", "revoke"}[k] }

const (
	opAcquire opKind = iota
	opRelease
	opWrite
	opRevoke
)

// call is one operation of a history.
type call struct {
	kind  opKind
	epoch int64 // the token's
}

// answer is what it returned.
type answer struct {
	ok    bool
	epoch int64 // granted, or after the end
}

// world is the model of one resource: the highest epoch that was granted or
// ended, and whether that is a grant. Time is left out: a lease may run out
// whenever it likes, so that an acquisition may succeed over a grant, and a
// write may be refused although the grant is current; but a write that passed
// must be of the current grant.
type world struct {
	epoch int64
	held  bool
	// least: the epoch may be higher. A release does not tell what it raised it
	// to.
	least bool
}

var model = porcupine.Model{
	Init: func() any { return world{} },
	Step: func(state, input, output any) (bool, any) {
		w, in, out := state.(world), input.(call), output.(answer)
		switch in.kind {
		case opAcquire:
			if !out.ok {
				return true, w
			}
			return out.epoch > w.epoch, world{epoch: out.epoch, held: true}
		case opRelease:
			if !out.ok {
				return true, w
			}
			return w.held && w.epoch == in.epoch, world{epoch: in.epoch + 1, least: true}
		case opRevoke:
			// Of several that revoke one grant one ends it. The others answer with
			// what they find: that end, or whatever came after it.
			if !out.ok || out.epoch == w.epoch && !w.least {
				return true, w
			}
			if w.least && out.epoch >= w.epoch {
				return true, world{epoch: out.epoch}
			}
			return w.held && out.epoch > w.epoch, world{epoch: out.epoch}
		default: // write
			if !out.ok {
				return true, w
			}
			return w.held && w.epoch == in.epoch, w
		}
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// history runs workers on one resource and returns what they saw, and the
// committed writes in their order.
func history(t *testing.T, seed uint64, without string, steps int) (ops []porcupine.Operation, writes []int64) {
	t.Helper()
	st := memory(t)
	s := service(t, st)
	s.without = without
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	const workers = 4
	for w := range workers {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		wg.Go(func() {
			p := worker(fmt.Sprint("w", w))
			token, epoch := "", int64(0)
			for range steps {
				var in call
				var out answer
				began := time.Since(start)
				switch x := rng.IntN(10); {
				case token == "" || x == 0:
					in.kind = opAcquire
					g, err := s.Acquire(t.Context(), p, Request{Resources: []string{"r"}, TTL: MinTTL, Wait: time.Duration(rng.IntN(3)) * 40 * time.Millisecond})
					if err == nil {
						token, epoch = g[0].Token, g[0].Epoch
						out = answer{true, epoch}
					}
				case x == 1:
					in = call{opRelease, epoch}
					out.ok = s.Release(t.Context(), p, "", token) == nil
					if rng.IntN(3) > 0 { // a zombie keeps its token
						token = ""
					}
				case x == 2:
					in.kind = opRevoke
					r, err := s.Revoke(t.Context(), "r", Revocation{Terminate: true})
					if out.ok = err == nil && r.Killed; out.ok {
						out.epoch = r.Epoch
					}
				default:
					in = call{opWrite, epoch}
					out.ok = write(t.Context(), s, st, token) == nil
				}
				mu.Lock()
				ops = append(ops, porcupine.Operation{ClientId: w, Input: in, Output: out, Call: int64(began), Return: int64(time.Since(start))})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	err := st.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Outbox.Pending(ctx, 0, 1<<20)
		for _, r := range rows {
			var resource string
			var epoch int64
			if n, err := fmt.Sscanf(string(r.Event), "%1s@%d", &resource, &epoch); n != 2 || err != nil {
				t.Errorf("outbox row %q", r.Event)
			}
			writes = append(writes, epoch)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ops, writes
}

// judgeHistory returns what is wrong with a history.
func judgeHistory(ops []porcupine.Operation, writes []int64) string {
	for i := 1; i < len(writes); i++ {
		if writes[i] < writes[i-1] {
			return fmt.Sprintf("write %d of epoch %d was committed behind one of epoch %d", i, writes[i], writes[i-1])
		}
	}
	if r := porcupine.CheckOperationsTimeout(model, ops, 20*time.Second); r != porcupine.Ok {
		return "the history is not linearizable: " + string(r)
	}
	return ""
}

// historyText writes a history out, in the order in which its calls began.
func historyText(ops []porcupine.Operation) string {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var text strings.Builder
	for _, o := range ops {
		_, _ = fmt.Fprintf(&text, "%12d to %12d, worker %d: %+v gives %+v\n", o.Call, o.Return, o.ClientId, o.Input, o.Output)
	}
	return text.String()
}

func campaign(short, long int) int {
	if os.Getenv("HEADGATE_CAMPAIGN") != "" {
		return long
	}
	return short
}

func TestHistories(t *testing.T) {
	first := rand.Uint64()
	if v, err := strconv.ParseUint(os.Getenv("HEADGATE_SEED"), 10, 64); err == nil {
		first = v
	}
	writes := 0
	for i := range campaign(4, 400) {
		seed := first + uint64(i)
		ops, committed := history(t, seed, "", 60)
		writes += len(committed)
		if why := judgeHistory(ops, committed); why != "" {
			t.Fatalf("HEADGATE_SEED=%d: %s\n%s", seed, why, historyText(ops))
		}
	}
	if writes == 0 {
		t.Error("no history wrote anything")
	}
	t.Logf("%d fenced writes", writes)
}

// TestHistoriesNoticeABrokenGuard: without its predicate on epochs the guard
// must turn the checks red.
func TestHistoriesNoticeABrokenGuard(t *testing.T) {
	for i := range uint64(10) {
		// Without the epoch the nonce would still tell: take both out.
		ops, writes := history(t, i, onEpoch+onNonce, 60)
		if judgeHistory(ops, writes) != "" {
			return
		}
	}
	t.Error("a guard without epoch and nonce went unnoticed")
}

// TestStaleAttempts: none of many writes under superseded leases commits.
func TestStaleAttempts(t *testing.T) {
	st := memory(t)
	s := service(t, st)
	var tokens []string
	for range 20 {
		g, err := s.Acquire(t.Context(), worker("a"), Request{Resources: []string{"r"}})
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, g[0].Token)
		if err := s.Release(t.Context(), worker("a"), "", g[0].Token); err != nil {
			t.Fatal(err)
		}
	}
	live, err := s.Acquire(t.Context(), worker("b"), Request{Resources: []string{"r"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	n := campaign(2000, 100_000)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range n / 4 {
				if i%8 == 0 {
					if err := write(t.Context(), s, st, live[0].Token); err != nil {
						t.Error(err)
					}
				}
				if err := write(t.Context(), s, st, tokens[(i+w)%len(tokens)]); headgate.CodeOf(err) != headgate.CodeStaleFence {
					t.Errorf("a stale write: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
