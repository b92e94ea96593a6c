package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
)

// once is a source that returns some rows, one transaction each.
type once struct {
	rows []*Row
	at   int
}

func (o *once) Open(context.Context) (Session, error) { return o, nil }

func (o *once) Receive(ctx context.Context) ([]Change, error) {
	if o.at == len(o.rows) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	row := o.rows[o.at]
	o.at++
	return []Change{{Kind: Begin}, {Kind: Insert, Row: row}, {Kind: Commit, Position: Position(row.Seq)}}, nil
}

func (o *once) Confirm(Position)                  {}
func (o *once) Prove(context.Context, Mark) error { return nil }
func (o *once) Lead() error                       { return nil }
func (o *once) Close(context.Context) error       { return nil }

// moody is a perimeter that refuses for good, puts off, and does not know. It
// keeps what stands behind such an item of the same key, unless it is broken.
type moody struct {
	broken bool
	t      *testing.T

	mu       sync.Mutex
	rng      *rand.Rand
	last     map[string]int64 // of each key, the last one that was dealt with
	disorder int
	most     int // of one key in one call
	repeated map[string]int
}

func (m *moody) Admit(_ context.Context, s perimeter.Submission) []perimeter.Result {
	time.Sleep(time.Millisecond) // virtual: more comes meanwhile
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]perimeter.Result, len(s.Items))
	waits, of := map[string]bool{}, map[string]int{}
	for i := range s.Items {
		e := s.Items[i].Event
		results[i].Event = e
		of[e.Key]++
		m.most = max(m.most, of[e.Key])
		if waits[e.Key] && !m.broken {
			results[i].Err = headgate.NewError(headgate.CodeHeldBack, "behind another")
			continue
		}
		switch m.rng.IntN(12) {
		case 0:
			results[i].Err = headgate.NewError(headgate.CodeRateLimited, "later")
			waits[e.Key] = true
		case 1:
			results[i].Err = headgate.NewError(headgate.CodeUnknownOutcome, "perhaps")
			waits[e.Key] = true
		case 2:
			results[i].Err = headgate.NewError(headgate.CodeContractViolation, "never")
			waits[e.Key] = true
			fallthrough
		default:
			var n int64
			if _, err := fmt.Sscan(e.ID, &n); err != nil {
				m.t.Error(err)
			}
			if n < m.last[e.Key] {
				m.disorder++
			}
			m.last[e.Key] = n
			m.repeated[e.ID]++
		}
	}
	return results
}

func (m *moody) Keep(_ context.Context, rs []quarantine.Refusal, _ []time.Time, _ []string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rng.IntN(3) == 0 {
		for i := range rs {
			m.repeated[rs[i].Event.ID]-- // it is handed in again
		}
		return nil, headgate.NewError(headgate.CodeQuarantineFull, "full")
	}
	return make([]string, len(rs)), nil
}

// relayed runs rows of a few keys past it.
func (m *moody) relayed(t *testing.T, rows int) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		src := &once{}
		for i := range rows {
			src.rows = append(src.rows, &Row{Seq: int64(i + 1), Committed: time.Now(), Event: &headgate.Event{ID: fmt.Sprint(i + 1), Key: fmt.Sprint("k", i%3)}})
		}
		done := make(chan struct{}, rows)
		r, err := New(Config{
			Name: "x", Source: src, Admit: m, Keep: m, Lanes: 2, Done: func(Done) { done <- struct{}{} },
			Principal: func(string) (*headgate.Principal, error) { return &headgate.Principal{Name: "p"}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		for range rows {
			<-done
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Many rows of a key go in one submission, and whatever becomes of one of them,
// those of each key end in the order of the log, each once.
func TestRowsOfOneKeyGoTogetherInOrder(t *testing.T) {
	for seed := range uint64(5) {
		m := &moody{t: t, rng: rand.New(rand.NewPCG(seed, 1)), last: map[string]int64{}, repeated: map[string]int{}}
		m.relayed(t, 2000)
		if m.disorder > 0 {
			t.Errorf("seed %d: %d times an event went behind a later one of its key", seed, m.disorder)
		}
		if m.most < 10 {
			t.Errorf("seed %d: at most %d of a key went in one submission", seed, m.most)
		}
		for id, n := range m.repeated {
			if n != 1 {
				t.Errorf("seed %d: event %s was dealt with %d times", seed, id, n)
			}
		}
	}
}

// Without the perimeter's promise the test of before fails.
func TestOrderRestsOnWhatIsHeldBack(t *testing.T) {
	m := &moody{t: t, broken: true, rng: rand.New(rand.NewPCG(1, 1)), last: map[string]int64{}, repeated: map[string]int{}}
	m.relayed(t, 2000)
	if m.disorder == 0 {
		t.Error("a perimeter that holds nothing back keeps the order: the test cannot see it")
	}
}
