package contract

import (
	"encoding/json"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// Defaults and bounds of a [Policy].
const (
	DefaultDepth        = 64
	DefaultNumberLength = 64
	DefaultExponent     = 400

	maxDepth        = 512
	maxNumberLength = 1024
	maxExponent     = 4096
)

// Policy is what a contract demands beyond its schema. Zero fields mean the
// defaults.
type Policy struct {
	// CloseObjects refuses every property that no schema declares, in every
	// object of the payload. What counts as declared is said in the package
	// documentation.
	CloseObjects bool `json:"close_objects,omitempty"`
	// Depth bounds the nesting of objects and arrays: 1 to 512, default 64.
	Depth int `json:"depth,omitempty"`
	// NumberLength bounds the bytes of one number: 1 to 1,024, default 64.
	NumberLength int `json:"number_length,omitempty"`
	// Exponent bounds the absolute value of a number's exponent: 1 to 4,096,
	// default 400.
	Exponent int `json:"exponent,omitempty"`
}

// Validate reports the first field that is out of its bounds, as
// invalid_argument.
func (p Policy) Validate() error {
	for _, f := range []struct {
		name       string
		value, max int
	}{
		{"depth", p.Depth, maxDepth},
		{"number_length", p.NumberLength, maxNumberLength},
		{"exponent", p.Exponent, maxExponent},
	} {
		if f.value < 0 || f.value > f.max {
			return headgate.NewError(headgate.CodeInvalidArgument, "policy: %s is %d, want 0 (the default) to %d", f.name, f.value, f.max)
		}
	}
	return nil
}

// withDefaults replaces zero fields, so that a policy that spells a default
// out and one that leaves it out have one digest.
func (p Policy) withDefaults() Policy {
	if p.Depth == 0 {
		p.Depth = DefaultDepth
	}
	if p.NumberLength == 0 {
		p.NumberLength = DefaultNumberLength
	}
	if p.Exponent == 0 {
		p.Exponent = DefaultExponent
	}
	return p
}

func (p Policy) limits() jsontext.Limits {
	return jsontext.Limits{Depth: p.Depth, NumberLength: p.NumberLength, Exponent: p.Exponent}
}

// MarshalPolicy returns the stored form of a policy: JSON with every default
// spelt out, so that a later change of a default leaves old versions alone.
func MarshalPolicy(p Policy) []byte {
	p = p.withDefaults()
	return fmt.Appendf(nil, `{"close_objects":%t,"depth":%d,"number_length":%d,"exponent":%d}`,
		p.CloseObjects, p.Depth, p.NumberLength, p.Exponent)
}

// UnmarshalPolicy reads what [MarshalPolicy] wrote. Empty input is the default
// policy.
func UnmarshalPolicy(data []byte) (Policy, error) {
	var p Policy
	if len(data) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return Policy{}, headgate.NewError(headgate.CodeInternal, "stored policy: %v", err)
	}
	return p, p.Validate()
}
