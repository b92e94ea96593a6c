package perimeter_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/topology"
)

func keyed(eventType, id, key, data string) *headgate.Event {
	e := event(eventType, id, data)
	e.Key = key
	return e
}

func (g *gate) inOrder(p *headgate.Principal, tokens []string, events ...*headgate.Event) []perimeter.Result {
	g.t.Helper()
	return g.Admit(g.t.Context(), perimeter.Submission{Principal: p, Door: "test", Tokens: tokens, Items: items(events...), InOrder: true})
}

// TestRefusedHoldsItsKeyBack: behind a refusal its key waits, other keys do
// not, and what waits costs nothing and is told to nobody.
func TestRefusedHoldsItsKeyBack(t *testing.T) {
	g := open(t, setup{})
	root, token := g.root("r", "writer")
	left, refused := g.left(root), len(g.seen.refused)
	res := g.inOrder(agent("writer"), []string{token},
		keyed("ticket.answer", "1", "a", `{"n":1}`),
		keyed("ticket.answer", "2", "a", `{"n":"no"}`),
		keyed("ticket.answer", "3", "a", `{"n":3}`),
		keyed("ticket.answer", "4", "b", `{"n":4}`),
		event("ticket.answer", "5", `{"n":5}`),
		keyed("ticket.answer", "1", "a", `{"n":1}`), // a twin
		keyed("ticket.answer", "6", "a", `{"n":"no"}`),
	)
	wantCodes(t, res, "ok", "contract_violation@contract", "held_back@stamp", "ok", "ok", "held_back@stamp", "held_back@stamp")
	if n := left - g.left(root); n != 3 {
		t.Errorf("%d units of gas were charged for 3 events", n)
	}
	if n := len(g.seen.refused) - refused; n != 1 {
		t.Errorf("%d refusals were told, want 1", n)
	}
	if res[1].QID == "" || res[2].QID != "" || res[6].QID != "" {
		t.Errorf("records %q, %q, %q", res[1].QID, res[2].QID, res[6].QID)
	}
	again := g.inOrder(agent("writer"), []string{token}, keyed("ticket.answer", "3", "a", `{"n":3}`), keyed("ticket.answer", "1", "a", `{"n":1}`), keyed("ticket.answer", "7", "a", `{"n":7}`))
	wantCodes(t, again, "ok", "duplicate", "ok")
	if a, b := again[0].Position, again[2].Position; a.Partition != b.Partition || b.Offset != a.Offset+1 {
		t.Errorf("stored at %s and %s", a, b)
	}
}

// TestKeyExpressionsHoldBack: a key that is read from the payload holds back
// as one that was sent, also where it can be told late or not at all.
func TestKeyExpressionsHoldBack(t *testing.T) {
	g := open(t, setup{})
	late := helpdesk()
	late.Emit = []string{"note.keyed", "ticket.*"}
	avro := event("note.avro", "5", "\x02a\x02") // key "a"
	avro.DataContentType = headgate.MediaTypeAvro
	res := g.inOrder(late, nil,
		event("note.keyed", "1", `{"key":"a"}`),
		keyed("order.placed", "2", "a", `{}`), // not allowed
		event("note.keyed", "3", `{"key":"a"}`),
		event("note.keyed", "4", `{"key":"b"}`),
		avro, // not allowed, and its key cannot be told
		event("note.keyed", "6", `{"key":"c"}`),
	)
	wantCodes(t, res, "ok", "type_not_allowed@right", "held_back@stamp", "ok", "type_not_allowed@right", "held_back@stamp")
	late.Emit = []string{"note.*"}
	wantCodes(t, g.inOrder(late, nil, keyed("order.placed", "2", "a", `{}`), avro), "type_not_allowed@right", "held_back@stamp")
	wantCodes(t, g.inOrder(late, nil, avro), "ok")
}

// TestJudgingEndsWithWhatHasToWait: behind an item that may be admitted later
// nothing is judged.
func TestJudgingEndsWithWhatHasToWait(t *testing.T) {
	g := open(t, setup{})
	slow := helpdesk()
	slow.Roots = headgate.RootRight{Allowed: true, Rate: 0.001, Burst: 2}
	res := g.inOrder(slow, nil,
		keyed("ticket.opened", "1", "a", `{"n":1}`), keyed("ticket.opened", "2", "b", `{"n":2}`),
		keyed("ticket.opened", "3", "c", `{"n":3}`), keyed("ticket.opened", "4", "d", `{"n":"no"}`))
	wantCodes(t, res, "ok", "ok", "rate_limited@cause", "held_back@stamp")
}

