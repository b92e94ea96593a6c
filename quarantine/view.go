package quarantine

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// View is a record as the HTTP API and the command line show it. Times are
// RFC 3339. Every field is safe to print but Body, which is payload.
type View struct {
	QID         string    `json:"qid"`
	Kind        string    `json:"kind"`
	Reason      string    `json:"reason"`
	State       string    `json:"state"`
	Fingerprint string    `json:"fingerprint"`
	Family      string    `json:"family"`
	Message     string    `json:"message"`
	Created     time.Time `json:"created"`
	Expires     time.Time `json:"expires"`

	ID           string `json:"id,omitempty"`
	Source       string `json:"source,omitempty"`
	Type         string `json:"type,omitempty"`
	Root         string `json:"rootid,omitempty"`
	Cause        string `json:"causationid,omitempty"` // direct cause's event id
	Principal    string `json:"principal,omitempty"`
	Subscription string `json:"subscription,omitempty"`
	Stream       string `json:"stream,omitempty"`
	Position     string `json:"position,omitempty"` // PARTITION:OFFSET

	// Of a record shown whole; absent in lists.
	ContentType string          `json:"content_type,omitempty"`
	Body        string          `json:"body,omitempty"`        // as text, when it is UTF-8 without NUL and not Avro
	BodyBase64  []byte          `json:"body_base64,omitempty"` // otherwise
	BodyClipped bool            `json:"body_clipped,omitempty"`
	Detail      json.RawMessage `json:"detail,omitempty"` // see Detail
}

// ViewOf returns the view of a record, from a list or whole. It shares memory
// with the record.
func ViewOf(r *store.QuarantineRecord) View {
	v := View{
		QID: r.QID, Kind: string(r.Kind), Reason: r.Reason, State: r.State,
		Fingerprint: r.Fingerprint, Family: r.Family, Message: r.Message,
		Created: r.Created.UTC(), Expires: r.Expires.UTC(),
		ID: r.ID, Source: r.Source, Type: r.Type, Root: r.Root, Cause: r.Cause, Principal: r.Principal,
		Subscription: r.Subscription, Stream: r.Stream, ContentType: r.ContentType,
	}
	if r.Stream != "" {
		v.Position = r.Position.String()
	}
	if body := string(r.Body); !headgate.IsAvro(r.ContentType) && utf8.ValidString(body) && !strings.Contains(body, "\x00") {
		v.Body = body
	} else {
		v.BodyBase64 = r.Body
	}
	if len(r.Detail) > 0 && json.Valid(r.Detail) {
		v.Detail = r.Detail
		if d, err := DetailOf(r); err == nil {
			v.BodyClipped = d.Body.Clipped()
		}
	}
	return v
}

// GroupView is a group as the HTTP API and the command line show it.
type GroupView struct {
	Fingerprint  string    `json:"fingerprint"`
	Family       string    `json:"family"`
	Kind         string    `json:"kind"`
	Reason       string    `json:"reason"`
	Type         string    `json:"type,omitempty"`
	Subscription string    `json:"subscription,omitempty"`
	Message      string    `json:"message"` // of the newest record
	Count        int       `json:"count"`
	First        time.Time `json:"first"`
	Last         time.Time `json:"last"`
	Sample       string    `json:"sample"` // QID of the newest record
}

// GroupViewOf returns the view of a group.
func GroupViewOf(g *store.QuarantineGroup) GroupView {
	return GroupView{
		Fingerprint: g.Fingerprint, Family: g.Family, Kind: string(g.Kind), Reason: g.Reason, Type: g.Type,
		Subscription: g.Subscription, Message: g.Message, Count: g.Count, First: g.First.UTC(), Last: g.Last.UTC(), Sample: g.Sample,
	}
}

// OverflowView is a counter as the HTTP API and the command line show it.
type OverflowView struct {
	Principal string    `json:"principal"`      // empty: several, summed up
	Reason    string    `json:"reason"`         // an error code
	Type      string    `json:"type,omitempty"` // empty: unknown, or several
	Count     uint64    `json:"count"`
	Last      time.Time `json:"last"`
}

// OverflowViewOf returns the view of a counter.
func OverflowViewOf(o *store.QuarantineOverflow) OverflowView {
	return OverflowView{Principal: o.Principal, Reason: o.Reason, Type: o.Type, Count: o.Count, Last: o.Last.UTC()}
}
