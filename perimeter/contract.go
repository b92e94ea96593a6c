package perimeter

import (
	"context"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
)

// absent stands for the payload of an event that has none: a contract allows
// it by allowing null.
var absent = []byte("null")

// contract checks the payload.
func (r *run) contract(ctx context.Context, i int) *headgate.Error {
	e := r.results[i].Event
	if !isJSON(e.DataContentType) {
		return headgate.NewError(headgate.CodeUnsupportedMediaType, "no contract engine reads %s; send JSON in UTF-8", clip(e.DataContentType))
	}
	payload := e.Data
	if payload == nil {
		payload = absent
	}
	c, err := r.lookup(ctx, i, payload)
	if err != nil {
		return err
	}
	if c != r.contractOf.c {
		r.contractOf.c, r.contractOf.ref = c, c.Ref()
		r.contractOf.name = r.contractOf.ref.String()
	}
	r.results[i].Contract = r.contractOf.ref
	v, mended := c.Report(payload)
	if v == nil || v.Valid {
		return nil
	}
	r.p.cfg.Guesses.Add(v)
	refusal := violation(v)
	if r.mend(i, mended, refusal) {
		return nil
	}
	return refusal
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
	if r.p.cfg.Drafter == nil {
		return nil, headgate.NewError(headgate.CodeContractUnknown, "subject %s has no contract", subject)
	}
	c, err := r.p.cfg.Drafter.Draft(ctx, subject, payload, r.s.Principal.Name)
	if err != nil {
		return nil, errorOf(err)
	}
	return c, nil
}

func violation(v *headgate.Verdict) *headgate.Error {
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
