package quarantine

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Attempt is one attempt of a delivery, as kept in histories.
type Attempt struct {
	N         int           `json:"n"`
	Start     time.Time     `json:"start"`
	Duration  time.Duration `json:"duration_ns"`
	Principal string        `json:"principal,omitempty"`
	Outcome   string        `json:"outcome"` // retry, reject, claim_expired, error, crash, …
	Error     string        `json:"error,omitempty"`
}

// Parked is one delivery that ends in quarantine.
type Parked struct {
	Kind         store.QuarantineKind // parked, expired or extinguished
	Subscription string
	Stream       string
	Position     headgate.Position
	Event        *headgate.Event
	Reason       string    // handler_permanent, handler_exhausted, handler_crash, expired, ttl, …
	Message      string    // what the handler said; any text
	Attempts     []Attempt // first 3, last 7
	AttemptCount int
	First        time.Time // when the first attempt began
}

// maxAttempts bounds the attempts of a record, whatever the caller passes.
const maxAttempts = 10

// Record builds the record of a parked delivery, with a new QID. The caller
// puts it in the transaction that settles the delivery, by Put. It has no
// effect, so that it may be built outside a transaction that runs twice.
func (q *Quarantine) Record(p Parked) store.QuarantineRecord {
	now := q.cfg.Now()
	d := q.detail(p.Event)
	d.Attempts, d.AttemptCount = clipAttempts(p.Attempts), max(p.AttemptCount, len(p.Attempts))
	if !p.First.IsZero() {
		first := p.First.UTC()
		d.First = &first
	}
	d.Message = cleanText(p.Message, maxDetailText)
	d.Body = bodyOf(p.Event.Data, len(p.Event.Data))

	rec := store.QuarantineRecord{
		QID:          q.ids.next(now),
		Kind:         p.Kind,
		Reason:       p.Reason,
		State:        StateQuarantined,
		Subscription: p.Subscription,
		Stream:       p.Stream,
		Position:     p.Position,
		Principal:    p.Event.Header.Principal,
		Message:      cleanLine(p.Message, maxMessage),
		Body:         p.Event.Data,
		ContentType:  contentType(p.Event),
		Created:      now,
		Expires:      now.Add(q.cfg.Retain),
	}
	fillEvent(&rec, p.Event)
	rec.Fingerprint, rec.Family = Fingerprint(Fault{
		Subscription: p.Subscription, Type: p.Event.Type, Contract: p.Event.DataSchema, Reason: p.Reason, Message: p.Message,
	})
	rec.Detail = d.encode()
	return rec
}

// Put stores a record in the caller's transaction. At the bound it fails with
// quarantine_full: the delivery stays open and its lane waits. A record that
// was put already is kept as it is.
func (q *Quarantine) Put(ctx context.Context, tx *store.Tx, r store.QuarantineRecord) error {
	bounded := r.Kind == store.KindParked || r.Kind == store.KindExpired
	if bounded {
		full, err := q.parked.full(ctx, tx, q.cfg.Now())
		if err != nil {
			return err
		}
		if full {
			if q.parked.tell() {
				q.cfg.Log.WarnContext(ctx, "quarantine is full; lanes wait until records are released, discarded or expire", "records", q.cfg.MaxRecords)
			}
			return headgate.NewError(headgate.CodeQuarantineFull, "%d parked records are kept, as many as may be", q.cfg.MaxRecords)
		}
	}
	isNew, err := tx.Quarantine.Put(ctx, r)
	if err != nil {
		return err
	}
	if isNew && bounded {
		q.parked.add(1)
	}
	return nil
}

func clipAttempts(in []Attempt) []Attempt {
	if len(in) > maxAttempts {
		in = append(in[:3:3], in[len(in)-(maxAttempts-3):]...)
	}
	out := make([]Attempt, len(in))
	for i, a := range in {
		a.Start = a.Start.UTC()
		a.Principal = cleanLine(a.Principal, maxName)
		a.Outcome = cleanLine(a.Outcome, maxName)
		a.Error = cleanText(a.Error, maxDetailText)
		out[i] = a
	}
	return out
}
