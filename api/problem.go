package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// Media types of the API.
const (
	TypeJSON          = "application/json"
	TypeProblem       = "application/problem+json"
	TypeEvent         = "application/cloudevents+json"
	TypeBatch         = "application/cloudevents-batch+json"
	TypeNDJSON        = "application/x-ndjson"
	TypeSSE           = "text/event-stream"
	TypeSchema        = "application/schema+json"
	TypeAgent         = "text/plain; profile=agent"
	HeaderCause       = "Headgate-Cause"
	HeaderRequestID   = "Headgate-Request-Id"
	problemTypePrefix = "https://github.com/headgate/headgate/blob/main/docs/errors.md#"
)

// Refusal is what every refusal says, alone in a [Problem] or as one result
// among others.
type Refusal struct {
	// Code is from the closed table of docs/errors.md.
	Code headgate.Code `json:"code,omitempty" doc:"Stable code, see docs/errors.md"`
	// Detail is one sentence about this very occurrence.
	Detail string `json:"detail,omitempty" doc:"One sentence about this occurrence"`
	// Fix says what to do about it.
	Fix string `json:"fix,omitempty" doc:"What to do about it"`
	// Retryable says whether trying again is useful.
	Retryable headgate.Retry `json:"retryable,omitempty" doc:"never, after_fix or later"`
	// Outcome says whether it happened.
	Outcome headgate.Outcome `json:"outcome,omitempty" doc:"not_applied, unknown or applied"`
	// RetryAfter is the suggested delay in seconds; the Retry-After header of
	// a problem says the same.
	RetryAfter float64 `json:"retry_after,omitempty" doc:"Suggested delay before a retry, in seconds"`
	// Attribute is the envelope attribute at fault, and Where the place in
	// what was sent, as far as they are known.
	Attribute string          `json:"attribute,omitempty" doc:"Envelope attribute at fault"`
	Where     *headgate.Place `json:"where,omitempty" doc:"Place of the fault in what was sent"`
	// Stage is where the perimeter refused an event.
	Stage string `json:"stage,omitempty" doc:"Stage of admission that refused the event"`
	// Holder, RetryAfterMS and Held say what stands in the way of leases.
	Holder       string      `json:"holder,omitempty" doc:"With lease_held: who holds the first of held"`
	RetryAfterMS int64       `json:"retry_after_ms,omitempty" doc:"With lease_held: how long to wait at most, unless a holder renews"`
	Held         []HeldLease `json:"held,omitempty" doc:"With lease_held: the leases of the request that others hold, by resource"`
	// Violations are ordered by offset, then by code.
	Violations []headgate.Violation `json:"violations,omitempty" doc:"Faults of the payload, by offset"`
	// Truncated counts violations that are not listed.
	Truncated int `json:"truncated,omitempty" doc:"Violations that are not listed"`
	// Quarantine is the id of the record that keeps what was refused.
	Quarantine string `json:"quarantine,omitempty" doc:"Id of the quarantine record that keeps the refused event"`
}

// HeldLease is a lease that another holds.
type HeldLease struct {
	Resource    string `json:"resource"`
	Holder      string `json:"holder"`
	Worker      string `json:"worker,omitempty"`
	ExpiresInMS int64  `json:"expires_in_ms" doc:"How long it lasts unless it is renewed"`
}

// NewRefusal describes an error. Only what may be shown to a client is taken
// from it.
func NewRefusal(err *headgate.Error) Refusal {
	info := err.Info()
	r := Refusal{
		Code: info.Code, Detail: err.Detail, Fix: info.Fix, Retryable: info.Retry, Outcome: info.Outcome,
		RetryAfter: err.RetryAfter.Seconds(), Attribute: err.Attribute, Where: err.Where, Quarantine: err.Quarantine,
	}
	if v := err.Verdict; v != nil {
		r.Violations, r.Truncated = v.Violations, v.Truncated
	}
	if err.Code == headgate.CodeLeaseHeld {
		r.RetryAfterMS = max(err.RetryAfter.Milliseconds(), 1)
	}
	for i, h := range err.Held {
		if i == 0 {
			r.Holder = h.Holder
		}
		r.Held = append(r.Held, HeldLease{Resource: h.Resource, Holder: h.Holder, Worker: h.Worker, ExpiresInMS: h.ExpiresIn.Milliseconds()})
	}
	return r
}

