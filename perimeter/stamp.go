package perimeter

import "github.com/headgate/headgate"

// stamp fills in the ordering key, which is read from the payload and so only
// after the contract passed it, and writes the header.
func (r *run) stamp(i int) *headgate.Error {
	e, en := r.results[i].Event, &r.entries[i]
	if e.Key == "" && en.typ.KeyOf != nil {
		key, err := en.typ.KeyOf.EvalOver(r.scope(i))
		if err != nil {
			// Without its key the event would silently lose its place in order.
			bad := headgate.NewError(headgate.CodeBadEnvelope, "the ordering key of type %s cannot be read from the event: %s", e.Type, errorOf(err).Detail)
			bad.Fix = "Send partitionkey, or make the contract require what the key expression reads."
			return bad
		}
		probe := headgate.Event{Type: e.Type, Key: key}
		if err := probe.Validate(); err != nil {
			return errorOf(err)
		}
		e.Key = key
	}
	p := r.s.Principal
	e.Header = en.gas.Header
	e.Header.Principal = p.Name
	e.Header.Actor = p.Kind
	e.Header.RecordedTime = r.now
	e.Header.Fence = en.fence
	e.DataSchema = r.contractOf.name // of this item, judged just now
	return nil
}
