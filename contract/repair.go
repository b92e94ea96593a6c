package contract

import (
	"bytes"
	"math"
	"slices"

	"github.com/headgate/headgate"
)

// Bounds of the search for a proposal. The work of all its checks together is
// bounded too, and that of the search for names: see repairer.begin.
const (
	maxRepairPayload  = 64 << 10 // bytes; larger payloads get none
	maxRepairFindings = 64
	maxRepairRounds   = 5
	maxProposals      = 2
	repairWorkBase    = 1 << 14
	repairWorkPerByte = 4
	looksPerWork      = 4  // names that are looked at for one unit of work
	bytesPerWork      = 16 // bytes that are read for one
)

// Repair returns the mode of repair that the schema names.
func (c *Contract) Repair() RepairMode {
	if c.avro != nil {
		return c.avro.repair
	}
	return c.prog.repair
}

// Report checks a payload as Check does, and adds to the report how the
// payload can be mended. Nil means valid. Like Check it is a pure function of
// the contract's digest and the bytes; its work beyond that of Check is
// bounded by the payload's length.
//
// The second result is the payload as mended by lossless steps alone, where the
// contract asks for that and it can be done; it passes the contract.
func (c *Contract) Report(payload []byte) (*headgate.Verdict, []byte) {
	if c.avro != nil {
		return c.reportAvro(payload)
	}
	if c.Repair() == RepairOff || len(payload) > maxRepairPayload {
		return c.Check(payload), nil
	}
	if c.engine.accept(payload) {
		return nil, nil
	}
	v, d := c.refuse(payload)
	if v == nil {
		return nil, nil
	}
	r := c.repairs.Get().(*repairer)
	r.begin(c, payload, d)
	mended := r.propose(v, payload)
	r.end()
	return v, mended
}

// propose adds the proposals to a verdict, and returns what is applied.
func (r *repairer) propose(v *headgate.Verdict, payload []byte) (mended []byte) {
	for _, level := range [...]repairLevel{levelLossless, levelHints, levelDrops} {
		d := r.mend(payload, level)
		if d == nil || len(v.Proposals) > 0 && sameProposal(&v.Proposals[0], d) {
			continue
		}
		v.Proposals = append(v.Proposals, d.proposal())
		if level == levelLossless {
			if r.c.Repair() == RepairLossless {
				mended = bytes.Clone(d.text)
			}
			break
		}
		if len(v.Proposals) == maxProposals {
			break
		}
	}
	return mended
}

// repairLevel says which steps may be taken.
type repairLevel uint8

const (
	levelLossless repairLevel = iota
	levelHints                // also guesses
	levelDrops                // guesses, but names are dropped rather than guessed
)

// repairer looks for ways to mend one payload. Its memory is reused.
type repairer struct {
	c    *Contract
	work int // left
	// known is what is wrong with the texts that were looked at: the levels begin
	// with the same one, and often come to the same.
	known   []examined
	texts   [][]byte // memory of drafts
	used    int      // of texts
	stepper stepper
}

// examined is a text that was looked at.
type examined struct {
	text  []byte
	valid bool
	d     *diagnosis // nil: valid, or it cannot be mended
}

// Bounds of what a repairer keeps for the next.
const (
	maxPooledText  = 1 << 14
	maxPooledTexts = 8
)

// begin readies a repairer for a payload that was refused. It takes over the
// diagnosis, which is nil where the text itself is at fault.
func (r *repairer) begin(c *Contract, payload []byte, d *diagnosis) {
	r.c, r.work = c, repairWorkBase+repairWorkPerByte*len(payload)
	if d != nil {
		r.keep(payload, d)
	}
}

func (r *repairer) end() {
	for i := range r.known {
		r.known[i].d.release()
	}
	clear(r.known)
	clear(r.stepper.out[:cap(r.stepper.out)])
	texts := r.texts[:0]
	for _, t := range r.texts {
		if cap(t) <= maxPooledText && len(texts) < maxPooledTexts {
			texts = append(texts, t)
		}
	}
	c := r.c
	*r = repairer{known: r.known[:0], texts: texts, stepper: stepper{renamed: r.stepper.renamed, out: r.stepper.out[:0]}}
	c.repairs.Put(r)
}

// buffer returns memory for the text of a draft, which lives as long as the
// repairer is at it.
func (r *repairer) buffer(size int) []byte {
	if r.used == len(r.texts) {
		r.texts = append(r.texts, nil)
	}
	b := &r.texts[r.used]
	r.used++
	*b = slices.Grow((*b)[:0], size)
	return *b
}

// draft is a payload on its way to be mended.
type draft struct {
	headgate.Proposal
	text []byte
}

// mend takes steps until the payload is valid, and returns nil when it does
// not come to that.
func (r *repairer) mend(payload []byte, level repairLevel) *draft {
	d := &draft{text: payload}
	if !r.mendText(d, level) {
		return nil
	}
	for range maxRepairRounds {
		x := r.examine(d.text)
		switch {
		case x.valid:
			if len(d.Steps) == 0 || len(d.text) > maxRepairPayload || r.c.takes != nil && !r.c.takes(d.text) {
				return nil
			}
			return d
		case x.d == nil:
			return nil
		case level > levelLossless && r.unwrap(d, x.d):
			continue
		}
		s, e := &r.stepper, &x.d.eval
		s.e, s.level, s.search.name = e, level, nearName{}
		e.looked = 0
		edits := s.edits(x.d.rep.list)
		r.work -= e.looked / looksPerWork
		if len(edits) == 0 || r.work < 0 {
			return nil
		}
		r.apply(d, &x.d.tape, edits)
	}
	return nil
}

