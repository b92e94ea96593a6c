package api

import (
	"net/http"
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
	// Proposals are ways to mend the payload, the best first. Each leads to a
	// payload that the contract accepts.
	Proposals []headgate.Proposal `json:"proposals,omitempty" doc:"Ways to mend the payload, the best first: JSON Patches after which it is valid"`
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
		r.Violations, r.Truncated, r.Proposals = v.Violations, v.Truncated, v.Proposals
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
		e.Verdict = &headgate.Verdict{Violations: r.Violations, Truncated: r.Truncated, Proposals: r.Proposals}
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
		e.Verdict = &headgate.Verdict{Contract: *p.Contract, Violations: p.Violations, Truncated: p.Truncated, Proposals: p.Proposals}
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

// StatusOf returns the HTTP status of an error; 202 for nil.
func StatusOf(err *headgate.Error) int {
	if err == nil {
		return http.StatusAccepted
	}
	return err.Info().Status
}
