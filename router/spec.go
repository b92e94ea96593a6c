package router

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/condition"
	"github.com/headgate/headgate/internal/jsontext"
	"github.com/headgate/headgate/internal/resource"
	"github.com/headgate/headgate/lease"
)

// Defaults of a [Spec].
const (
	DefaultMaxBlock    = 10 * time.Minute
	DefaultConcurrency = 64
	DefaultAttempts    = 8
	DefaultBackoff     = "1s..10m"
	DefaultClaim       = 30 * time.Second
)

// Bounds of a [Spec].
const (
	maxTypes       = 256
	maxWhen        = 4096
	maxConcurrency = 10_000
	maxAttempts    = 1000
	minClaim       = 100 * time.Millisecond
	maxClaim       = 12 * time.Hour
	maxBackoff     = 24 * time.Hour
)

// The orders of a subscription.
const (
	OrderStrict  = "strict"
	OrderRelease = "release"
	OrderNone    = "none"
)

// The dedupe modes of a subscription.
const (
	DedupeDurable = "durable"
	DedupeWindow  = "window"
	DedupeNone    = "none"
)

// Spec is what a user says of a subscription. Zero fields mean the defaults.
type Spec struct {
	// Types are type patterns (see headgate.MatchType); at least one.
	Types []string `json:"types"`
	// When is a CEL condition over the event; empty: every event of Types. An
	// event for which it cannot be evaluated does not match.
	When string `json:"when,omitempty"`
	// As is the principal that consumes; empty: who creates the subscription,
	// in a configuration file the declared principal of the subscription's name.
	As string `json:"as,omitempty"`
	// From is where to start: now (default), beginning (the first event kept),
	// an RFC 3339 time, or STREAM/PARTITION:OFFSET, with which every other
	// partition starts now. It is read when the subscription is created, and
	// for streams that a later change of Types adds; progress in streams that
	// the subscription already had is kept.
	From string `json:"from,omitempty"`
	// Order is strict (default): events of one key one after another, a
	// failing one blocks its key, and when it is parked the key's followers
	// stay held; release: followers go on once it is parked; none.
	Order string `json:"order,omitempty"`
	// MaxBlock is how long a failing event may block its key before it is
	// parked, counted from its first attempt; default 10m.
	MaxBlock Duration `json:"max_block,omitempty"`
	// Concurrency bounds the deliveries in flight; default 64.
	Concurrency int `json:"concurrency,omitempty"`
	// Attempts is how often an event is tried before it is parked; by default the
	// node's defaults.attempts, 8.
	Attempts int `json:"attempts,omitempty"`
	// Backoff is "MIN..MAX", the range of the delay before a retry: it doubles
	// with every attempt, and each delay is drawn between half of it and all
	// of it. By default the node's defaults.backoff, 1s..10m.
	Backoff string `json:"backoff,omitempty"`
	// Claim is how long a consumer has for one attempt; default 30s. A claim
	// that runs out is a failed attempt.
	Claim Duration `json:"claim,omitempty"`
	// Deliver says how deliveries leave; pull by default.
	Deliver Deliver `json:"deliver"`
	// Dedupe is durable (default): a settlement is on disk when it is
	// answered; window: settlements are saved every 100 ms; none: every
	// second. What was not saved is delivered again after a crash.
	Dedupe string `json:"dedupe,omitempty"`
	// Lease is a template of the resource whose lease every delivery is worked
	// on under, such as "ticket/{data.id}": across all subscriptions and nodes
	// one worker has it at a time. The lease is handed out with the delivery
	// and released with its settlement, which is refused once the lease was
	// superseded. The principal needs the right to lease. Empty: none.
	Lease string `json:"lease,omitempty"`
	// Expire ends events that were not dispatched within this time after they
	// were admitted; 0: only their own expirytime does.
	Expire Duration `json:"expire,omitempty"`
	// Inactive makes the subscription a temporary one: it is removed, with its
	// progress, once nobody has pulled from it for so long. It is for consumers
	// that may die without a word. 0: it is kept.
	Inactive Duration `json:"inactive,omitempty"`
}

// Defaults are the limits of subscriptions that name none. They are looked up
// when a subscription runs and are not stored with it, so that it follows them.
// Zero fields mean DefaultAttempts and DefaultBackoff.
type Defaults struct {
	Attempts int
	Backoff  string // MIN..MAX
}

