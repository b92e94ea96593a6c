package perimeter

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/quarantine"
)

// original is what an item held before its payload was mended.
type original struct {
	data []byte
	err  *headgate.Error // that it would have been refused with
}

// mend puts the mended payload in place of an item's own, where it may, and
// reports whether it did. The mended one passes the contract.
func (r *run) mend(i int, mended []byte, refusal *headgate.Error) bool {
	e, en := r.results[i].Event, &r.entries[i]
	if mended == nil || e.Data == nil || r.payloadSize(&headgate.Event{Type: e.Type, Data: mended}, en.typ.PayloadMax) != nil {
		return false
	}
	en.original = &original{data: e.Data, err: refusal}
	e.Data = mended
	return true
}

// unmend gives an item that is refused after all its own payload back, with
// its frame.
func (r *run) unmend(i int) {
	if o := r.entries[i].original; o != nil {
		e := r.results[i].Event
		e.Data = o.data
		e.Extensions = slices.DeleteFunc(slices.Clone(e.Extensions), func(x headgate.Extension) bool { return x.Name == headgate.AttributeMended })
		r.entries[i].original = nil
	}
	if framed := r.entries[i].framed; framed != nil {
		r.results[i].Event.Data, r.entries[i].framed = framed, nil
	}
}

// keepOriginals records the payloads that were mended, and marks their events
// with the record. What cannot be kept is not mended: it is refused as it
// would have been.
func (r *run) keepOriginals(ctx context.Context) {
	var refusals []quarantine.Refusal
	var data [][]byte
	var items []int
	id, root := r.parent()
	for i := range r.entries {
		o := r.entries[i].original
		if o == nil || r.entries[i].state != statePassed {
			continue
		}
		items = append(items, i)
		data = append(data, o.data)
		refusals = append(refusals, quarantine.Refusal{
			Principal: r.principalName(), Door: r.s.Door, Stage: StageContract, Event: r.results[i].Event,
			Cause: id, Root: root, Err: o.err, RequestID: r.s.RequestID, Ignored: r.s.Items[i].Ignored,
		})
	}
	if len(items) == 0 {
		return
	}
	qids, err := r.p.cfg.Quarantine.KeepMended(ctx, refusals, data)
	if err != nil {
		r.p.cfg.Log.WarnContext(ctx, "originals of mended payloads cannot be kept; their events are refused", "error", err)
	}
	for k, i := range items {
		if err != nil {
			refusal := r.entries[i].original.err
			r.unmend(i)
			r.release(i)
			r.refuse(i, StageContract, refusal)
			continue
		}
		e := r.results[i].Event
		e.Extensions = append(e.Extensions[:len(e.Extensions):len(e.Extensions)], headgate.Extension{Name: headgate.AttributeMended, Value: qids[k]})
		r.results[i].Mended, r.entries[i].kept = qids[k], qids[k]
	}
}

// dropOriginals deletes the records that no event names: of events that were
// not stored after all, and of those that turned out to be duplicates of one
// that names another record or none. Where that is not known, they stay.
func (r *run) dropOriginals(ctx context.Context) {
	var qids []string
	for i := range r.entries {
		en := &r.entries[i]
		refused := en.state == stateRefused && r.results[i].Err.Info().Outcome == headgate.NotApplied
		if en.kept != "" && (en.unneeded || refused) {
			qids = append(qids, en.kept)
			if r.results[i].Mended == en.kept {
				r.results[i].Mended = ""
			}
		}
	}
	if len(qids) == 0 {
		return
	}
	if err := r.p.cfg.Quarantine.DropMended(context.WithoutCancel(ctx), qids); err != nil {
		r.p.cfg.Log.WarnContext(ctx, "originals of payloads that were not stored could not be deleted; they expire", "error", err)
	}
}
