package perimeter

import (
	"context"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/internal/condition"
)

// absent stands for the payload of an event that has none: a contract allows
// it by allowing null.
var absent = []byte("null")

// contract checks the payload, and takes its frame off.
func (r *run) contract(ctx context.Context, i int) *headgate.Error {
	e, en := r.results[i].Event, &r.entries[i]
	if en.judged {
		return nil
	}
	payload, isAvro := e.Data, headgate.IsAvro(e.DataContentType)
	switch {
	case !isAvro && !isJSON(e.DataContentType):
		return headgate.NewError(headgate.CodeUnsupportedMediaType, "no contract engine reads %s; send JSON in UTF-8, or Avro as %s", clip(e.DataContentType), headgate.MediaTypeAvro)
	case payload == nil && !isAvro:
		payload = absent
	}
	c, err := r.lookup(ctx, i, payload)
	if err != nil {
		return err
	}
	var refusal *headgate.Error
	if isAvro || len(payload) > 0 && payload[0] == 0 {
		c, refusal = r.judgeFramed(ctx, i, c, payload)
	} else if v, mended := c.Report(payload); v != nil && !v.Valid {
		if refusal = r.violation(v); r.mend(i, mended, refusal) {
			refusal = nil
		}
	}
	if c != r.contractOf.c {
		r.contractOf.c, r.contractOf.ref = c, c.Ref()
		r.contractOf.name = r.contractOf.ref.String()
	}
	r.results[i].Contract = r.contractOf.ref
	return refusal
}

// judgeFramed checks a payload that is Avro or may have a frame, and returns
// the version that decided.
func (r *run) judgeFramed(ctx context.Context, i int, c *contract.Contract, payload []byte) (*contract.Contract, *headgate.Error) {
	e, en := r.results[i].Event, &r.entries[i]
	subject := c.Ref().Subject
	j, err := c.Judge(e.DataContentType, payload, func(f contract.Frame) (*contract.Contract, error) {
		return r.p.cfg.Contracts.Named(ctx, subject, f)
	})
	if err != nil {
		return c, errorOf(err)
	}
	if len(j.Data) != len(payload) {
		en.framed, e.Data = e.Data, j.Data
	}
	if j.Verdict != nil && !j.Verdict.Valid {
		if refusal := r.violation(j.Verdict); !r.mend(i, j.Mended, refusal) {
			return j.Contract, refusal
		}
	}
	if en.judged = true; headgate.IsAvro(e.DataContentType) {
		en.avro = j.Contract
	}
	return j.Contract, nil
}

// scope is what expressions see of an event whose payload was judged, or is
// JSON.
func (r *run) scope(i int) *condition.Scope {
	e, c := r.results[i].Event, r.entries[i].avro
	if c == nil {
		return condition.Over(e)
	}
	return condition.OverDecoded(e, func(e *headgate.Event) ([]byte, error) { return c.AvroToJSON(e.Data) })
}

// lookup returns the contract of an item's type, drafting one where that is
// allowed.
func (r *run) lookup(ctx context.Context, i int, payload []byte) (*contract.Contract, *headgate.Error) {
	e, subject := r.results[i].Event, r.entries[i].typ.Contract
	if subject == "" {
		subject = e.Type
	}
	if c := r.p.cfg.Contracts.Lookup(subject); c != nil {
		return c, nil
	}
	if err := r.p.cfg.Contracts.Broken(subject); err != nil {
		return nil, errorOf(err)
	}
	if r.p.cfg.Drafter == nil || headgate.IsAvro(e.DataContentType) { // no schema can be read from Avro
		return nil, headgate.NewError(headgate.CodeContractUnknown, "subject %s has no contract", subject)
	}
	c, err := r.p.cfg.Drafter.Draft(ctx, subject, payload, r.s.Principal.Name)
	if err != nil {
		return nil, errorOf(err)
	}
	return c, nil
}

// violation is the refusal of a payload; the names that it guessed are counted.
func (r *run) violation(v *headgate.Verdict) *headgate.Error {
	r.p.cfg.Guesses.Add(v)
	n := len(v.Violations) + v.Truncated
	faults := "faults"
	if n == 1 {
		faults = "fault"
	}
	err := headgate.NewError(headgate.CodeContractViolation, "the payload has %d %s against %s", n, faults, v.Contract)
	err.Verdict = v
	return err
}

// isJSON reports whether a media type is JSON in UTF-8. An absent one means
// JSON.
func isJSON(mediaType string) bool {
	if !headgate.IsJSON(mediaType) {
		return false
	}
	_, params, _ := strings.Cut(mediaType, ";")
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "charset") {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"`)
		if !strings.EqualFold(value, "utf-8") && !strings.EqualFold(value, "utf8") && !strings.EqualFold(value, "us-ascii") {
			return false
		}
	}
	return true
}

// clip shortens an attribute that was checked for control characters.
func clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
