package perimeter

import (
	"net/url"
	"slices"
	"time"
	"unicode"

	"github.com/headgate/headgate"
)

// envelope checks the attributes, fills in what may be absent, and clears the
// header. Decoders have checked what came from a client; what is made in this
// process is checked here alone.
func (r *run) envelope(i int) *headgate.Error {
	it := &r.s.Items[i]
	if it.Err != nil {
		return it.Err
	}
	e := it.Event
	if e == nil {
		return headgate.NewError(headgate.CodeBadEnvelope, "there is no event")
	}
	e.Header = headgate.Header{}
	r.dropReserved(e)
	if err := e.Validate(); err != nil {
		return errorOf(err)
	}
	en := &r.entries[i]
	en.typ = r.p.cfg.Topology.Lookup(e.Type)
	r.results[i].Stream = en.typ.Stream
	r.identify(e, en)
	if err := r.payloadSize(e, en.typ.PayloadMax); err != nil {
		return err
	}
	return r.expiry(e, en.typ.Expire)
}

// dropReserved drops extension attributes that only the perimeter sets, should
// a door have let them through, and tells of them.
func (r *run) dropReserved(e *headgate.Event) {
	if !slices.ContainsFunc(e.Extensions, reserved) {
		return
	}
	kept := make([]headgate.Extension, 0, len(e.Extensions))
	for _, x := range e.Extensions {
		if !reserved(x) {
			kept = append(kept, x)
			continue
		}
		r.ignored(x.Name)
	}
	e.Extensions = kept
}

// reserved reports whether only the perimeter sets the attribute. Those of
// sagas pass: decoders drop what clients send in them.
func reserved(x headgate.Extension) bool {
	switch x.Name {
	case "rootid", "causationid", "ttl", "hop", "origin", "principal", "actor", "recordedtime", "fence", headgate.AttributeMended:
		return true
	}
	return false
}

// identify fills in the id and the source that the producer left out.
func (r *run) identify(e *headgate.Event, en *entry) {
	if e.ID == "" {
		e.ID, en.minted = r.p.cfg.NewID(), true
	}
	if e.Source == "" {
		if r.source == "" {
			r.source = "/principals/" + url.PathEscape(r.s.Principal.Name)
		}
		e.Source = r.source
	}
}

func (r *run) payloadSize(e *headgate.Event, limit int) *headgate.Error {
	if len(e.Data) > limit {
		return headgate.NewError(headgate.CodeTooLarge, "the payload has %d bytes; type %s allows %d", len(e.Data), e.Type, limit)
	}
	if max := r.p.maxEvent; max > 0 && len(e.Data) > max {
		return headgate.NewError(headgate.CodeTooLarge, "the payload has %d bytes; the broker takes %d", len(e.Data), max)
	}
	return nil
}

// expiry bounds the expiry time by the type and refuses what expired already.
func (r *run) expiry(e *headgate.Event, longest time.Duration) *headgate.Error {
	if longest > 0 {
		if limit := r.now.Add(longest); e.ExpiryTime.IsZero() || e.ExpiryTime.After(limit) {
			e.ExpiryTime = limit
		}
	}
	if !e.ExpiryTime.IsZero() && !e.ExpiryTime.After(r.now) {
		return headgate.NewError(headgate.CodeExpired, "expirytime is %s, now it is %s", e.ExpiryTime.UTC().Format(time.RFC3339), r.now.Format(time.RFC3339))
	}
	return nil
}

// printable returns the value of an attribute that may not have been checked
// yet, or "" if it could disturb a log.
func printable(value string, limit int) string {
	if len(value) > limit {
		return ""
	}
	for _, c := range value {
		if !unicode.IsPrint(c) {
			return ""
		}
	}
	return value
}
