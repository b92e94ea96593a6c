package contract

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// Bounds of the search for a proposal. The work of all its checks together is
// bounded too: see newRepairer.
const (
	maxRepairPayload  = 64 << 10 // bytes; larger payloads get none
	maxRepairFindings = 64
	maxRepairRounds   = 5
	maxProposals      = 2
	repairWorkBase    = 1 << 15
	repairWorkPerByte = 8
)

// Repair returns the mode of repair that the schema names.
func (c *Contract) Repair() RepairMode {
	if c.prog == nil {
		return RepairOff
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
	v := c.Check(payload)
	if v == nil || c.Repair() == RepairOff || len(payload) > maxRepairPayload {
		return v, nil
	}
	r := newRepairer(c, payload)
	var mended []byte
	for _, level := range [...]repairLevel{levelLossless, levelHints, levelDrops} {
		d := r.mend(payload, level)
		if d == nil || len(v.Proposals) > 0 && sameProposal(&v.Proposals[0], d) {
			continue
		}
		v.Proposals = append(v.Proposals, d.proposal())
		if level == levelLossless {
			if c.Repair() == RepairLossless {
				mended = d.text
			}
			break
		}
		if len(v.Proposals) == maxProposals {
			break
		}
	}
	return v, mended
}

// repairLevel says which steps may be taken.
type repairLevel uint8

const (
	levelLossless repairLevel = iota
	levelHints                // also guesses
	levelDrops                // guesses, but names are dropped rather than guessed
)

// repairer looks for ways to mend one payload.
type repairer struct {
	c    *Contract
	work int // left for checks
	// known is what is wrong with the texts that were looked at: the levels begin
	// with the same one, and often come to the same.
	known map[string]*diagnosis
}

func newRepairer(c *Contract, payload []byte) *repairer {
	return &repairer{c: c, work: repairWorkBase + repairWorkPerByte*len(payload), known: map[string]*diagnosis{}}
}

// draft is a payload on its way to be mended.
type draft struct {
	headgate.Proposal
	text []byte
}

// diagnosis is what is wrong with a draft.
type diagnosis struct {
	e     *evaluator
	rep   *report
	valid bool
}

// mend takes steps until the payload is valid, and returns nil when it does
// not come to that.
func (r *repairer) mend(payload []byte, level repairLevel) *draft {
	d := &draft{text: payload}
	if !r.mendText(d, level) {
		return nil
	}
	for range maxRepairRounds {
		g := r.diagnose(d.text)
		switch {
		case g == nil:
			return nil
		case g.valid:
			if len(d.Steps) == 0 || len(d.text) > maxRepairPayload {
				return nil
			}
			return d
		case level > levelLossless && r.unwrap(d, g):
			continue
		}
		s := &stepper{e: g.e, level: level}
		edits := s.edits(g.rep.list)
		if len(edits) == 0 {
			return nil
		}
		d.apply(g.e.t, edits)
	}
	return nil
}

// diagnose lists the faults of a text; nil when it has more than can be mended
// or when the work is used up.
func (r *repairer) diagnose(text []byte) *diagnosis {
	g, done := r.known[string(text)]
	if !done {
		g = r.examine(text)
		r.known[string(text)] = g
	}
	return g
}

func (r *repairer) examine(text []byte) *diagnosis {
	lim := r.c.policy.limits()
	if jsontext.Check(text, lim) != nil {
		return nil
	}
	t, fault := readTape(text, lim, nil)
	if fault != nil {
		return nil
	}
	e := newEvaluator(r.c.prog, &t)
	e.limit = min(e.limit, r.work)
	e.applied = map[int32][]*node{}
	g := &diagnosis{e: e, rep: &report{t: &t}}
	g.valid = e.decide(g.rep)
	r.work -= e.work
	g.rep.finish()
	if !g.valid {
		e.hideSensitive()
	}
	if e.over() || g.rep.size() > maxRepairFindings || !g.valid && g.rep.size() == 0 {
		return nil
	}
	return g
}

// passes reports whether a text is valid as it is.
func (r *repairer) passes(text []byte) bool {
	g := r.diagnose(text)
	return g != nil && g.valid
}

// sureUnwrap is low: the name that is lost may say the opposite of its value.
const sureUnwrap = 0.4

// unwrap takes the only member of the root out, if that is a valid payload, a
// payload can only be an object, and the contract has no member of that name.
func (r *repairer) unwrap(d *draft, g *diagnosis) bool {
	t := g.e.t
	root := &t.values[0]
	if root.kind != kindObject || root.count != 1 || len(t.name(1)) > maxPathToken || t.values[1].kind != kindObject || g.e.hiddenName(1) {
		return false
	}
	if n := r.c.prog.root; !n.wantsObject(8) || hasName(spread([]*node{n}), string(t.name(1))) {
		return false
	}
	inner := t.raw(1)
	if !r.passes(inner) {
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
