package relay

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is the tracker done plainly: every step of the log with its rows.
type model struct {
	steps []modelStep
}

type modelStep struct {
	pos    Position
	rows   int
	closed bool
	mark   bool
}

// confirmable is the greatest position before which nothing is open.
func (m *model) confirmable() Position {
	var pos Position
	for _, s := range m.steps {
		if !s.closed || s.rows > 0 || s.mark {
			break
		}
		pos = max(pos, s.pos)
	}
	return pos
}

// The tracker confirms exactly what the model allows: never early, and never
// less than it may.
func TestTrap01NeverConfirmsBeforeAck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr tracker
		var m model
		var pos Position
		var last Position
		owner := map[uint64]int{} // entry → step
		pending := map[uint64]int{}
		open := false
		check := func() {
			got, mark, _ := tr.advance(time.Time{})
			want := max(m.confirmable(), last)
			if got != want {
				t.Fatalf("confirmed %d, want %d; steps %+v", got, want, m.steps)
			}
			if got < last {
				t.Fatalf("the position fell from %d to %d", last, got)
			}
			last = got
			if mark != nil && rapid.Bool().Draw(t, "prove") {
				tr.proven()
				for i := range m.steps {
					if m.steps[i].mark {
						m.steps[i].mark = false
						break
					}
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				if open {
					t.Skip()
				}
				tr.begin()
				m.steps = append(m.steps, modelStep{})
				open = true
			},
			"row": func(t *rapid.T) {
				if !open {
					t.Skip()
				}
				id := tr.row(time.Time{})
				owner[id] = len(m.steps) - 1
				pending[id]++
				m.steps[len(m.steps)-1].rows++
			},
			"commit": func(t *rapid.T) {
				if !open {
					t.Skip()
				}
				pos += Position(rapid.IntRange(1, 9).Draw(t, "step"))
				tr.commit(pos)
				s := &m.steps[len(m.steps)-1]
				s.closed, s.pos = true, pos
				open = false
			},
			"idle": func(t *rapid.T) {
				at := pos + Position(rapid.IntRange(0, 9).Draw(t, "step"))
				tr.idle(at)
				if !open {
					pos = at
					m.steps = append(m.steps, modelStep{closed: true, pos: at})
				}
			},
			"beat": func(t *rapid.T) {
				tr.beat(Mark{Number: 1})
				if open {
					m.steps[len(m.steps)-1].mark = true
				} else {
					m.steps = append(m.steps, modelStep{closed: true, mark: true})
				}
			},
			"ack": func(t *rapid.T) {
				for id, n := range pending {
					k := rapid.IntRange(1, n).Draw(t, "acks")
					tr.finish(id, k, time.Time{})
					m.steps[owner[id]].rows -= k
					if pending[id] -= k; pending[id] == 0 {
						delete(pending, id)
					}
					break
				}
			},
			"": func(*rapid.T) { check() },
		})
	})
}

func TestHorizonHoldsBack(t *testing.T) {
	tr := tracker{horizon: time.Second}
	start := time.Unix(100, 0)
	tr.begin()
	id := tr.row(time.Time{})
	tr.commit(7)
	tr.finish(id, 1, start)
	if pos, _, wait := tr.advance(start.Add(400 * time.Millisecond)); pos != 0 || wait != 600*time.Millisecond {
		t.Errorf("within the horizon: position %d, wait %v", pos, wait)
	}
	if pos, _, _ := tr.advance(start.Add(time.Second)); pos != 7 {
		t.Errorf("beyond the horizon: position %d", pos)
	}
}
