package quarantine

import (
	"context"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	// stuckWait is how long a refusal waits while the store has not written anything
	// since another refusal waited in vain: a request with many refusals must
	// not wait for each part of it.
	stuckWait = 5 * time.Millisecond
	// clippedBody is what is kept of a body that is too large, sampledBody of
	// one beyond the hourly bytes.
	clippedBody = 64 << 10
	sampledBody = 4 << 10
)

// Refusal is one refused event.
type Refusal struct {
	Principal   string
	Door        string
	Stage       string          // the perimeter's stage
	Event       *headgate.Event // nil when the bytes could not be read
	Raw         []byte          // request bytes when there is no event
	ContentType string          // of Raw
	Cause       string          // direct cause's event id
	Root        string          // if known
	Err         *headgate.Error
	RequestID   string
	Ignored     []string // header attributes that the client sent
}

// Refused records a refusal within its quota, durably, and returns its QID; ""
// when it was only counted, or when its record was not durable in time. It
// never blocks longer than Config.RefusalWait and never fails: what cannot be recorded is
// counted. The event and its bytes may be used again when it returns.
func (q *Quarantine) Refused(ctx context.Context, r Refusal) string {
	return q.RefusedAll(ctx, []Refusal{r})[0]
}

// RefusedAll records the refusals of one submission together, with one wait of
// at most Config.RefusalWait for all of them, and returns their QIDs in order as Refused
// does. When ctx ends first it returns at once; what was begun goes on.
func (q *Quarantine) RefusedAll(ctx context.Context, rs []Refusal) []string {
	wait := q.cfg.RefusalWait
	if q.stuck.Load() {
		wait = min(wait, stuckWait)
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(caller, wait)
	defer cancel()
	qids := make([]string, len(rs))
	tickets := make([]*ticket, len(rs))
	for i := range rs {
		tickets[i] = q.refuse(ctx, &rs[i])
	}
	for i, t := range tickets {
		if t == nil {
			continue
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			select {
			case <-t.done: // it was in time for this one
			default:
				if caller.Err() == nil {
					q.stuck.Store(true)
				}
				continue
			}
		}
		if t.ok {
			qids[i] = t.rec.QID
		}
	}
	return qids
}

// refuse hands a refusal to the recorder, or counts it and returns nil.
func (q *Quarantine) refuse(ctx context.Context, r *Refusal) *ticket {
	now := q.cfg.Now()
	body := r.Raw
	if r.Event != nil {
		body = r.Event.Data
	}
	kept := len(body)
	if kept > q.cfg.BodyMax || r.Err.Code == headgate.CodeTooLarge {
		kept = min(kept, clippedBody)
	}
	g := q.quota.take(ctx, r.Principal, r.Err.Code, kept, now, q.countRefusals)
	if g.alarm {
		q.cfg.Log.WarnContext(ctx, "refusal quota is used up; further refusals are counted and sampled until the hour ends",
			"principal", r.Principal, "quota", q.cfg.RefusalQuota, "code", string(r.Err.Code))
	}
	if !g.keep || q.refused.atLimit() {
		q.count(r, now)
		return nil
	}
	if !g.whole {
		kept = min(kept, sampledBody)
	}
	t := &ticket{rec: q.refusalRecord(r, body, kept, now), done: make(chan struct{})}
	if !q.recorder.enqueue(ctx, t) {
		q.count(r, now)
		return nil
	}
	return t
}

func (q *Quarantine) count(r *Refusal, now time.Time) {
	eventType := ""
	if r.Event != nil {
		eventType = cleanLine(r.Event.Type, maxName)
	}
	q.overflow.add(cleanLine(r.Principal, maxName), string(r.Err.Code), eventType, 1, now)
}

// recorded is told of each ticket's end.
func (q *Quarantine) recorded(t *ticket) {
	if q.stuck.Load() {
		q.stuck.Store(false)
	}
	if !t.ok {
		q.overflow.add(t.rec.Principal, t.rec.Reason, t.rec.Type, 1, t.rec.Created)
		return
	}
	if t.rec.Kind == store.KindRefused {
		q.refused.add(1)
	}
}

// countRefusals counts the records that a principal's refusals left since a
// time. Extinguished deliveries count with them, which errs on the safe side.
func (q *Quarantine) countRefusals(ctx context.Context, principal string, since time.Time) int {
	total := 0
	err := q.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		total = 0
		for _, kind := range [...]store.QuarantineKind{store.KindRefused, store.KindExtinguished} {
			n, err := tx.Quarantine.Count(ctx, kind, principal, since)
			if err != nil {
				return err
			}
			total += n
		}
		return nil
	})
	if err != nil {
		return 0
	}
	return total
}

