package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
)

// world is a database with an outbox, a perimeter with a rate for each role and
// a quarantine, in virtual time. Sessions die in it, answers get lost, and rows
// wait; what it stores must be in the order of each key.
type world struct {
	early bool // sessions say at once that the past was read
	loose bool // the perimeter holds nothing back behind what waits

	mu        sync.Mutex
	rng       *rand.Rand
	log       [][]*Row // transactions in the order of their commits
	seen      int      // how many of them are committed
	confirmed Position
	pages     map[pageKey]string
	live      *life
	tokens    map[string]float64
	filled    time.Time
	rate      float64
	calm      bool
	ended     map[int64]bool // stored, or kept
	last      map[string]int64
	disorder  []string
	aside     int // rows that were read again
	deaths    int
}

type pageKey struct {
	role   string
	roots  bool
	number int64
}

// life is a session of the world.
type life struct {
	w    *world
	at   int
	end  int // of the log when it began
	told bool
	dead chan struct{}
}

var errDead = errors.New("the session died")

func (w *world) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

func newWorld(seed uint64, transactions int) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 7)), pages: map[pageKey]string{}, tokens: map[string]float64{}, rate: 4,
		ended: map[int64]bool{}, last: map[string]int64{}, filled: time.Now(),
	}
	roles := []string{"slow", "slower", "free"}
	seq := int64(0)
	halves := make([]int, transactions)
	for i := range transactions {
		halves[i] = w.rng.IntN(2)
		rows := make([]*Row, 1+w.rng.IntN(12))
		role := roles[w.rng.IntN(len(roles))]
		for k := range rows {
			seq++
			rows[k] = &Row{Seq: seq, Role: role, Event: &headgate.Event{ID: fmt.Sprint(seq), Key: fmt.Sprintf("k%d", 2*w.rng.IntN(4)+halves[i])}}
		}
		w.log = append(w.log, rows)
	}
	// Numbers are given before commits: those of other keys may overtake.
	for i := 1; i < transactions; i++ {
		if halves[i] != halves[i-1] && w.rng.IntN(3) == 0 {
			halves[i], halves[i-1] = halves[i-1], halves[i]
			w.log[i], w.log[i-1] = w.log[i-1], w.log[i]
		}
	}
	return w
}

func (w *world) Open(context.Context) (Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = &life{w: w, at: int(w.confirmed), end: w.seen, dead: make(chan struct{})}
	return w.live, nil
}

func (l *life) Receive(ctx context.Context) ([]Change, error) {
	for {
		time.Sleep(time.Duration(l.w.roll(15)) * time.Millisecond)
		l.w.mu.Lock()
		if l.w.early && !l.told || !l.told && l.at >= l.end {
			l.told = true
			l.w.mu.Unlock()
			return []Change{{Kind: Present}}, nil
		}
		var rows []*Row
		if l.at < l.w.seen {
			rows = l.w.log[l.at]
			l.at++
		}
		at := Position(l.at)
		l.w.mu.Unlock()
		if err := l.Lead(); err != nil {
			return nil, err
		}
		if rows != nil {
			changes := []Change{{Kind: Begin}}
			for _, r := range rows {
				row := *r
				changes = append(changes, Change{Kind: Insert, Row: &row})
			}
			return append(changes, Change{Kind: Commit, Position: at}), nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-l.dead:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *life) Lead() error {
	select {
	case <-l.dead:
		return errDead
	default:
		return nil
	}
}

func (l *life) Confirm(p Position) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.Lead() == nil {
		l.w.confirmed = max(l.w.confirmed, p)
	}
}

func (l *life) Prove(context.Context, Mark) error { return l.Lead() }
func (l *life) Close(context.Context) error       { return nil }

func (l *life) LoadAside(context.Context) ([]AsidePage, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	var all []AsidePage
	for p, b := range l.w.pages {
		all = append(all, AsidePage{p.role, p.roots, p.number, []byte(b)})
	}
	return all, nil
}

// SaveAside takes no virtual time: one that waits for the other's save would stop
// it.
func (l *life) SaveAside(_ context.Context, pages []AsidePage) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.Lead(); err != nil {
		return err
	}
	for _, p := range pages {
		key := pageKey{p.Role, p.Roots, p.Number}
		if l.w.pages[key] = string(p.Bits); len(p.Bits) == 0 {
			delete(l.w.pages, key)
		}
	}
	return nil
}

