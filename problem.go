package headgate

import (
	"math"
	"strings"
	"time"
)

// MediaTypeProblem is the media type of a [Problem].
const MediaTypeProblem = "application/problem+json"

// Problem is the form in which an error leaves the node: RFC 9457 problem
// details. It is what clients see, so it never holds the cause behind it.
type Problem struct {
	// Type is "urn:headgate:error:" and the code.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Instance identifies the occurrence, such as the request id.
	Instance string  `json:"instance,omitempty"`
	Code     Code    `json:"code"`
	Outcome  Outcome `json:"outcome"`
	// Retryable is never, after-fix or later.
	Retryable string `json:"retryable"`
	// RetryAfter is the suggested delay in seconds, rounded up.
	RetryAfter int    `json:"retry_after,omitempty"`
	Fix        string `json:"fix"`
	// Attribute is the envelope attribute at fault.
	Attribute string `json:"attribute,omitempty"`
	// Where is the place of the fault in what was sent.
	Where *Place `json:"where,omitempty"`
	// Contract, Violations and Truncated are the verdict behind
	// contract_violation.
	Contract   *ContractRef `json:"contract,omitempty"`
	Violations []Violation  `json:"violations,omitempty"`
	Truncated  int          `json:"truncated,omitempty"`
	// Quarantine is the id of the record that keeps what was refused.
	Quarantine string `json:"quarantine,omitempty"`
}

// Problem returns the error as clients see it.
func (e *Error) Problem() Problem {
	info := e.Info()
	p := Problem{
		Type:       "urn:headgate:error:" + string(info.Code),
		Title:      info.Title,
		Status:     info.Status,
		Detail:     e.Detail,
		Code:       info.Code,
		Outcome:    info.Outcome,
		Retryable:  strings.ReplaceAll(string(info.Retry), "_", "-"),
		RetryAfter: seconds(e.RetryAfter),
		Fix:        info.Fix,
		Attribute:  e.Attribute,
		Where:      e.Where,
	}
	if v := e.Verdict; v != nil {
		contract := v.Contract
		p.Contract, p.Violations, p.Truncated = &contract, v.Violations, v.Truncated
	}
	return p
}

// ProblemOf returns any error as clients see it. An error that is no [*Error]
// is internal, and its text is kept from clients.
func ProblemOf(err error) Problem {
	if e := AsError(err); e != nil {
		return e.Problem()
	}
	return (&Error{Code: CodeInternal}).Problem()
}

func seconds(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return int(math.Ceil(d.Seconds()))
}
