package relay

import (
	"context"
	"fmt"
	"hash/maphash"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// largest is the largest payload of an event.
const largest = 6 << 20

// shelved is a partition whose events have a size, but for those that were
// trimmed. It counts what is asked of it.
type shelved struct {
	broker.Broker
	trimmed, end uint64
	size         func(offset uint64) int
	asked, large int // answers, and those of them beyond what memory is meant for
}

func (s *shelved) Browse(_ context.Context, _ string, from headgate.Position, limit int) (got []broker.Stored, err error) {
	bytes := 0
	for at := max(from.Offset, s.trimmed); at < s.end && len(got) < limit; at++ {
		e := &headgate.Event{ID: fmt.Sprint(at), Data: make([]byte, s.size(at))}
		got, bytes = append(got, broker.Stored{Position: headgate.Position{Offset: at}, Event: e}), bytes+len(e.Data)
	}
	s.asked++
	if bytes > blockBytes+largest {
		s.large++
	}
	return got, nil
}

// Lanes ask for what lies close together, not in order: each event is found, and
// each stretch of the partition is read about once.
func TestRepeatedRowsAreReadInBlocks(t *testing.T) {
	s := &shelved{trimmed: 100, end: 20_000, size: func(uint64) int { return 400 }}
	b := blocks{mean: 900}
	for base := uint64(0); base < s.end; base += 1000 {
		for i := range uint64(1000) {
			at := base + i*617%1000
			e, err := b.at(t.Context(), s, &pastPart{}, at)
			if err != nil || (e == nil) != (at < s.trimmed) || e != nil && e.ID != fmt.Sprint(at) {
				t.Fatalf("at %d: %+v, %v", at, e, err)
			}
		}
	}
	if most := 2 * int(s.end) / blockEvents; s.asked > most {
		t.Errorf("%d events took %d requests, want at most %d", s.end, s.asked, most)
	}
}

// Events as large as they may be are not read by the thousand.
func TestLargeEventsOfThePastAreReadOneByOne(t *testing.T) {
	s := &shelved{end: 400, size: func(at uint64) int {
		if at >= 100 && at < 200 {
			return largest
		}
		return 400
	}}
	p := &past{broker: s, seed: maphash.MakeSeed()}
	p.parts, p.at = []pastPart{{}}, map[uint64]uint64{}
	if err := p.scan(t.Context(), 0, 0, s.end); err != nil || len(p.at) != int(s.end) {
		t.Fatalf("%d events are noted, %v", len(p.at), err)
	}
	for at := range s.end {
		if e, err := p.parts[0].blocks.at(t.Context(), s, &p.parts[0], s.end-1-at); err != nil || e == nil {
			t.Fatalf("at %d: %v, %v", s.end-1-at, e, err)
		}
	}
	// That small ones are followed by large ones is seen by an answer.
	if s.large > 2 {
		t.Errorf("%d of %d answers were large", s.large, s.asked)
	}
}
