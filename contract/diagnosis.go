package contract

import (
	"math"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// diagnosis is one text under the general engine, with all that is wrong with
// it where that was asked for. Its memory is reused: what leaves the package is
// copied out of it.
type diagnosis struct {
	p     *program
	tape  tape
	eval  evaluator
	rep   report
	valid bool
}

// Bounds of what a diagnosis keeps for the next.
const (
	maxPooledValues   = 1 << 14
	maxPooledFindings = 2 * maxSought
	maxPooledApplied  = 4096
	maxPooledBranches = 64
)

// examine lists the faults of a text; or it names the first fault of the text
// itself. The look ends where it takes more than so much work, or than a check
// may. The diagnosis is to be released.
func (c *Contract) examine(text []byte, most int) (*diagnosis, *jsontext.Fault) {
	lim := c.policy.limits()
	if fault := jsontext.Check(text, lim); fault != nil {
		return nil, fault
	}
	d, fault := c.prog.read(text, lim)
	if fault != nil {
		return nil, fault
	}
	e := &d.eval
	e.limit = min(e.limit, most)
	e.applied.on, e.reports = true, true
	e.distances = nearDistances
	d.rep.t, d.rep.e = &d.tape, e
	d.valid = e.decide(&d.rep)
	d.rep.finish()
	return d, nil
}

// read readies the general engine for a text that passed the policy. The
// diagnosis is to be released.
func (p *program) read(text []byte, lim jsontext.Limits) (*diagnosis, *jsontext.Fault) {
	d, _ := p.diagnoses.Get().(*diagnosis)
	if d == nil {
		d = &diagnosis{p: p}
	}
	var fault *jsontext.Fault
	if d.tape, fault = readTape(text, lim, d.tape.values); fault != nil {
		d.release()
		return nil, fault
	}
	d.eval.begin(p, &d.tape)
	return d, nil
}

// release gives the memory of a diagnosis back; nil is none.
func (d *diagnosis) release() {
	if d == nil {
		return
	}
	if cap(d.tape.values) > maxPooledValues || cap(d.rep.list) > maxPooledFindings || cap(d.eval.applied.list) > maxPooledApplied {
		return
	}
	d.tape.text = nil
	clear(d.rep.list)
	d.rep = report{list: d.rep.list[:0]}
	d.eval.end()
	d.p.diagnoses.Put(d)
}

// begin readies an evaluator whose memory is used again.
func (e *evaluator) begin(p *program, t *tape) {
	e.p, e.t, e.limit = p, t, budgetBase+budgetPerByte*len(t.text)
	e.sought, e.compared = maxSought, maxCompared
	if !p.closing {
		return
	}
	words := len(t.values)/64 + 1
	if cap(e.declared) < words {
		e.declared = make([]uint64, words)
		return
	}
	e.declared = e.declared[:words]
	clear(e.declared)
}

// end drops what belongs to one payload.
func (e *evaluator) end() {
	vocabularies := e.vocabularies
	for i := range vocabularies {
		v := &vocabularies[i]
		if len(v.declared) > maxPooledVocabulary || cap(v.strangers) > maxPooledVocabulary || cap(v.from) > maxPooledVocabulary {
			*v = vocabulary{}
			continue
		}
		clear(v.strangers)
		v.object, v.n = -1, nil
	}
	e.failed.forget()
	spare := e.spare[:min(len(e.spare), maxPooledBranches)]
	for _, b := range spare {
		if cap(b.list) > maxPooledFindings {
			b.list = nil
		}
		clear(b.list[:cap(b.list)])
	}
	has, lacks := e.formatted.has[:0], e.formatted.lacks[:0]
	defer func() { e.formatted.has, e.formatted.lacks = has, lacks }()
	*e = evaluator{
		spare: spare, rows: e.rows[:0], failed: e.failed,
		scope: e.scope[:0], undo: e.undo[:0], key: e.key[:0], declared: e.declared[:0], hashes: e.hashes[:0],
		applied: appliedList{list: e.applied.list[:0]}, vocabularies: vocabularies[:0],
	}
}

// refuse makes the report on a payload that the engine did not accept. Nil
// means that it is valid after all: it took more work than the fast engine does
// for its length. The diagnosis, which is nil when the text itself is at
// fault, is to be released.
func (c *Contract) refuse(payload []byte) (*headgate.Verdict, *diagnosis) {
	verdict := &headgate.Verdict{Contract: c.ref}
	if len(payload) > MaxPayloadBytes {
		verdict.Violations = []headgate.Violation{tooLarge(len(payload))}
		return verdict, nil
	}
	d, fault := c.examine(payload, math.MaxInt)
	if fault != nil {
		verdict.Violations = []headgate.Violation{c.prog.fault(fault)}
		return verdict, nil
	}
	verdict.Violations, verdict.Truncated = d.eval.violations(&d.rep)
	if len(verdict.Violations) == 0 {
		if d.valid {
			d.release()
			return nil, nil
		}
		verdict.Violations = []headgate.Violation{tooComplex()}
	}
	return verdict, d
}
