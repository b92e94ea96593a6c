package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// Type is the language that a contract is written in.
type Type string

// The types of contracts. The zero value of CompileOpts.Type means JSON.
const (
	TypeJSON Type = "json" // JSON Schema
	TypeAvro Type = "avro" // Avro 1.12
)

// ParseType reads a type as stored; empty means JSON.
func ParseType(s string) (Type, bool) {
	switch t := Type(s); t {
	case "":
		return TypeJSON, true
	case TypeJSON, TypeAvro:
		return t, true
	}
	return "", false
}

// compileAvroContract is Compile for Avro.
func compileAvroContract(subject string, version int, schema []byte, opts *CompileOpts, pol Policy) (*Contract, []Warning, error) {
	rsn := &reasons{}
	prog, warnings := compileAvro(schema, opts.References, rsn)
	if !rsn.empty() {
		return nil, nil, headgate.NewError(headgate.CodeContractInvalid, "%s", rsn.String())
	}
	canon, err := Canonical(prog.text)
	if err != nil {
		return nil, nil, err
	}
	c := &Contract{
		schema: bytes.Clone(prog.text), policy: pol, avro: prog,
	}
	prog.policy = pol
	c.ref = headgate.ContractRef{
		Subject: subject, Version: version, Digest: avroDigest(canon, pol), Draft: opts.Draft, Engine: headgate.EngineFast,
	}
	c.warn = boundWarnings(warnings)
	return c, c.warn, nil
}

// avroDigest is the identity of an Avro contract. It is over the whole schema
// and not over Avro's Parsing Canonical Form, which leaves logical types and
// defaults out: both decide what passes.
func avroDigest(canon []byte, pol Policy) string {
	h := sha256.New()
	h.Write([]byte("headgate contract\nengine " + EngineVersion + "\npolicy "))
	h.Write(MarshalPolicy(pol))
	h.Write([]byte("\navro "))
	h.Write(canon)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// Type returns the language that the contract is written in.
func (c *Contract) Type() Type {
	if c.avro != nil {
		return TypeAvro
	}
	return TypeJSON
}

// AvroCanonical returns the Parsing Canonical Form of an Avro contract's
// schema, nil for any other. The caller must not modify it.
func (c *Contract) AvroCanonical() []byte {
	if c.avro == nil {
		return nil
	}
	return c.avro.canonical
}

// AvroFingerprint returns the CRC-64-AVRO fingerprint of an Avro contract, by
// which single-object encoding names it; 0 for any other.
func (c *Contract) AvroFingerprint() uint64 {
	if c.avro == nil {
		return 0
	}
	return c.avro.fingerprint
}

// FingerprintAvro returns the CRC-64-AVRO fingerprint of an Avro schema without
// compiling the rest of a contract. The error is that of [Compile].
func FingerprintAvro(schema []byte) (uint64, error) {
	rsn := &reasons{}
	prog, _ := compileAvro(schema, nil, rsn)
	if !rsn.empty() {
		return 0, headgate.NewError(headgate.CodeContractInvalid, "%s", rsn.String())
	}
	return prog.fingerprint, nil
}

// ScreenAvro refuses an Avro schema that parsers must not see, because its
// defaults hold too much and parsers write them out. References are those of
// [CompileOpts]. [Compile] screens by itself. The error is that of Compile; nil
// does not mean that the schema is one.
func ScreenAvro(schema []byte, references [][]byte) error {
	rsn := &reasons{}
	if screenDefaults(append(references[:len(references):len(references)], schema), jsontext.Limits{Depth: maxDepth}, rsn); !rsn.empty() {
		return headgate.NewError(headgate.CodeContractInvalid, "%s", rsn.String())
	}
	return nil
}

// CheckAvro checks one datum in Avro binary, without any frame, against an
// Avro contract. Nil means valid. It allocates nothing for a valid datum, but
// for maps with more than 32 keys. The work is bounded by the datum's length.
func (c *Contract) CheckAvro(datum []byte) *headgate.Verdict {
	if c.avro == nil {
		return &headgate.Verdict{Contract: c.ref, Violations: []headgate.Violation{notAvro()}}
	}
	if len(datum) <= MaxPayloadBytes && c.avro.accept(datum, c.policy.Depth) {
		return nil
	}
	v := &headgate.Verdict{Contract: c.ref}
	if len(datum) > MaxPayloadBytes {
		v.Violations = []headgate.Violation{tooLarge(len(datum))}
		return v
	}
	if c.isJSON(datum) {
		v.Violations = []headgate.Violation{sentAsJSON()}
		return v
	}
	if v.Violations, v.Truncated = c.avro.diagnose(datum, c.policy.Depth); len(v.Violations) == 0 {
		v.Violations = []headgate.Violation{tooComplex()}
	}
	return v
}

// isJSON reports whether what was sent as Avro binary is an object or an array in
// JSON, which by accident no datum is.
func (c *Contract) isJSON(datum []byte) bool {
	return startsContainer(datum) && jsontext.Check(datum, twinPolicy(c.policy).limits()) == nil
}

func sentAsJSON() headgate.Violation {
	return headgate.Violation{
		Code: headgate.ViolationSyntax, Line: 1, Column: 1, Got: "a JSON text", Want: "Avro binary",
		Fix: "Send the payload with the media type of JSON, application/json, or write it in Avro binary.",
	}
}

func notAvro() headgate.Violation {
	return headgate.Violation{
		Code: headgate.ViolationSyntax, Line: 1, Column: 1, Got: "Avro binary", Want: "one JSON text as in RFC 8259",
		Fix: "Send JSON: the contract is a JSON Schema.",
	}
}

// checkAvroJSON is Check for an Avro contract.
func (c *Contract) checkAvroJSON(text []byte) *headgate.Verdict {
	if len(text) > MaxPayloadBytes {
		return &headgate.Verdict{Contract: c.ref, Violations: []headgate.Violation{tooLarge(len(text))}}
	}
	_, faults, truncated, ok := c.avro.readJSON(text, c.policy, true)
	if ok {
		return nil
	}
	return &headgate.Verdict{Contract: c.ref, Violations: faults, Truncated: truncated}
}

// AvroToJSON returns a datum of an Avro contract as JSON, in the form that the
// package documentation describes. The code is contract_violation for a datum
// that does not pass, and too_large for one whose JSON would have more than
// 1 MiB and 16 bytes for each of the datum, or more than [MaxPayloadBytes]:
// names of fields and symbols stand in the schema once and in JSON each time.
func (c *Contract) AvroToJSON(datum []byte) ([]byte, error) {
	if c.avro == nil || len(datum) > MaxPayloadBytes || !c.avro.accept(datum, c.policy.Depth) {
		return nil, headgate.NewError(headgate.CodeContractViolation, "the payload is no Avro value of %s", c.ref)
	}
	most := avroMost(len(datum))
	out, ok := c.avro.toJSON(datum, c.policy.Depth, most)
	if !ok {
		return nil, headgate.NewError(headgate.CodeTooLarge, "%d bytes of Avro of %s become more than %d bytes of JSON", len(datum), c.ref, most)
	}
	return out, nil
}

// AvroFromJSON returns a JSON text that passes an Avro contract as Avro binary.
// The code is contract_violation for a text that does not pass.
func (c *Contract) AvroFromJSON(text []byte) ([]byte, error) {
	if c.avro != nil && len(text) <= MaxPayloadBytes {
		if out, _, _, ok := c.avro.readJSON(text, c.policy, false); ok {
			return out, nil
		}
	}
	return nil, headgate.NewError(headgate.CodeContractViolation, "the payload is no JSON value of %s", c.ref)
}
