package contract

import (
	"bytes"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// EngineVersion is part of every digest. It rises when the same contract and
// bytes may get another verdict or report than before: see the package
// documentation.
const EngineVersion = "1"

// MaxPayloadBytes is the largest payload that Check looks at. The perimeter's
// own limit is far below.
const MaxPayloadBytes = 64 << 20

// Contract is a compiled contract: immutable and safe for concurrent use.
type Contract struct {
	ref    headgate.ContractRef
	schema []byte
	policy Policy
	prog   *program // nil for Avro
	engine engine
	avro   *avroProgram // nil for JSON Schema
	warn   []Warning
	// repairs keep the memory of refusals for the next.
	repairs *sync.Pool // of *repairer

	// takes decides on mended payloads where the contract stands for another.
	takes func(text []byte) bool
}

// engine decides payloads. What it accepts, the general engine must accept too;
// what it does not, the general engine decides, so that a report never depends
// on the engine.
type engine interface {
	// name says which engine it is, and why not the fast one.
	name() (headgate.Engine, string)
	// accept reports whether the payload passes policy and schema. It never
	// takes more work than the budget of a check.
	accept(payload []byte) bool
}

// CompileOpts are the settings of Compile.
type CompileOpts struct {
	Policy Policy
	// Type is the language of the schema; empty means JSON Schema.
	Type Type
	// References are the Avro schemas that an Avro schema refers to, in the
	// order in which they need one another. The contract's own schema is then
	// one text that holds them all.
	References [][]byte
	// Draft marks a contract inferred from a payload.
	Draft bool

	hooks compileHooks
}

// Compile compiles one version of a contract. The error is an *headgate.Error
// with code contract_invalid whose detail lists the reasons, each with the
// JSON Pointer of its place in the schema. A nil opts means the defaults.
//
// Compile opens no file and no connection, whatever the schema says, and its
// work is bounded by the schema's limits.
func Compile(subject string, version int, schema []byte, opts *CompileOpts) (*Contract, []Warning, error) {
	if opts == nil {
		opts = &CompileOpts{}
	}
	if err := opts.Policy.Validate(); err != nil {
		return nil, nil, err
	}
	pol := opts.Policy.withDefaults()
	if opts.Type == TypeAvro {
		return compileAvroContract(subject, version, schema, opts, pol)
	}
	prog, warnings, rsn := compileSchema(schema, pol, &opts.hooks)
	if !rsn.empty() {
		return nil, nil, headgate.NewError(headgate.CodeContractInvalid, "%s", rsn.String())
	}
	digest, err := Digest(schema, pol)
	if err != nil {
		return nil, nil, err
	}
	c := &Contract{
		schema: bytes.Clone(schema), policy: pol, prog: prog,
		repairs: &sync.Pool{New: func() any { return new(repairer) }},
	}
	c.engine = chooseEngine(c, &opts.hooks)
	c.ref = headgate.ContractRef{Subject: subject, Version: version, Digest: digest, Draft: opts.Draft}
	c.ref.Engine, c.ref.Why = c.engine.name()
	c.warn = warnings
	return c, warnings, nil
}

// Warnings returns what [Compile] returned beside the contract. The caller must
// not modify it.
func (c *Contract) Warnings() []Warning { return c.warn }

// Ref names the contract.
func (c *Contract) Ref() headgate.ContractRef { return c.ref }

// Schema returns the schema as it was registered, byte for byte; for an Avro
// schema that refers to others one text that holds them all. The caller must
// not modify it.
func (c *Contract) Schema() []byte { return c.schema }

// Policy returns the policy that the contract was compiled under, with every
// default filled in.
func (c *Contract) Policy() Policy { return c.policy }

// Cost returns how many schemas of the contract one value of a payload meets
// at worst, 1 for an Avro contract. It is at most [MaxVisits].
func (c *Contract) Cost() int {
	if c.avro != nil {
		return 1
	}
	return c.prog.cost
}

// Check checks one payload in JSON; what an Avro contract takes as JSON is said
// in the package documentation. Nil means valid. The verdict is a pure function
// of the contract's digest and the bytes: it does not depend on time, on other
// checks, or on the order of maps.
//
// The work is bounded by the payload's length: a contract may ask for at most
// 128 units of work a byte (visits of schemas, and their like), and beyond
// that the payload is refused as too_complex. A contract whose [Contract.Cost]
// is at most 256 and that has no long patterns never comes there.
func (c *Contract) Check(payload []byte) *headgate.Verdict {
	if c.avro != nil {
		return c.checkAvroJSON(payload)
	}
	if len(payload) <= MaxPayloadBytes && c.engine.accept(payload) {
		return nil
	}
	verdict, d := c.refuse(payload)
	d.release()
	return verdict
}

// general is the first engine: it walks the compiled schemas over the
// payload's values.
type general struct {
	c   *Contract
	why string
}

func (g general) name() (headgate.Engine, string) { return headgate.EngineFallback, g.why }

// chooseEngine returns the fast engine where it can have the contract.
func chooseEngine(c *Contract, hooks *compileHooks) engine {
	switch {
	case hooks.generalOnly:
		return general{c, "the general engine was asked for"}
	case hooks.allowCycles:
		return general{c, "the schemas were not searched for cycles"}
	}
	f, why := newFast(c.prog, c.policy, hooks.plain)
	if f == nil {
		return general{c, why}
	}
	return f
}

func (g general) accept(payload []byte) bool { return g.c.prog.accept(payload, g.c.policy.limits()) }

// accept decides a payload without a report.
func (p *program) accept(payload []byte, lim jsontext.Limits) bool {
	if jsontext.Check(payload, lim) != nil {
		return false
	}
	d, fault := p.read(payload, lim)
	if fault != nil {
		return false
	}
	defer d.release()
	return d.eval.decide(nil)
}

// decide runs a whole check: the schema, then the policy's closed objects.
func (e *evaluator) decide(rep *report) bool {
	ok := e.eval(e.p.root, 0, nil, rep)
	if e.over() || !ok && rep == nil {
		return false
	}
	if e.p.closing {
		ok = e.closed(rep) && ok
	}
	return ok
}

// closed refuses members that no schema declared. What stands inside an
// undeclared member, or inside a value that is wrong as a whole, is not
// reported again.
func (e *evaluator) closed(rep *report) bool {
	var wrong map[int32]bool
	if rep != nil {
		wrong = map[int32]bool{}
		for _, f := range rep.list {
			switch f.code {
			case headgate.ViolationWrongType, headgate.ViolationNotConst, headgate.ViolationNotInEnum,
				headgate.ViolationForbidden, headgate.ViolationNoBranch, headgate.ViolationUnknownProperty:
				wrong[f.val] = true
			}
		}
	}
	ok := true
	for i := int32(1); i < int32(len(e.t.values)); {
		v := &e.t.values[i]
		switch {
		case wrong[v.parent], wrong[i]:
			i = v.next
		case v.nameEnd > 0 && !e.isDeclared(i):
			if rep == nil {
				return false
			}
			ok = false
			rep.add(finding{code: headgate.ViolationUnknownProperty, val: i, n: e.p.root, keyword: "policy"})
			i = v.next
		default:
			i++
		}
	}
	return ok
}

func tooComplex() headgate.Violation {
	return headgate.Violation{
		Code: headgate.ViolationTooComplex, Line: 1, Column: 1,
		Got:  "a payload that takes more work to check than its length allows",
		Want: "a smaller or simpler payload",
		Fix:  "Send a smaller payload, or several.",
	}
}

func tooLarge(n int) headgate.Violation {
	return headgate.Violation{
		Code: headgate.ViolationTooLarge, Line: 1, Column: 1,
		Got: plural(n, "byte", "bytes"), Want: "at most " + plural(MaxPayloadBytes, "byte", "bytes"),
		Fix: "Send a smaller payload; keep large content elsewhere and send a reference.",
	}
}

// WithVersion returns the same contract under another version number. It
// shares everything that was compiled.
func (c *Contract) WithVersion(version int) *Contract {
	if version == c.ref.Version {
		return c
	}
	d := *c
	d.ref.Version = version
	return &d
}