// Keep records refusals whole and without a quota, all in one transaction, and
// returns their QIDs: for events that are owed, such as those of a committed
// transaction. It fails when the store does, and with quarantine_full at the
// bound; then none is kept and the caller repeats it. at and key make the QIDs,
// so that keeping the same refusal twice yields one record: at is when the
// event was written, key its identity where it comes from.
func (q *Quarantine) Keep(ctx context.Context, rs []Refusal, at []time.Time, keys []string) ([]string, error) {
	now := q.cfg.Now()
	recs := make([]store.QuarantineRecord, len(rs))
	qids := make([]string, len(rs))
	for i := range rs {
		body := rs[i].Raw
		if rs[i].Event != nil {
			body = rs[i].Event.Data
		}
		recs[i] = q.refusalRecord(&rs[i], body, len(body), now)
		qids[i] = qidOf(at[i], keys[i])
		recs[i].QID = qids[i]
	}
	added := 0
	err := q.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		added = 0
		if q.refused.atLimit() {
			return headgate.NewError(headgate.CodeQuarantineFull, "%d refusals are kept, as many as may be", q.cfg.MaxRecords)
		}
		for _, rec := range recs {
			isNew, err := tx.Quarantine.Put(ctx, rec)
			if err != nil {
				return err
			}
			if isNew && rec.Kind == store.KindRefused {
				added++
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	q.refused.add(added)
	return qids, nil
}

func (q *Quarantine) refusalRecord(r *Refusal, body []byte, kept int, now time.Time) store.QuarantineRecord {
	d := q.detail(r.Event)
	d.Door, d.Stage, d.RequestID = cleanLine(r.Door, maxName), r.Stage, cleanLine(r.RequestID, maxName)
	d.Error, d.Verdict = failOf(r.Err), r.Err.Verdict
	d.Body = bodyOf(body, kept)
	for _, name := range r.Ignored[:min(len(r.Ignored), maxListed)] {
		d.Ignored = append(d.Ignored, cleanLine(name, maxName))
	}

	rec := store.QuarantineRecord{
		QID:         q.ids.next(now),
		Kind:        KindOf(r.Err.Code),
		Reason:      string(r.Err.Code),
		State:       StateQuarantined,
		Principal:   cleanLine(r.Principal, maxName),
		Root:        cleanLine(r.Root, maxAttribute),
		Cause:       cleanLine(r.Cause, maxAttribute),
		ContentType: cleanLine(r.ContentType, maxName),
		// A copy: the bytes may belong to a buffer that the door uses again.
		Body:    append([]byte(nil), body[:kept]...),
		Created: now,
		Expires: now.Add(q.cfg.Retain),
	}
	fault := Fault{Reason: rec.Reason, Message: r.Err.Detail}
	if r.Event != nil {
		fillEvent(&rec, r.Event)
		rec.ContentType = contentType(r.Event)
		fault.Type = rec.Type
	}
	rec.Message = refusalMessage(r.Err)
	if v := r.Err.Verdict; v != nil {
		fault.Contract = v.Contract.Subject
		if len(v.Violations) > 0 {
			fault.Violation = &v.Violations[0]
		}
	}
	rec.Fingerprint, rec.Family = Fingerprint(fault)
	rec.Detail = d.encode()
	return rec
}

// refusalMessage is the one line of lists: the first violation and where it
// is, or the error's own detail.
func refusalMessage(e *headgate.Error) string {
	v := e.Verdict
	if v == nil || len(v.Violations) == 0 {
		detail := e.Detail
		if detail == "" {
			detail = e.Info().Title
		}
		return cleanLine(detail, maxMessage)
	}
	var b strings.Builder
	first := v.Violations[0]
	b.WriteString(string(first.Code))
	b.WriteString(" at ")
	if first.At == "" {
		b.WriteString("the top")
	} else {
		b.WriteString(first.At)
	}
	if first.Fix != "" {
		b.WriteString(": ")
		b.WriteString(first.Fix)
	}
	return cleanLine(b.String(), maxMessage)
}
