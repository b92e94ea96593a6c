package perimeter

import (
	"github.com/headgate/headgate"
)

// order says what an ordered submission lacks: the keys of which an item was
// not admitted, or may not have been.
type order struct {
	first map[string]int // of each key, the first such item
	all   int            // the first such item whose key cannot be told; 0: none, else its index plus one
}

// lacks notes an item that was not admitted: what is behind it of its key has
// to wait for it.
func (r *run) lacks(i int) {
	if !r.s.InOrder {
		return
	}
	key, known := r.keyOf(i)
	switch {
	case !known:
		if r.order.all == 0 || r.order.all > i+1 {
			r.order.all = i + 1
		}
	case key != "":
		if first, ok := r.order.first[key]; ok && first < i {
			return
		}
		if r.order.first == nil {
			r.order.first = map[string]int{}
		}
		r.order.first[key] = i
	}
}

// held reports whether an item has to wait for one before it.
func (r *run) held(i int) bool {
	if r.order.all > 0 && r.order.all <= i {
		return true
	}
	if len(r.order.first) == 0 {
		return false
	}
	key, _ := r.keyOf(i)
	first, ok := r.order.first[key]
	return ok && first < i
}

// keyOf returns the key of an item as far as it was judged; known is false when
// it may have one that cannot be told. An item whose key cannot be read from
// its payload is never admitted, so it has none.
func (r *run) keyOf(i int) (key string, known bool) {
	e := r.results[i].Event
	if e == nil || e.Key != "" {
		return keyed(e), true
	}
	en := &r.entries[i]
	if en.typ == nil || en.typ.KeyOf == nil {
		return "", true // an envelope that is refused says no more
	}
	if headgate.IsAvro(e.DataContentType) && en.avro == nil {
		return "", false
	}
	key, err := en.typ.KeyOf.EvalOver(r.scope(i))
	if err != nil {
		return "", true
	}
	return key, true
}

func keyed(e *headgate.Event) string {
	if e == nil {
		return ""
	}
	return e.Key
}

// holdBack leaves an item as it was handed in, without a trace but its answer.
func (r *run) holdBack(i int, err *headgate.Error) {
	en, res := &r.entries[i], &r.results[i]
	if en.gas != nil {
		en.gas.Forgive() // it will be reserved, and counted, when its turn comes
		en.gas = nil
	}
	r.unmend(i)
	if res.Event != nil {
		res.Event.Header = headgate.Header{}
	}
	en.state, en.failure = stateRefused, true
	res.Err, res.Stage = err, StageStamp
	r.lacks(i)
}

func heldBack() *headgate.Error {
	return headgate.NewError(headgate.CodeHeldBack, "an item before it has to be dealt with first")
}

// holdBackPassed holds back what passed and stands behind what did not: that
// came out later, or the key could be told only once the payload was judged.
func (r *run) holdBackPassed() {
	if !r.s.InOrder {
		return
	}
	r.each(statePassed, func(i int) {
		if r.held(i) {
			r.holdBack(i, heldBack())
		}
	})
}