// Validate reports the first problem, as invalid_config.
func (d Defaults) Validate() error {
	if d.Attempts < 0 || d.Attempts > maxAttempts {
		return headgate.NewError(headgate.CodeInvalidConfig, "attempts: %d, want 1 to %d", d.Attempts, maxAttempts)
	}
	if _, _, err := parseBackoff(cmp.Or(d.Backoff, DefaultBackoff)); err != nil {
		return headgate.NewError(headgate.CodeInvalidConfig, "backoff: %s", err)
	}
	return nil
}

// Deliver says how deliveries leave; exactly one field is set (pull by default).
type Deliver struct {
	// Pull hands deliveries to whoever asks (default).
	Pull    *Pull    `json:"pull,omitempty"`
	Handler *Handler `json:"handler,omitempty"` // in process, see Router.Handle
}

// Pull is delivery by long poll.
type Pull struct{}

// Handler is delivery to a function of this process.
type Handler struct{}

// Duration is a time.Duration that reads and writes as text such as "10m".
type Duration time.Duration

// String returns the text form.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %.40q: want text such as \"10m\"", text)
	}
	*d = Duration(v)
	return nil
}

// ParseSpec reads a specification from JSON, strictly: an unknown or repeated
// member is an error. The error is an *headgate.Error with syntax or
// invalid_argument. It checks the form only; [Router.Put] checks the rest.
func ParseSpec(text []byte) (Spec, error) {
	var spec Spec
	if f := jsontext.Check(text, jsontext.Limits{}); f != nil {
		return spec, headgate.NewError(headgate.CodeSyntax, "subscription: %s", f.Detail)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return spec, headgate.NewError(headgate.CodeInvalidArgument, "subscription: %s", clip(strings.TrimPrefix(err.Error(), "json: "), 200))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return spec, headgate.NewError(headgate.CodeSyntax, "subscription: text after the object")
	}
	return spec, nil
}