func (l *life) ReadAside(_ context.Context, numbers []int64, _ int) ([]*Row, []int64, error) {
	time.Sleep(time.Duration(l.w.roll(30)) * time.Millisecond) // meanwhile more is set aside
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.Lead(); err != nil {
		return nil, nil, err
	}
	var rows []*Row
	for _, tx := range l.w.log[:l.w.seen] {
		for _, r := range tx {
			if slices.Contains(numbers, r.Seq) {
				row := *r
				rows = append(rows, &row)
			}
		}
	}
	slices.SortFunc(rows, func(a, b *Row) int { return int(a.Seq - b.Seq) })
	rows = rows[:min(len(rows), 1+l.w.rng.IntN(20))]
	l.w.aside += len(rows)
	return rows, nil, nil
}

// allows takes from the rate of a role.
func (w *world) allows(role string) bool {
	if role == "free" {
		return true
	}
	for _, r := range []string{"slow", "slower"} {
		w.tokens[r] = min(w.tokens[r]+time.Since(w.filled).Seconds()*w.rate, max(w.rate, 1))
	}
	w.filled = time.Now()
	if w.tokens[role] < 1 {
		return false
	}
	w.tokens[role]--
	return true
}

// ends notes that a row is stored or kept.
func (w *world) ends(e *headgate.Event) (again bool) {
	var n int64
	fmt.Sscan(e.ID, &n)
	if w.ended[n] {
		return true
	}
	w.ended[n] = true
	if n < w.last[e.Key] {
		w.disorder = append(w.disorder, fmt.Sprintf("%d of key %s after %d", n, e.Key, w.last[e.Key]))
	}
	w.last[e.Key] = max(n, w.last[e.Key])
	return false
}

