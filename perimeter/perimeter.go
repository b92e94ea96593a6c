package perimeter

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/topology"
)

// Contracts looks compiled contracts up.
type Contracts interface {
	// Lookup returns the latest contract of a subject, or nil.
	Lookup(subject string) *contract.Contract
	// Broken returns why a subject has no usable contract although one is
	// registered, or nil.
	Broken(subject string) error
	// Named returns the live version of a subject that a payload's frame
	// names, or nil when it names none of the subject.
	Named(ctx context.Context, subject string, f contract.Frame) (*contract.Contract, error)
}

// Drafter makes a draft contract for a type that has none (dev only).
type Drafter interface {
	// Draft registers a contract inferred from a payload, unless the subject
	// has one by now, and returns the subject's contract.
	Draft(ctx context.Context, subject string, payload []byte, by string) (*contract.Contract, error)
}

// Config configures a perimeter.
type Config struct {
	Broker     broker.Broker
	Contracts  Contracts
	Drafter    Drafter // nil: a type without a contract is refused
	Causal     *causal.Engine
	Quarantine *quarantine.Quarantine
	Topology   *topology.Table
	Observer   *headgate.Observer // may be nil
	Log        *slog.Logger       // default: none
	Now        func() time.Time   // default time.Now
	NewID      func() string      // of events without one; default UUIDv7
	// Guesses counts the property names that refused payloads had and their
	// contracts have not. May be nil.
	Guesses *contract.Guesses
}

// Perimeter is safe for concurrent use.
type Perimeter struct {
	cfg      Config
	maxEvent int // bytes that the broker takes; 0: it does not say
	fencing  *Fencing
}

// New returns a perimeter. The error, of code invalid_config, names every
// required field that is missing.
func New(cfg Config) (*Perimeter, error) {
	var missing []string
	for _, f := range []struct {
		name string
		have bool
	}{
		{"Broker", cfg.Broker != nil},
		{"Contracts", cfg.Contracts != nil},
		{"Causal", cfg.Causal != nil},
		{"Quarantine", cfg.Quarantine != nil},
		{"Topology", cfg.Topology != nil},
	} {
		if !f.have {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "perimeter: required and missing: %s", strings.Join(missing, ", "))
	}
	if cfg.Observer == nil {
		cfg.Observer = &headgate.Observer{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = newID
	}
	return &Perimeter{cfg: cfg, maxEvent: cfg.Broker.Caps().MaxEventBytes}, nil
}

// newID mints a UUIDv7. It cannot fail: crypto/rand ends the program rather
// than return an error.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// Causal reports whether a refusal is causal (ttl_exhausted, gas_exhausted,
// loop, breadth_exhausted): recorded as extinguished, never worth a retry.
func Causal(code headgate.Code) bool {
	return quarantine.KindOf(code) == extinguished
}

// Admit runs the pipeline and stores what passed. It returns one result for
// each item, in order; each is final when Admit returns.
func (p *Perimeter) Admit(ctx context.Context, s Submission) []Result {
	r := p.start(&s)
	r.judge(ctx)
	r.keepOriginals(ctx)
	r.holdBackPassed()
	r.publishFenced(ctx)
	r.publish(ctx)
	r.finish(ctx)
	return r.results
}