// ValidName reports whether s may name a subscription: 1 to 100 bytes of
// letters, digits, ".", "_" and "-", starting with a letter or digit.
func ValidName(s string) bool {
	if s == "" || len(s) > 100 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// plan is a checked specification with every default filled in.
type plan struct {
	Spec
	when               *condition.Condition
	decode             func(*headgate.Event) ([]byte, error) // see Config.JSON
	leaseOf            *condition.Value
	backoffLo, backoff time.Duration
	maxBlock, claim    time.Duration
	expire             time.Duration
	inactive           time.Duration
}

// scope is what the expressions of a subscription see of an event.
func (p *plan) scope(e *headgate.Event) *condition.Scope { return condition.OverDecoded(e, p.decode) }

// compile checks the specification and returns every problem at once.
func (s Spec) compile(d Defaults) (*plan, []string) {
	p := &plan{Spec: s}
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	s.checkTypes(say)
	if s.When != "" {
		var err error
		switch {
		case len(s.When) > maxWhen:
			say("when: longer than %d bytes", maxWhen)
		default:
			if p.when, err = condition.Compile(s.When); err != nil {
				say("when: %s", errText(err))
			}
		}
	}
	if s.Lease != "" {
		var err error
		if p.leaseOf, err = condition.CompileTemplate(s.Lease); err != nil {
			say("lease: %s", errText(err))
		}
		if time.Duration(s.Claim)+leaseSlack > lease.MaxTTL {
			say("claim: %s, with a lease at most %s", s.Claim, lease.MaxTTL-leaseSlack)
		}
		if s.Dedupe != "" && s.Dedupe != DedupeDurable {
			say("dedupe: %.40q, with a lease only durable: each settlement is guarded", s.Dedupe)
		}
	}
	p.Order = oneOf(say, "order", s.Order, OrderStrict, OrderRelease, OrderNone)
	p.Dedupe = oneOf(say, "dedupe", s.Dedupe, DedupeDurable, DedupeWindow, DedupeNone)
	p.maxBlock = span(say, "max_block", s.MaxBlock, DefaultMaxBlock, time.Millisecond, 30*24*time.Hour)
	p.claim = span(say, "claim", s.Claim, DefaultClaim, minClaim, maxClaim)
	p.expire = span(say, "expire", s.Expire, 0, time.Millisecond, 10*365*24*time.Hour)
	p.inactive = span(say, "inactive", s.Inactive, 0, minInactive, 365*24*time.Hour)
	if s.Inactive != 0 && s.Deliver.Handler != nil {
		say("inactive: only for delivery by pull")
	}
	p.Concurrency = number(say, "concurrency", s.Concurrency, DefaultConcurrency, maxConcurrency)
	p.Attempts = number(say, "attempts", s.Attempts, cmp.Or(d.Attempts, DefaultAttempts), maxAttempts)
	p.Backoff = cmp.Or(s.Backoff, d.Backoff, DefaultBackoff)
	var err error
	if p.backoffLo, p.backoff, err = parseBackoff(p.Backoff); err != nil {
		say("backoff: %s", err)
	}
	if _, ok := parseFrom(s.From); !ok {
		say("from: %.60q, want now, beginning, an RFC 3339 time or STREAM/PARTITION:OFFSET", s.From)
	}
	if s.Deliver.Pull != nil && s.Deliver.Handler != nil {
		say("deliver: pull and handler exclude each other")
	}
	return p, bad
}

// Validate reports every problem of the specification at once, as
// invalid_argument, as far as it can be told without a node: neither the
// principal nor the streams are looked up.
func (s Spec) Validate() error {
	if bad := s.Faults(); len(bad) > 0 {
		return headgate.NewError(headgate.CodeInvalidArgument, "%s", strings.Join(bad, "; "))
	}
	return nil
}

// Faults are the problems that Validate reports, each with its setting before a
// colon.
func (s Spec) Faults() []string {
	p, bad := s.compile(Defaults{})
	return append(bad, p.useless()...)
}

// useless tells what is of no use, though it can be run: it is refused where it
// is written, and no reason not to start with what is stored.
func (p *plan) useless() []string {
	if p.leaseOf == nil {
		return nil
	}
	if fault := resource.TemplateFault(p.leaseOf); fault != "" {
		return []string{"lease: " + fault}
	}
	return nil
}

func (s Spec) checkTypes(say func(string, ...any)) {
	if len(s.Types) == 0 {
		say("types: at least one type or pattern is needed")
	}
	if len(s.Types) > maxTypes {
		say("types: %d patterns, at most %d", len(s.Types), maxTypes)
		return
	}
	for i, t := range s.Types {
		if !headgate.ValidPattern(t) {
			say("types[%d]: %.60q is neither a type nor a pattern such as \"ticket.*\"", i, t)
		}
	}
}

func oneOf(say func(string, ...any), name, v string, allowed ...string) string {
	if v == "" {
		return allowed[0]
	}
	for _, a := range allowed {
		if v == a {
			return v
		}
	}
	say("%s: %.40q, want one of %s", name, v, strings.Join(allowed, ", "))
	return v
}

func span(say func(string, ...any), name string, v Duration, def, lo, hi time.Duration) time.Duration {
	d := time.Duration(v)
	if d == 0 {
		return def
	}
	if d < lo || d > hi {
		say("%s: %s, want %s to %s", name, d, lo, hi)
	}
	return d
}

func number(say func(string, ...any), name string, v, def, hi int) int {
	if v == 0 {
		return def
	}
	if v < 0 || v > hi {
		say("%s: %d, want 1 to %d", name, v, hi)
	}
	return v
}

func parseBackoff(s string) (lo, hi time.Duration, err error) {
	a, b, ok := strings.Cut(s, "..")
	if !ok {
		return 0, 0, fmt.Errorf("%.40q: want MIN..MAX such as \"1s..10m\"", s)
	}
	lo, err1 := time.ParseDuration(a)
	hi, err2 := time.ParseDuration(b)
	switch {
	case err1 != nil || err2 != nil:
		return 0, 0, fmt.Errorf("%.40q: want MIN..MAX such as \"1s..10m\"", s)
	case lo < time.Millisecond || hi < lo || hi > maxBackoff:
		return 0, 0, fmt.Errorf("%s..%s: want 1ms <= MIN <= MAX <= %s", lo, hi, maxBackoff)
	}
	return lo, hi, nil
}

// delay returns the backoff after the attempt, counted from 1: the base
// doubled with every attempt up to the cap, of which random (0 to 1) decides
// the upper half. Never below half of the base, so that no retry loop is hot.
func (p *plan) delay(attempt int, random float64) time.Duration {
	d := p.backoffLo
	for i := 1; i < attempt && d < p.backoff; i++ {
		d *= 2
	}
	d = min(d, p.backoff)
	return d/2 + time.Duration(random*float64(d-d/2))
}

// errText returns the detail of an *headgate.Error, else the text, clipped.
func errText(err error) string {
	if e := headgate.AsError(err); e != nil && e.Detail != "" {
		return clip(e.Detail, 500)
	}
	return clip(err.Error(), 500)
}

// clip makes text valid UTF-8 of at most n bytes.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