func (w *world) Admit(_ context.Context, s perimeter.Submission) []perimeter.Result {
	time.Sleep(time.Duration(1+w.roll(4)) * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	results := make([]perimeter.Result, len(s.Items))
	waits := map[string]bool{}
	lost := !w.calm && w.rng.IntN(15) == 0 // the answer of the broker
	for i := range s.Items {
		e := s.Items[i].Event
		results[i].Event = e
		code := headgate.Code("")
		switch {
		case waits[e.Key] && !w.loose:
			code = headgate.CodeHeldBack
		case !w.allows(s.Principal.Name):
			code = headgate.CodeRateLimited
		case lost:
			if code = headgate.CodeUnknownOutcome; w.rng.IntN(2) == 0 {
				w.ends(e)
			}
		case e.ID[len(e.ID)-1] == '7':
			results[i].Err = headgate.NewError(headgate.CodeContractViolation, "never")
			waits[e.Key] = true
			continue
		default:
			results[i].Duplicate = w.ends(e)
		}
		if code != "" {
			results[i].Err = headgate.NewError(code, "later")
			waits[e.Key] = true
		}
	}
	return results
}

func (w *world) Keep(_ context.Context, rs []quarantine.Refusal, _ []time.Time, _ []string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.calm && w.rng.IntN(3) == 0 {
		return nil, headgate.NewError(headgate.CodeQuarantineFull, "full")
	}
	if !w.calm && w.rng.IntN(6) == 0 {
		return nil, headgate.NewError(headgate.CodeTooLarge, "too large at the moment")
	}
	for i := range rs {
		w.ends(rs[i].Event)
	}
	return make([]string, len(rs)), nil
}

// history lets transactions commit and sessions die, then lets all of it end.
func (w *world) history(t *testing.T) {
	for {
		time.Sleep(time.Duration(w.roll(12)) * time.Millisecond)
		w.mu.Lock()
		over := w.seen == len(w.log)
		if !over {
			for _, r := range w.log[w.seen] {
				r.Committed = time.Now()
			}
			w.seen++
		}
		if w.live != nil && w.rng.IntN(60) == 0 && w.live.Lead() == nil {
			close(w.live.dead)
			w.deaths++
		}
		if w.rng.IntN(40) == 0 {
			w.rate = []float64{0.5, 4, 500, 1e4}[w.rng.IntN(4)]
		}
		w.mu.Unlock()
		if over {
			break
		}
	}
	w.mu.Lock()
	w.calm, w.rate = true, 1e6
	rows := 0
	for _, tx := range w.log {
		rows += len(tx)
	}
	w.mu.Unlock()
	for range 10_000 {
		time.Sleep(100 * time.Millisecond)
		w.mu.Lock()
		done := len(w.ended) == rows && len(w.pages) == 0 && w.confirmed == Position(len(w.log))
		w.mu.Unlock()
		if done {
			return
		}
	}
	t.Errorf("%d of %d rows ended, %d pages are left, %d of %d transactions are confirmed", len(w.ended), rows, len(w.pages), w.confirmed, len(w.log))
}

// lived runs a relay through a world of so many transactions.
func lived(t *testing.T, seed uint64, change func(*world)) (w *world) {
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(seed, 300)
		change(w)
		r, err := New(Config{
			Name: "x", Source: w, Admit: w, Keep: w, Lanes: 2, InFlight: 24,
			Principal: func(role string) (*headgate.Principal, error) { return &headgate.Principal{Name: role}, nil },
			Horizon:   time.Duration(seed%2) * 200 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		w.history(t)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// Rows of several roles share keys, some of the roles are beyond their rates,
// sessions die, answers are lost and the quarantine cannot keep all at times: in the end
// every row was stored or kept, those of each key in their order.
func TestOrderOutlivesSettingAside(t *testing.T) {
	aside, deaths := 0, 0
	for seed := range uint64(12) {
		w := lived(t, seed, func(*world) {})
		if len(w.disorder) > 0 {
			t.Errorf("seed %d: %d out of order, first %s", seed, len(w.disorder), w.disorder[0])
		}
		aside, deaths = aside+w.aside, deaths+w.deaths
	}
	if aside < 1000 || deaths < 12 {
		t.Errorf("%d rows were read again, %d sessions died: too few to see anything", aside, deaths)
	}
	t.Logf("%d rows were read again, %d sessions died", aside, deaths)
}

// The test of before sees what the order rests on.
func TestDisorderOfRowsSetAsideIsSeen(t *testing.T) {
	for name, change := range map[string]func(*world){
		"read again before the past": func(w *world) { w.early = true },
		"nothing is held back":       func(w *world) { w.loose = true },
	} {
		found := 0
		for seed := range uint64(12) {
			found += len(lived(t, seed, change).disorder)
		}
		if found == 0 {
			t.Errorf("%s: every history is in order", name)
		}
		t.Logf("%s: %d out of order", name, found)
	}
}

// narrow is a quarantine that cannot keep every tenth row for its size.
type narrow struct {
	*world
	wide bool
}

func (q *narrow) Keep(ctx context.Context, rs []quarantine.Refusal, at []time.Time, keys []string) ([]string, error) {
	q.mu.Lock()
	wide := q.wide
	q.mu.Unlock()
	for i := range rs {
		if e := rs[i].Event; !wide && len(e.ID) > 1 && e.ID[len(e.ID)-2:] == "17" {
			return nil, headgate.NewError(headgate.CodeTooLarge, "too large")
		}
	}
	return q.world.Keep(ctx, rs, at, keys)
}

// A row that the quarantine cannot keep holds its key alone, not its role's rows
// of the lane, and goes when it can be kept.
func TestRowTooLargeToKeepHoldsItsKeyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, 0)
		w.calm, w.rate = true, 1e6
		const rows = 200
		for n := range int64(rows) {
			w.log = append(w.log, []*Row{{Seq: n + 1, Role: "free", Committed: time.Now(), Event: &headgate.Event{ID: fmt.Sprint(n + 1), Key: fmt.Sprintf("k%d", n%20)}}})
		}
		w.seen = rows
		q := &narrow{world: w}
		r, err := New(Config{
			Name: "x", Source: w, Admit: w, Keep: q, Lanes: 1,
			Principal: func(role string) (*headgate.Principal, error) { return &headgate.Principal{Name: role}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		// 17 and 117 are of one key, the 17th of each twenty.
		if got := len(w.ended); got != rows-10 {
			t.Errorf("%d of %d rows ended", got, rows-10)
		}
		q.wide = true
		w.mu.Unlock()
		if waits := r.Status().Waiting[headgate.CodeTooLarge]; waits != 1 {
			t.Errorf("%d rows are said to be too large", waits)
		}
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		if len(w.ended) != rows || len(w.disorder) > 0 {
			t.Errorf("%d of %d rows ended; out of order: %q", len(w.ended), rows, w.disorder)
		}
		w.mu.Unlock()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
