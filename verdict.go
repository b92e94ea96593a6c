package headgate

import (
	"strconv"
	"strings"
)

// Engine names the path by which a contract checks a payload.
type Engine string

// The engines of a compiled contract.
const (
	// EngineFast checks the whole contract in one pass over the raw bytes.
	EngineFast Engine = "fast"
	// EngineHybrid checks named subtrees by the general engine.
	EngineHybrid Engine = "hybrid"
	// EngineFallback checks the whole contract by the general engine.
	EngineFallback Engine = "fallback"
)

// ContractRef names the compiled contract behind a verdict.
type ContractRef struct {
	Subject string `json:"subject"`
	Version int    `json:"version"`
	Digest  string `json:"digest"`
	Engine  Engine `json:"engine"`
	// Why is the reason for an engine other than fast.
	Why string `json:"why,omitempty"`
	// Draft marks a contract inferred from a first payload (dev only).
	Draft bool `json:"draft,omitempty"`
}

// String returns "subject@version", the form kept in dataschema.
func (r ContractRef) String() string { return r.Subject + "@" + strconv.Itoa(r.Version) }

// ParseContractRef reads what [ContractRef.String] wrote: subject and version
// alone. Anything else gives the zero value.
func ParseContractRef(s string) ContractRef {
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return ContractRef{}
	}
	version, err := strconv.Atoi(s[at+1:])
	if err != nil || version < 1 {
		return ContractRef{}
	}
	return ContractRef{Subject: s[:at], Version: version}
}

// Verdict is the outcome of checking one payload against one contract. It is
// a pure function of contract, policy, engine version and bytes: the same
// bytes give the same verdict, byte for byte.
type Verdict struct {
	Valid    bool        `json:"valid"`
	Contract ContractRef `json:"contract"`
	// Violations are ordered by offset, then by code. At most
	// [MaxViolations]; Truncated counts the rest, as far as they were looked
	// for: the look ends at 1,024.
	Violations []Violation `json:"violations,omitempty"`
	Truncated  int         `json:"truncated,omitempty"`
	// Proposals are ways to mend the payload, the best first, where the report
	// was asked for them. Each leads to a payload that the contract accepts.
	Proposals []Proposal `json:"proposals,omitempty"`
}

// MaxViolations bounds the violations that one verdict lists.
const MaxViolations = 32

// ViolationCode is one fault of a payload, from a closed list.
type ViolationCode string

// The violation codes.
const (
	ViolationSyntax          ViolationCode = "syntax"
	ViolationBadUTF8         ViolationCode = "bad_utf8"
	ViolationDuplicateKey    ViolationCode = "duplicate_key"
	ViolationNumberTooLarge  ViolationCode = "number_too_large"
	ViolationTooDeep         ViolationCode = "too_deep"
	ViolationTooLarge        ViolationCode = "too_large"
	ViolationMissingRequired ViolationCode = "missing_required"
	ViolationUnknownProperty ViolationCode = "unknown_property"
	ViolationWrongType       ViolationCode = "wrong_type"
	ViolationBadFormat       ViolationCode = "bad_format"
	ViolationBadPattern      ViolationCode = "bad_pattern"
	ViolationNotInEnum       ViolationCode = "not_in_enum"
	ViolationNotConst        ViolationCode = "not_const"
	ViolationOutOfRange      ViolationCode = "out_of_range"
	ViolationNotMultiple     ViolationCode = "not_multiple"
	ViolationBadLength       ViolationCode = "bad_length"
	ViolationBadCount        ViolationCode = "bad_count"
	ViolationNotUnique       ViolationCode = "not_unique"
	ViolationNoBranch        ViolationCode = "no_branch"
	ViolationManyBranches    ViolationCode = "many_branches"
	ViolationForbidden       ViolationCode = "forbidden"
	ViolationDependency      ViolationCode = "dependency"
	ViolationTooComplex      ViolationCode = "too_complex"
	ViolationBadFrame        ViolationCode = "bad_frame"
)

// Violation is one fault of a payload, in a form that a model can act on.
type Violation struct {
	Code ViolationCode `json:"code"`
	// At is the JSON Pointer of the very field, also of one that is missing.
	At string `json:"at"`
	// SchemaAt is the JSON Pointer of the keyword in the contract.
	SchemaAt string `json:"schema_at,omitempty"`
	// Offset, Line and Column locate the fault in the payload; Offset counts
	// bytes from 0, Line and Column count from 1.
	Offset int `json:"offset"`
	Line   int `json:"line"`
	Column int `json:"column"`
	// Got describes what stands there: its type and a clipped, escaped sample.
	Got string `json:"got,omitempty"`
	// Want is what the contract asks for.
	Want string `json:"want,omitempty"`
	// Near lists the nearest legal names or values, best first, at most 3.
	Near []string `json:"near,omitempty"`
	// Fix is one imperative English sentence.
	Fix string `json:"fix"`
}
