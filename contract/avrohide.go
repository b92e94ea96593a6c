package contract

import (
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// fault puts a fault of a JSON text into words, as far as they may be shown.
func (p *avroProgram) fault(f *jsontext.Fault) headgate.Violation {
	if p.sensitive {
		return withheld(f)
	}
	return faultViolation(f)
}

// hider returns what knows which values of a JSON text may not be shown: the
// twin, which has the marks of the schema. Nil where nothing is marked.
func (p *avroProgram) hider(t *tape) *evaluator {
	if !p.sensitive {
		return nil
	}
	e := newEvaluator(p.twin().prog, t)
	e.hideSensitive()
	return e
}

// hide takes out of a violation what may not be shown of the payload: the value
// itself, names that the contract does not have inside of marked values, and
// what would say which value is near.
func (r *avroRead) hide(e *evaluator, f avroFault, v *headgate.Violation) {
	object := r.t.values[f.v].parent
	switch f.code {
	case headgate.ViolationMissingRequired:
		name := f.n.fields[f.field].name
		if e.hidden(f.v) || e.hiddenPath(f.v) >= 0 {
			v.At, v.Near = e.pointer(f.v)+"/"+clipPointerToken(name), nil
			v.Fix = fmt.Sprintf("Add the property %s to %s (%s).", clipQuote(name), pointerWords(e.pointer(f.v)), v.Want)
		}
		return
	case headgate.ViolationUnknownProperty:
		if v.Got = e.got(f.v); e.hiddenPath(f.v) >= 0 {
			v.At, v.Near = e.pointer(f.v), nil
			v.Fix = fmt.Sprintf("Remove the property that the contract does not have from %s.", pointerWords(e.pointer(object)))
		}
		return
	}
	if !e.hidden(f.v) {
		return
	}
	at := pointerWords(e.pointer(f.v))
	v.At, v.Got, v.Near = e.pointer(f.v), e.got(f.v), nil
	if f.n.op == avroEnum {
		v.Want = "a symbol of the enum " + clip(f.n.name, clipSample)
	}
	v.Fix = fmt.Sprintf("Send %s at %s.", v.Want, at)
}
