package perimeter

import (
	"cmp"
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/quarantine"
)

// finish answers twins and duplicates and records the refusals.
func (r *run) finish(ctx context.Context) {
	r.twins()
	r.duplicates(ctx)
	r.dropOriginals(ctx)
	r.record(ctx)
}

// twins share what became of the item that came first with their id.
func (r *run) twins() {
	r.each(stateTwin, func(i int) {
		first, res := &r.results[r.entries[i].twin], &r.results[i]
		switch r.entries[r.entries[i].twin].state {
		case stateRefused:
			r.refuse(i, first.Stage, first.Err)
		case stateDuplicate: // of an earlier admission, like the first
			r.entries[i].state = stateDuplicate
			res.Position = first.Position
		default:
			res.Event, res.Position, res.Contract, res.Duplicate, res.Mended = first.Event, first.Position, first.Contract, true, first.Mended
			if r.entries[r.entries[i].twin].state == stateStored {
				r.admitted(i)
			}
		}
	})
}

// Reading duplicates back: how far apart two may be, and how many events one
// call may read, to be read together. A frame is read whole either way.
const (
	browseGap   = 64
	browseLimit = 512
)

// duplicates answers with what was admitted first, read back from the stream.
func (r *run) duplicates(ctx context.Context) {
	var items []int
	r.each(stateDuplicate, func(i int) { items = append(items, i) })
	if len(items) == 0 {
		return
	}
	slices.SortFunc(items, func(a, b int) int {
		x, y := &r.results[a], &r.results[b]
		return cmp.Or(cmp.Compare(x.Stream, y.Stream), cmp.Compare(x.Position.Partition, y.Position.Partition), cmp.Compare(x.Position.Offset, y.Position.Offset))
	})
	for len(items) > 0 {
		n := r.readable(items)
		r.readBack(ctx, items[:n])
		items = items[n:]
	}
}

// readable returns how many of the sorted items one call reads.
func (r *run) readable(items []int) int {
	first := &r.results[items[0]]
	last := first.Position.Offset
	n := 1
	for ; n < len(items); n++ {
		x := &r.results[items[n]]
		if x.Stream != first.Stream || x.Position.Partition != first.Position.Partition ||
			x.Position.Offset-last > browseGap || x.Position.Offset-first.Position.Offset >= browseLimit {
			break
		}
		last = x.Position.Offset
	}
	return n
}

func (r *run) readBack(ctx context.Context, items []int) {
	first, last := &r.results[items[0]], &r.results[items[len(items)-1]]
	stored, err := r.p.cfg.Broker.Browse(ctx, first.Stream, first.Position, int(last.Position.Offset-first.Position.Offset)+1)
	if err != nil {
		// The position is the answer; the rest is courtesy.
		r.p.cfg.Log.DebugContext(ctx, "duplicate could not be read back", "stream", first.Stream, "position", first.Position.String(), "error", err)
	}
	k := 0
	for _, i := range items {
		res := &r.results[i]
		for k < len(stored) && stored[k].Position.Offset < res.Position.Offset {
			k++
		}
		if k < len(stored) && stored[k].Position == res.Position && stored[k].Event.ID == res.Event.ID && stored[k].Event.Source == res.Event.Source {
			r.entries[i].unneeded = stored[k].Event.Mended() != r.entries[i].kept
			if stored[k].Event.Header.Principal != r.s.Principal.Name {
				r.taken(i)
				continue
			}
			res.Event = stored[k].Event
			res.Contract, res.Mended = headgate.ParseContractRef(res.Event.DataSchema), res.Event.Mended()
		} else {
			res.Event.Header, res.Mended = headgate.Header{}, ""
		}
		res.Duplicate = true
		r.admitted(i)
	}
}

// taken refuses an item whose id another principal used first. To call it a
// duplicate would tell its publisher that an event is stored which is not, so
// that whoever guesses ids could make others' events vanish, and would tell
// whoever guesses them about others' events.
func (r *run) taken(i int) {
	r.results[i].Position = headgate.Position{}
	r.refuse(i, StageStamp, headgate.NewError(headgate.CodeIDTaken, "another principal published an event with this source and id"))
}

// record puts the refusals into quarantine, all in one wait.
func (r *run) record(ctx context.Context) {
	if r.s.Unrecorded {
		return
	}
	var refusals []quarantine.Refusal
	var items []int
	id, root := r.parent()
	for i := range r.entries {
		if r.entries[i].state != stateRefused || r.entries[i].failure {
			continue
		}
		it, res := &r.s.Items[i], &r.results[i]
		event := it.Event
		if it.Err != nil && it.Raw != nil {
			event = nil // what could be read of it is less than its bytes
		}
		refusals = append(refusals, quarantine.Refusal{
			Principal: r.principalName(), Door: r.s.Door, Stage: res.Stage, Event: event, Raw: it.Raw, ContentType: it.RawType,
			Cause: id, Root: root, Err: res.Err, RequestID: r.s.RequestID, Ignored: it.Ignored,
		})
		items = append(items, i)
	}
	if len(refusals) == 0 {
		return
	}
	// A client that went away is refused all the same.
	qids := r.p.cfg.Quarantine.RefusedAll(context.WithoutCancel(ctx), refusals)
	for k, i := range items {
		r.results[i].QID = qids[k]
	}
}
