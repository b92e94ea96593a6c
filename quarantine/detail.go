package quarantine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// DetailVersion is the version of Detail that this package writes.
const DetailVersion = 1

// StateQuarantined is the state of every new record.
const StateQuarantined = "quarantined"

// Detail is what a record knows beyond its columns. It is stored as JSON;
// readers ignore fields that they do not know.
type Detail struct {
	Version int    `json:"v"`
	Node    string `json:"node,omitempty"` // version of Headgate that wrote it

	// Of a refusal.
	Door      string            `json:"door,omitempty"`
	Stage     string            `json:"stage,omitempty"`
	RequestID string            `json:"request_id,omitempty"`
	Error     *Fail             `json:"error,omitempty"`
	Verdict   *headgate.Verdict `json:"verdict,omitempty"`
	Ignored   []string          `json:"ignored,omitempty"` // header attributes that the client sent

	// Of a delivery.
	Message      string     `json:"message,omitempty"` // the last error, longer than the column
	Attempts     []Attempt  `json:"attempts,omitempty"`
	AttemptCount int        `json:"attempt_count,omitempty"`
	First        *time.Time `json:"first,omitempty"`

	Event *Envelope `json:"event,omitempty"` // nil when the bytes could not be read
	Body  Body      `json:"body"`
}

// Fail is the error of a refusal.
type Fail struct {
	Code    headgate.Code    `json:"code"`
	Title   string           `json:"title"`
	Detail  string           `json:"detail,omitempty"`
	Fix     string           `json:"fix,omitempty"`
	Outcome headgate.Outcome `json:"outcome"`
	Retry   headgate.Retry   `json:"retry"`
}

// Body describes the payload of a record.
type Body struct {
	Size   int    `json:"size"`             // true size in bytes
	Kept   int    `json:"kept"`             // bytes kept in the record
	SHA256 string `json:"sha256,omitempty"` // of the whole body, in hex; empty when there is none
}

// Clipped reports whether less than the whole body is kept.
func (b Body) Clipped() bool { return b.Kept < b.Size }

// Envelope holds the attributes of an event as it was when it was recorded.
// Values longer than 2 KiB are clipped, and control characters escaped.
type Envelope struct {
	ID              string `json:"id,omitempty"`
	Source          string `json:"source,omitempty"`
	Type            string `json:"type,omitempty"`
	Subject         string `json:"subject,omitempty"`
	Time            string `json:"time,omitempty"`
	DataContentType string `json:"datacontenttype,omitempty"`
	DataSchema      string `json:"dataschema,omitempty"`
	Key             string `json:"partitionkey,omitempty"`
	TraceParent     string `json:"traceparent,omitempty"`
	TraceState      string `json:"tracestate,omitempty"`
	ExpiryTime      string `json:"expirytime,omitempty"`

	RootID       string   `json:"rootid,omitempty"`
	Causes       []string `json:"causes,omitempty"`
	TTL          int      `json:"ttl,omitempty"`
	Hop          int      `json:"hop,omitempty"`
	Origin       string   `json:"origin,omitempty"`
	Principal    string   `json:"principal,omitempty"`
	Actor        string   `json:"actor,omitempty"`
	RecordedTime string   `json:"recordedtime,omitempty"`
	Fence        string   `json:"fence,omitempty"`

	Extensions []EnvelopeExtension `json:"extensions,omitempty"`
	// Omitted counts extensions beyond the first 64.
	Omitted int `json:"extensions_omitted,omitempty"`
}

// EnvelopeExtension is one extension attribute.
type EnvelopeExtension struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Kind  string `json:"kind"` // string, boolean or integer
}

// maxListed bounds the extensions, causes and ignored attributes of a detail.
const maxListed = 64

func (q *Quarantine) detail(e *headgate.Event) Detail {
	d := Detail{Version: DetailVersion, Node: q.cfg.Version}
	if e != nil {
		d.Event = envelopeOf(e)
	}
	return d
}

// encode never fails: a Detail holds strings, numbers and times alone. A time
// outside of what RFC 3339 can say is the one exception, so its owner drops it.
func (d *Detail) encode() []byte {
	b, err := json.Marshal(d)
	if err == nil {
		return b
	}
	d.First, d.Attempts = nil, nil
	if b, err = json.Marshal(d); err == nil {
		return b
	}
	return []byte(`{"v":1}`)
}

// DetailOf reads the detail of a record.
func DetailOf(r *store.QuarantineRecord) (Detail, error) {
	var d Detail
	if len(r.Detail) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(r.Detail, &d); err != nil {
		return Detail{}, headgate.NewError(headgate.CodeInternal, "detail of quarantine record %s: %v", r.QID, err)
	}
	return d, nil
}

func failOf(e *headgate.Error) *Fail {
	info := e.Info()
	return &Fail{
		Code: e.Code, Title: info.Title, Detail: cleanText(e.Detail, maxDetailText), Fix: cleanText(info.Fix, maxDetailText),
		Outcome: info.Outcome, Retry: info.Retry,
	}
}

func bodyOf(body []byte, kept int) Body {
	b := Body{Size: len(body), Kept: kept}
	if len(body) > 0 {
		sum := sha256.Sum256(body)
		b.SHA256 = hex.EncodeToString(sum[:])
	}
	return b
}

func envelopeOf(e *headgate.Event) *Envelope {
	h := &e.Header
	v := &Envelope{
		ID: attr(e.ID), Source: attr(e.Source), Type: attr(e.Type), Subject: attr(e.Subject), Time: stamp(e.Time),
		DataContentType: attr(e.DataContentType), DataSchema: attr(e.DataSchema), Key: attr(e.Key),
		TraceParent: attr(e.TraceParent), TraceState: attr(e.TraceState), ExpiryTime: stamp(e.ExpiryTime),
		RootID: attr(h.RootID), TTL: h.TTL, Hop: h.Hop, Origin: attr(string(h.Origin)), Principal: attr(h.Principal),
		Actor: attr(string(h.Actor)), RecordedTime: stamp(h.RecordedTime), Fence: attr(h.Fence),
	}
	for _, c := range h.Causes[:min(len(h.Causes), maxListed)] {
		v.Causes = append(v.Causes, attr(c))
	}
	for _, x := range e.Extensions[:min(len(e.Extensions), maxListed)] {
		v.Extensions = append(v.Extensions, EnvelopeExtension{Name: cleanLine(x.Name, maxName), Value: attr(x.Value), Kind: kindName(x.Kind)})
	}
	v.Omitted = max(0, len(e.Extensions)-maxListed)
	return v
}

// fillEvent copies the columns that come from the event.
func fillEvent(rec *store.QuarantineRecord, e *headgate.Event) {
	rec.ID, rec.Source, rec.Type = cleanLine(e.ID, maxAttribute), cleanLine(e.Source, maxAttribute), cleanLine(e.Type, maxName)
	if rec.Root == "" {
		rec.Root = cleanLine(e.Header.RootID, maxAttribute)
	}
	if rec.Cause == "" && len(e.Header.Causes) > 0 {
		rec.Cause = cleanLine(e.Header.Causes[0], maxAttribute)
	}
}

func contentType(e *headgate.Event) string {
	if e.DataContentType == "" && e.Data != nil {
		return "application/json"
	}
	return cleanLine(e.DataContentType, maxName)
}

func attr(s string) string { return cleanLine(s, maxAttribute) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func kindName(k headgate.ExtensionKind) string {
	switch k {
	case headgate.ExtensionBool:
		return "boolean"
	case headgate.ExtensionInteger:
		return "integer"
	}
	return "string"
}
