package headgate

import "encoding/json"

// RepairVersion names the list of repair steps. It changes when a step is
// added or does something else than before; it is told beside every proposal.
const RepairVersion = "2"

// RepairStep names one deterministic way to mend a payload.
type RepairStep string

// The lossless steps: what they make holds every value of the original, and
// can be undone. A contract may have them applied at the gate.
const (
	// StepStripBOM takes a byte order mark away from the front of the text.
	StepStripBOM RepairStep = "strip_bom"
	// StepStripFence takes a Markdown fence away from around the text.
	StepStripFence RepairStep = "strip_fence"
	// StepTrailingComma takes commas away that stand before a closing bracket.
	StepTrailingComma RepairStep = "trailing_comma"
	// StepSpelling gives a property the declared name that differs from its own
	// in case and in the signs between words alone.
	StepSpelling RepairStep = "spelling"
	// StepAlias gives a property the declared name that the contract has its
	// own name as an alias of.
	StepAlias RepairStep = "alias"
	// StepIntegerString takes the quotes away from an integer.
	StepIntegerString RepairStep = "integer_string"
	// StepTimeSeparator puts a T between the date and the time of day.
	StepTimeSeparator RepairStep = "time_separator"
)

// The steps that guess, or that lose something. They are proposed and never
// applied.
const (
	// StepUnwrap takes an outer object away that has one member alone, of which
	// the contract knows nothing and whose value is a valid payload. The
	// member's name is lost, which may have said what to do with the value.
	StepUnwrap RepairStep = "unwrap"
	// StepDecodeText reads the JSON text that a string holds.
	StepDecodeText RepairStep = "decode_text"
	// StepRename gives a property the nearest declared name.
	StepRename RepairStep = "rename"
	// StepDrop leaves a property out that the contract does not have.
	StepDrop RepairStep = "drop"
	// StepDropNull leaves a property out whose value is null and may not be.
	StepDropNull RepairStep = "drop_null"
	// StepDefault adds a missing property with the contract's default, or with
	// the only value that the contract allows.
	StepDefault RepairStep = "default"
	// StepNearestValue sets a value to the nearest one that is allowed.
	StepNearestValue RepairStep = "nearest_value"
	// StepNumberString takes the quotes away from a number that is no plain
	// integer.
	StepNumberString RepairStep = "number_string"
	// StepStringNumber puts quotes around a number or a truth value.
	StepStringNumber RepairStep = "string_number"
	// StepTruthWord makes a truth value of "true", "yes", "on", 1 and their
	// opposites.
	StepTruthWord RepairStep = "truth_word"
	// StepNullWord makes null of "null", "none" and the empty string.
	StepNullWord RepairStep = "null_word"
	// StepWrapArray puts a single value into an array.
	StepWrapArray RepairStep = "wrap_array"
	// StepUnwrapArray takes a single value out of its array.
	StepUnwrapArray RepairStep = "unwrap_array"
	// StepUUIDForm writes a UUID with its dashes, and without braces and prefix.
	StepUUIDForm RepairStep = "uuid_form"
	// StepDateForm writes a date as YYYY-MM-DD.
	StepDateForm RepairStep = "date_form"
	// StepTrim takes white space away from both ends of a string.
	StepTrim RepairStep = "trim"
)

// Lossless reports whether the step is one of those that a contract may have
// applied at the gate.
func (s RepairStep) Lossless() bool {
	switch s {
	case StepStripBOM, StepStripFence, StepTrailingComma, StepSpelling, StepAlias, StepIntegerString, StepTimeSeparator:
		return true
	}
	return false
}

// Proposal is one way to mend a refused payload. It is only made when the
// mended payload passes the very contract that refused the original. Applied
// are, in this order, Cuts to the bytes, Decode, and Patch to the document that
// they hold.
type Proposal struct {
	// Lossless: the mended payload holds every value of the original, and no
	// step guessed.
	Lossless bool `json:"lossless"`
	// Confidence is that of the least certain step, from 0 to 1.
	Confidence float64 `json:"confidence"`
	// Cuts are bytes of the original to take away before it is read, by rising
	// offset.
	Cuts []TextCut `json:"cuts,omitempty"`
	// Decode: the text is a JSON string whose content is the payload, which is
	// what InnerCuts and Patch apply to.
	Decode    bool      `json:"decode,omitempty"`
	InnerCuts []TextCut `json:"inner_cuts,omitempty"`
	// Patch is a JSON Patch of RFC 6902, to be applied in order.
	Patch []PatchOp `json:"patch,omitempty"`
	// Steps say what is done and why, in the order in which it is done.
	Steps []ProposedStep `json:"steps"`
	// Version is [RepairVersion].
	Version string `json:"version"`
}

// ProposedStep is one step of a proposal.
type ProposedStep struct {
	Step RepairStep `json:"step"`
	// At is the JSON Pointer of what is mended, in the document as it is when
	// the step is taken; empty for the whole.
	At         string  `json:"at"`
	Reason     string  `json:"reason"`
	Confidence float64 `json:"confidence"`
	Lossless   bool    `json:"lossless"`
}

// TextCut is a run of bytes that is taken away. Offset counts from 0.
type TextCut struct {
	Offset int `json:"offset"`
	Length int `json:"length"`
}

// PatchOp is one operation of a JSON Patch: RFC 6902, section 4. Used are add,
// remove, replace and move.
type PatchOp struct {
	Op    string          `json:"op"`
	From  string          `json:"from,omitempty"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Guess is a property name that senders use and the contract does not have.
type Guess struct {
	Name  string `json:"name"` // clipped
	Count uint64 `json:"count"`
	// Meant is the declared name that it is taken for, if there is one.
	Meant string `json:"meant,omitempty"`
}

// AttributeMended names the extension attribute of an event whose payload was
// mended at the gate. Its value is the id of the quarantine record that keeps
// the payload as it was sent. Only the perimeter sets it.
const AttributeMended = "mended"

// Mended returns the quarantine record that keeps the payload as it was sent,
// or "" when it was not mended.
func (e *Event) Mended() string {
	for i := range e.Extensions {
		if e.Extensions[i].Name == AttributeMended {
			return e.Extensions[i].Value
		}
	}
	return ""
}