// TestUnkeptOriginalHoldsItsKeyBack: what is refused only once others passed
// holds them back too, and their rate is given back.
func TestUnkeptOriginalHoldsItsKeyBack(t *testing.T) {
	g := open(t, setup{records: 1})
	for i := range 3 { // fills the quarantine
		g.admit(helpdesk(), event("ticket.opened", fmt.Sprint("full", i), `{"n":"no"}`), event("note.mended", fmt.Sprint("m", i), `{"subPath":"a","n":"7"}`))
	}
	slow := helpdesk()
	slow.Name, slow.Roots = "slow", headgate.RootRight{Allowed: true, Rate: 0.001, Burst: 3}
	next := keyed("ticket.opened", "next", "a", `{"n":1}`)
	res := g.inOrder(slow, nil, keyed("note.mended", "m", "a", `{"subPath":"a","n":"7"}`), next, keyed("ticket.opened", "other", "b", `{"n":1}`))
	wantCodes(t, res, "contract_violation@contract", "held_back@stamp", "ok")
	if next.Header.RootID != "" {
		t.Error("what was held back kept its header")
	}
	wantCodes(t, g.inOrder(slow, nil, next), "ok") // the third and last of the burst
}

// TestKeysKeepTheirOrder: a writer of many events of each key in one call, over
// three streams and a broker that fails, goes back to the first of each key
// that was not admitted, and drops what was refused for good. Every key then
// lies in the streams in the order of its writer, and at no time was a later
// event admitted before an earlier one.
func TestKeysKeepTheirOrder(t *testing.T) {
	for seed := range uint64(10) {
		g := open(t, setup{})
		faulty := membroker.New(membroker.Config{Faults: &membroker.Faults{Seed: seed, Throttle: 0.03, UnknownStored: 0.03, UnknownLost: 0.03}})
		for _, s := range g.cfg.Topology.Streams() {
			if _, err := faulty.Ensure(t.Context(), []broker.StreamSpec{{Name: s.Name, Partitions: s.Partitions}}); err != nil {
				t.Fatal(err)
			}
		}
		cfg := g.cfg
		cfg.Broker = faulty
		p, err := perimeter.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		g.broker = faulty
		write(t, p, rand.New(rand.NewPCG(seed, 1)))
		last := map[string]int{}
		for _, stream := range []string{"tickets", "orders", topology.DefaultStream} {
			for _, s := range g.stored(stream) {
				var key, n int
				if _, err := fmt.Sscanf(s.Event.ID, "%d-%d", &key, &n); err != nil {
					t.Fatal(err)
				}
				at := fmt.Sprint(stream, key)
				if before, ok := last[at]; ok && before >= n {
					t.Fatalf("seed %d: stream %s, key %d: %d behind %d", seed, stream, key, n, before)
				}
				last[at] = n
			}
		}
	}
}

// write hands in 60 events of each of five keys.
func write(t *testing.T, p *perimeter.Perimeter, rng *rand.Rand) {
	t.Helper()
	const keys, each = 5, 60
	kinds := []struct{ typ, data string }{{"ticket.opened", `{"n":1}`}, {"order.placed", `{}`}, {"note.keyed", `{}`}, {"ticket.opened", `{"n":"no"}`}}
	var at [keys]int
	for open := true; open; {
		var events []*headgate.Event
		var of []int
		ends := at
		for range 30 {
			if k := rng.IntN(keys); ends[k] < each {
				kind := kinds[(ends[k]*7+k)%len(kinds)]
				e := keyed(kind.typ, fmt.Sprintf("%d-%d", k, ends[k]), fmt.Sprint("key", k), kind.data)
				if kind.typ == "note.keyed" {
					e.Key, e.Data = "", fmt.Appendf(nil, `{"key":"key%d"}`, k)
				}
				events, of = append(events, e), append(of, k)
				ends[k]++
			}
		}
		if len(events) == 0 {
			open = false
			for _, n := range at {
				open = open || n < each
			}
			continue
		}
		results := p.Admit(t.Context(), perimeter.Submission{Principal: helpdesk(), Items: items(events...), InOrder: true, Unrecorded: true})
		var stuck, gone [keys]bool
		for i, res := range results {
			k := of[i]
			switch {
			case res.Err == nil && !res.Duplicate && (stuck[k] || gone[k]):
				t.Fatalf("key %d: %s was admitted behind one that was not", k, res.Event.ID)
			case stuck[k]:
			case res.Err == nil:
				at[k]++
			case res.Err.Code == headgate.CodeContractViolation:
				at[k]++ // kept elsewhere
				gone[k] = true
			default:
				stuck[k] = true
			}
		}
	}
}
