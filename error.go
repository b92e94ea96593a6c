package headgate

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Outcome answers the first question about a failed call: did it happen?
type Outcome string

// The outcomes.
const (
	// NotApplied: it did not happen and never will by itself.
	NotApplied Outcome = "not_applied"
	// Unknown: it may have happened. Repeating with the same ids is safe.
	Unknown Outcome = "unknown"
	// Applied: it happened; only the answer is an error.
	Applied Outcome = "applied"
)

// Retry answers the second question: is trying again useful?
type Retry string

// When a retry is useful.
const (
	// RetryNever: the same request will always fail.
	RetryNever Retry = "never"
	// RetryAfterFix: it may succeed once the request is mended.
	RetryAfterFix Retry = "after_fix"
	// RetryLater: the same request may succeed later.
	RetryLater Retry = "later"
)

// Code answers the third question: whose problem is it? It is one of the codes
// in [Codes].
type Code string

// CodeInfo is one row of the closed table of codes.
type CodeInfo struct {
	Code    Code
	Status  int // HTTP status
	Outcome Outcome
	Retry   Retry
	Title   string // what happened, as a short sentence without a full stop
	Fix     string // what to do about it
}

// Error is the one error type of Headgate. Its answers come from the code's
// row in [Codes] unless Outcome overrides them.
type Error struct {
	Code Code
	// Detail is one sentence about this very occurrence. It is shown to
	// clients, so it never holds secrets or unescaped payload.
	Detail string
	// Fix overrides the row's advice when this occurrence has better.
	Fix string
	// Outcome overrides the row's outcome; empty means the row's.
	Outcome Outcome
	// RetryAfter suggests a delay before a retry; zero means none.
	RetryAfter time.Duration
	// Attribute is the envelope attribute at fault, if it is one.
	Attribute string
	// Where is the place of the fault in what was sent, if it is known.
	Where *Place
	// Verdict is the contract verdict behind contract_violation.
	Verdict *Verdict
	// Quarantine is the id of the record that keeps what was refused, if there
	// is one.
	Quarantine string
	// Held are the leases behind lease_held: those that others hold, by
	// resource. It is empty when none is held and others only wait before.
	Held []HeldLease
	// Err is the cause, for logs; it is never shown to clients.
	Err error
}

// HeldLease is a lease that another holds.
type HeldLease struct {
	Resource string
	Holder   string // the principal
	Worker   string // which of its workers, in its own words
	// ExpiresIn is how long it lasts unless it is renewed.
	ExpiresIn time.Duration
}

// Place is a place in a text: Offset counts bytes from 0, Line and Column count
// from 1, columns in bytes.
type Place struct {
	Offset int `json:"offset"`
	Line   int `json:"line"`
	Column int `json:"column"`
}

// NewError returns an error with the code and a formatted detail. An error
// among args is kept as the cause.
func NewError(code Code, format string, args ...any) *Error {
	e := &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			e.Err = err
		}
	}
	return e
}

// Error returns the code and the detail: what clients may see.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// LogValue is what log/slog writes: Error, and the cause, which clients do not
// see.
func (e *Error) LogValue() slog.Value {
	text := e.Error()
	if e.Err == nil {
		return slog.StringValue(text)
	}
	if cause := e.Err.Error(); !strings.Contains(text, cause) {
		text += ": " + cause
	}
	return slog.StringValue(text)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error with the same code and no detail, so
// that errors.Is(err, &Error{Code: CodeLoop}) works as a test by code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Detail == "" && t.Err == nil
}

// Info returns the code's row, with the outcome override applied and the
// occurrence's fix preferred. A code outside the table is treated as internal.
func (e *Error) Info() CodeInfo {
	info := LookupCode(e.Code)
	if e.Outcome != "" {
		info.Outcome = e.Outcome
	}
	if e.Fix != "" {
		info.Fix = e.Fix
	}
	return info
}

// CodeOf returns the code of the first *Error in err's chain, "" for nil and
// CodeInternal for any other error.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e := AsError(err); e != nil {
		return e.Code
	}
	return CodeInternal
}

// AsError returns the first *Error in err's chain, or nil.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// LookupCode returns the row of a code; the row of CodeInternal for a code
// that is not in the table.
func LookupCode(c Code) CodeInfo {
	for i := range codes {
		if codes[i].Code == c {
			return codes[i]
		}
	}
	return LookupCode(CodeInternal)
}