// Err turns a refusal back into an error.
func (r *Refusal) Err() *headgate.Error {
	e := &headgate.Error{
		Code: r.Code, Detail: r.Detail, Fix: r.Fix, Outcome: r.Outcome,
		RetryAfter: time.Duration(r.RetryAfter * float64(time.Second)), Attribute: r.Attribute, Where: r.Where, Quarantine: r.Quarantine,
	}
	for _, h := range r.Held {
		e.Held = append(e.Held, headgate.HeldLease{
			Resource: h.Resource, Holder: h.Holder, Worker: h.Worker, ExpiresIn: time.Duration(h.ExpiresInMS) * time.Millisecond,
		})
	}
	if len(r.Violations) > 0 {
		e.Verdict = &headgate.Verdict{Violations: r.Violations, Truncated: r.Truncated}
	}
	return e
}

// Problem is the body of an error answer. Source: RFC 9457.
type Problem struct {
	Type     string `json:"type" doc:"Documentation of the code"`
	Title    string `json:"title" doc:"What happened, in general"`
	Status   int    `json:"status" doc:"HTTP status"`
	Instance string `json:"instance,omitempty" doc:"URN of this very request"`
	// ID is the id of the refused event, if it has one.
	ID string `json:"id,omitempty" doc:"Id of the refused event"`
	// Contract is the contract that the payload was checked against.
	Contract *headgate.ContractRef `json:"contract,omitempty" doc:"Contract that the payload was checked against"`
	Refusal
}

// Err turns a problem back into an error.
func (p *Problem) Err() *headgate.Error {
	e := p.Refusal.Err()
	if p.Contract != nil {
		e.Verdict = &headgate.Verdict{Contract: *p.Contract, Violations: p.Violations, Truncated: p.Truncated}
	}
	return e
}

// NewProblem describes an error that ended a request.
func NewProblem(err *headgate.Error, requestID string) Problem {
	info := err.Info()
	p := Problem{Type: ProblemType(info.Code), Title: info.Title, Status: info.Status, Refusal: NewRefusal(err)}
	if err.Verdict != nil {
		ref := err.Verdict.Contract
		p.Contract = &ref
	}
	if requestID != "" {
		p.Instance = "urn:headgate:request:" + requestID
	}
	return p
}

// ProblemType returns the documentation address of a code.
func ProblemType(c headgate.Code) string { return problemTypePrefix + string(c) }

// agentLines bounds the compact report.
const agentLines = 12

// AgentText is the compact form of a refusal for language models: at most 12
// lines, one per violation, each starting with the verb of what to do.
func (r *Refusal) AgentText() string {
	var lines []string
	for i := range r.Violations {
		v := &r.Violations[i]
		if len(lines) == agentLines-1 && len(r.Violations)+r.Truncated > agentLines {
			break
		}
		line := oneLine(v.Fix)
		if at := oneLine(v.At); at != "" && !strings.Contains(line, at) {
			line += " (at " + at + ")"
		}
		lines = append(lines, line)
	}
	if rest := len(r.Violations) + r.Truncated - len(lines); len(lines) > 0 && rest > 0 {
		lines = append(lines, "Mend the other faults too, which the JSON report lists.")
	}
	if len(lines) == 0 {
		line := oneLine(r.Fix)
		if d := oneLine(r.Detail); d != "" {
			line += " (" + string(r.Code) + ": " + d + ")"
		} else {
			line += " (" + string(r.Code) + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n") + "\n"
}

// oneLine keeps a report line in its line: control characters become spaces.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == 0x2028 || r == 0x2029 || (r >= 0x80 && r < 0xa0) {
			return ' '
		}
		return r
	}, s)
}

// StatusOf returns the HTTP status of an error; 202 for nil.
func StatusOf(err *headgate.Error) int {
	if err == nil {
		return http.StatusAccepted
	}
	return err.Info().Status
}