// looked reports whether a text was looked at, and so is well-formed.
func (r *repairer) looked(text []byte) bool {
	return slices.ContainsFunc(r.known, func(x examined) bool { return bytes.Equal(x.text, text) })
}

// examine looks at a text, once.
func (r *repairer) examine(text []byte) examined {
	for i := range r.known {
		if bytes.Equal(r.known[i].text, text) {
			return r.known[i]
		}
	}
	r.work -= len(text) / bytesPerWork
	if r.work < 0 {
		return examined{}
	}
	most := math.MaxInt
	if r.c.takes != nil { // a twin, which has no fast engine: one bounded look
		most = r.work
	} else if r.c.engine.accept(text) {
		r.known = append(r.known, examined{text: text, valid: true})
		return r.known[len(r.known)-1]
	}
	d, fault := r.c.examine(text, most)
	if fault != nil {
		return examined{}
	}
	return r.keep(text, d)
}

// keep notes a diagnosis, unless it has more than can be mended.
func (r *repairer) keep(text []byte, d *diagnosis) examined {
	e := &d.eval
	x := examined{text: text, valid: d.valid && !e.over()}
	r.work -= e.work
	if size := len(d.rep.list); x.valid || r.work < 0 || e.over() || size == 0 || size > maxRepairFindings {
		d.release()
	} else {
		e.hideSensitive()
		x.d = d
	}
	r.known = append(r.known, x)
	return x
}

// sureUnwrap is low: the name that is lost may say the opposite of its value.
const sureUnwrap = 0.4

// unwrap takes the only member of the root out, if that is a valid payload, a
// payload can only be an object, and the contract has no member of that name.
func (r *repairer) unwrap(d *draft, g *diagnosis) bool {
	t := &g.tape
	root := &t.values[0]
	if root.kind != kindObject || root.count != 1 || len(t.name(1)) > maxPathToken || t.values[1].kind != kindObject || g.eval.hiddenName(1) {
		return false
	}
	if n := r.c.prog.root; !n.wantsObject(8) || hasName(spread([]*node{n}), string(t.name(1))) {
		return false
	}
	inner := t.raw(1)
	if !r.examine(inner).valid {
		return false
	}
	d.add(headgate.StepUnwrap, "", sureUnwrap, headgate.PatchOp{Op: "move", From: "/" + escapeToken(string(t.name(1))), Path: ""})
	d.text = inner
	return true
}

// add notes a step that was taken.
func (d *draft) add(step headgate.RepairStep, at string, confidence float64, ops ...headgate.PatchOp) {
	d.Steps = append(d.Steps, headgate.ProposedStep{
		Step: step, At: at, Reason: stepReasons[step], Confidence: confidence, Lossless: step.Lossless(),
	})
	d.Patch = append(d.Patch, ops...)
}

// proposal sums the steps up.
func (d *draft) proposal() headgate.Proposal {
	p := d.Proposal
	p.Lossless, p.Confidence, p.Version = true, 1, headgate.RepairVersion
	for i := range p.Steps {
		p.Lossless = p.Lossless && p.Steps[i].Lossless
		p.Confidence = min(p.Confidence, p.Steps[i].Confidence)
	}
	return p
}

func sameProposal(p *headgate.Proposal, d *draft) bool {
	if len(p.Steps) != len(d.Steps) {
		return false
	}
	for i := range p.Steps {
		if p.Steps[i].Step != d.Steps[i].Step || p.Steps[i].At != d.Steps[i].At {
			return false
		}
	}
	return true
}

// stepReasons say what is wrong, for each step. They quote nothing.
var stepReasons = map[headgate.RepairStep]string{
	headgate.StepStripBOM:      "A byte order mark stands in front of the JSON text.",
	headgate.StepStripFence:    "A Markdown fence stands around the JSON text.",
	headgate.StepTrailingComma: "A comma stands before a closing bracket.",
	headgate.StepUnwrap:        "The payload is wrapped into an object with one member; the member's value is valid by itself.",
	headgate.StepSpelling:      "The name differs from the declared one in case or in the signs between words alone.",
	headgate.StepAlias:         "The contract lists the name as an alias of the declared one.",
	headgate.StepIntegerString: "An integer is sent as a string.",
	headgate.StepTimeSeparator: "RFC 3339 wants a T between date and time.",
	headgate.StepDecodeText:    "A string holds the JSON text of what is wanted.",
	headgate.StepRename:        "The name is close to the declared one.",
	headgate.StepDrop:          "The contract has no such property.",
	headgate.StepDropNull:      "The property may be absent but not null.",
	headgate.StepDefault:       "The property is required; the contract names this value for it.",
	headgate.StepNearestValue:  "The value is close to one that is allowed.",
	headgate.StepNumberString:  "A number is sent as a string.",
	headgate.StepStringNumber:  "A string is wanted; the value is sent without quotes.",
	headgate.StepTruthWord:     "A truth value is wanted; the value is a word or number for one.",
	headgate.StepNullWord:      "Null is wanted; the value is a word for it.",
	headgate.StepWrapArray:     "An array is wanted; a single value is sent.",
	headgate.StepUnwrapArray:   "A single value is wanted; an array with one is sent.",
	headgate.StepUUIDForm:      "The UUID is not written as 8-4-4-4-12 hexadecimal digits.",
	headgate.StepDateForm:      "The date is not written as YYYY-MM-DD.",
	headgate.StepTrim:          "White space stands at an end of the string.",
}
