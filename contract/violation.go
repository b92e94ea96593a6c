package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// violations puts a finished report into words.
func (e *evaluator) violations(r *report) ([]headgate.Violation, int) {
	e.hideSensitive()
	list := r.list[:min(len(r.list), headgate.MaxViolations)]
	out := make([]headgate.Violation, 0, len(list))
	pl := newPlaces(e.t.text)
	for i := range list {
		f := &list[i]
		v := headgate.Violation{Code: f.code, At: e.pointer(f.val), Offset: int(r.offset(f)), SchemaAt: schemaAt(f)}
		v.Line, v.Column = pl.advance(v.Offset)
		v.Got = e.got(f.val)
		e.explain(f, &v)
		out = append(out, v)
	}
	return out, len(r.list) - len(list)
}

func schemaAt(f *finding) string {
	at := f.n.at
	switch f.keyword {
	case "":
	case "unevaluated":
		if f.n.unevalProps != nil && f.code == headgate.ViolationUnknownProperty {
			at += "/unevaluatedProperties"
		} else {
			at += "/unevaluatedItems"
		}
	case "policy":
		return ""
	default:
		at += "/" + f.keyword
	}
	return clip(at, 400)
}

// explain fills in what is wanted, what is near, and how to mend it.
func (e *evaluator) explain(f *finding, v *headgate.Violation) {
	n := f.n
	switch f.code {
	case headgate.ViolationMissingRequired, headgate.ViolationDependency:
		e.explainMissing(f, v)
	case headgate.ViolationUnknownProperty:
		e.explainUnknown(f, v)
	case headgate.ViolationWrongType:
		types := n.types
		if f.types != 0 {
			types = f.types
		}
		v.Want = typeWords(types)
		v.Fix = fmt.Sprintf("Send %s at %s.", v.Want, pointerWords(v.At))
		if fix := e.quotedScalar(f.val, types, v.At); fix != "" {
			v.Fix = fix
		}
	case headgate.ViolationNotConst, headgate.ViolationNotInEnum:
		if e.hidden(f.val) {
			v.Want = "a value that the contract lists"
			v.Fix = fmt.Sprintf("Set %s to %s.", pointerWords(v.At), v.Want)
			return
		}
		list := f.wanted()
		v.Want = oneOfWords(list.words)
		v.Near = e.nearValues(f.val, list)
		v.Fix = fmt.Sprintf("Set %s to %s.", pointerWords(v.At), v.Want)
		if len(v.Near) > 0 {
			v.Fix = fmt.Sprintf("Set %s to %s.", pointerWords(v.At), v.Near[0])
		}
	case headgate.ViolationBadFormat:
		v.Want = n.format.want
		v.Fix = fmt.Sprintf("Set %s to %s, such as %q.", pointerWords(v.At), n.format.want, n.format.example)
		if n.format.name == "uuid" {
			v.Fix = fmt.Sprintf("Set %s to the id that its owner issued, %s; do not make one up.", pointerWords(v.At), n.format.want)
		}
	case headgate.ViolationBadPattern:
		v.Want = "a string that matches " + clipQuoteLong(n.strings.pattern.String())
		v.Fix = fmt.Sprintf("Change %s so that it matches %s.", pointerWords(v.At), clipQuoteLong(n.strings.pattern.String()))
	case headgate.ViolationForbidden:
		v.Want = "anything but what the contract forbids here"
		v.Fix = fmt.Sprintf("Remove or change %s: the contract forbids it.", pointerWords(v.At))
	default:
		e.explainBounds(f, v)
	}
}

func (e *evaluator) explainBounds(f *finding, v *headgate.Violation) {
	n, at := f.n, pointerWords(v.At)
	switch f.code {
	case headgate.ViolationOutOfRange:
		word, b := rangeWords(n.numbers, f.keyword)
		v.Want = "a number " + word + " " + b.String()
		v.Fix = fmt.Sprintf("Set %s to %s.", at, v.Want)
	case headgate.ViolationNotMultiple:
		v.Want = "a multiple of " + n.numbers.multiple.String()
		v.Fix = fmt.Sprintf("Set %s to %s.", at, v.Want)
	case headgate.ViolationBadLength:
		if f.keyword == "minLength" {
			v.Want = "at least " + plural(n.strings.minLength, "character", "characters")
			v.Fix = fmt.Sprintf("Lengthen %s from %d to %s.", at, f.arg, v.Want)
		} else {
			v.Want = "at most " + plural(n.strings.maxLength, "character", "characters")
			v.Fix = fmt.Sprintf("Shorten %s from %d to %s.", at, f.arg, v.Want)
		}
	case headgate.ViolationBadCount:
		explainCount(f, v)
	case headgate.ViolationNotUnique:
		v.Want = "items that all differ"
		v.Fix = fmt.Sprintf("Remove %s: it equals the item at index %d.", at, f.arg)
	case headgate.ViolationManyBranches:
		v.Want = "a value that matches exactly one alternative"
		v.Fix = fmt.Sprintf("Change %s so that it matches one alternative alone; now it matches those at index %d and %d of %s.", at, f.arg, f.arg2, pointerWords(v.SchemaAt))
	case headgate.ViolationNoBranch:
		if f.words != nil {
			quoted := make([]string, len(f.words))
			for i, w := range f.words {
				quoted[i] = clipQuote(w)
			}
			v.Want = "an object with " + oneOfWords(quoted)
			v.Fix = fmt.Sprintf("Add %s at %s.", oneOfWords(quoted), at)
			return
		}
		v.Want = "a value that matches one of the alternatives"
		v.Fix = fmt.Sprintf("Change %s so that it matches one of the alternatives in %s.", at, pointerWords(v.SchemaAt))
	default:
		v.Fix = fmt.Sprintf("Correct %s.", at)
	}
}

func rangeWords(r *numberRules, keyword string) (string, *bound) {
	switch keyword {
	case "minimum":
		return "of at least", r.min
	case "exclusiveMinimum":
		return "greater than", r.exclMin
	case "maximum":
		return "of at most", r.max
	default:
		return "less than", r.exclMax
	}
}

func explainCount(f *finding, v *headgate.Violation) {
	n, at := f.n, pointerWords(v.At)
	switch f.keyword {
	case "minItems":
		v.Want = "at least " + plural(n.array.minItems, "item", "items")
		v.Fix = fmt.Sprintf("Add items to %s: it has %d of %d.", at, f.arg, n.array.minItems)
	case "maxItems":
		v.Want = "at most " + plural(n.array.maxItems, "item", "items")
		v.Fix = fmt.Sprintf("Remove items from %s: it has %d of at most %d.", at, f.arg, n.array.maxItems)
	case "minProperties":
		v.Want = "at least " + plural(n.object.minProps, "property", "properties")
		v.Fix = fmt.Sprintf("Add properties to %s: it has %d of %d.", at, f.arg, n.object.minProps)
	case "maxProperties":
		v.Want = "at most " + plural(n.object.maxProps, "property", "properties")
		v.Fix = fmt.Sprintf("Remove properties from %s: it has %d of at most %d.", at, f.arg, n.object.maxProps)
	case "contains", "minContains":
		least := max(n.array.minContains, 1)
		v.Want = "at least " + plural(least, "item", "items") + " that is " + describe(n.array.contains)
		v.Fix = fmt.Sprintf("Add to %s an item that is %s: %d of %d match.", at, describe(n.array.contains), f.arg, least)
	case "maxContains":
		v.Want = "at most " + plural(n.array.maxContains, "item", "items") + " that is " + describe(n.array.contains)
		v.Fix = fmt.Sprintf("Remove from %s items that are %s: %d match, %d may.", at, describe(n.array.contains), f.arg, n.array.maxContains)
	default:
		v.Want = "no item here"
		v.Fix = fmt.Sprintf("Remove %s: the array may not have an item at this place.", at)
	}
}

// explainMissing also points at a member that is likely the missing one under
// another name.
func (e *evaluator) explainMissing(f *finding, v *headgate.Violation) {
	v.At = v.At + "/" + clipPointerToken(f.name)
	v.Got = "absent"
	name := clipQuote(f.name)
	v.Want = "any value"
	if e.hiddenProperty(f.val, f.name) {
		v.Want = "a value that the contract marks as sensitive"
	} else if f.list != nil {
		v.Want = oneOfWords(f.list.words)
	} else if sub := f.n.property(f.name, 8); sub != nil {
		v.Want = describe(sub)
	}
	if !e.hidden(f.val) {
		v.Near = e.meantFor(f)
	}
	object := pointerWords(e.pointer(f.val))
	switch {
	case f.code == headgate.ViolationDependency:
		v.Fix = fmt.Sprintf("Add the property %s to %s (%s): the property %s asks for it.", name, object, v.Want, clipQuote(f.words[0]))
	case len(v.Near) > 0:
		v.Fix = fmt.Sprintf("Rename the property %s of %s to %s (%s).", clipQuote(v.Near[0]), object, name, v.Want)
	default:
		v.Fix = fmt.Sprintf("Add the property %s to %s (%s).", name, object, v.Want)
	}
	v.Near = clipAll(v.Near)
}

// meantFor lists the members that are likely the missing one under another
// name: its aliases, or else what is near.
func (e *evaluator) meantFor(f *finding) []string {
	v := e.vocabulary(f.val, f.n)
	if e.p.aliased {
		var out []string
		for i := range v.strangers {
			if s := &v.strangers[i]; len(out) < nearMax && slices.Contains(e.aliases(v, s), f.name) {
				out = append(out, strings.Clone(s.near.text))
			}
		}
		if out != nil {
			return out
		}
	}
	var search nearSearch
	if !search.start(f.name, &e.distances) {
		return nil
	}
	for i := range v.strangers {
		s := &v.strangers[i]
		search.offer(&s.near, func(string) bool { return e.stray(v, s) })
	}
	out := search.found()
	for i := range out { // not to keep the payload
		out[i] = strings.Clone(out[i])
	}
	return out
}

// property finds what a schema says about a property, also through references
// and allOf.
func (n *node) property(name string, steps int) *node {
	if n == nil || steps == 0 {
		return nil
	}
	if n.object != nil {
		if sub, ok := n.object.props[name]; ok {
			return sub
		}
	}
	if sub := n.ref.property(name, steps-1); sub != nil {
		return sub
	}
	for _, c := range n.allOf {
		if sub := c.property(name, steps-1); sub != nil {
			return sub
		}
	}
	return nil
}

func (e *evaluator) explainUnknown(f *finding, v *headgate.Violation) {
	name := string(e.t.name(f.val))
	parent := e.t.values[f.val].parent
	if f.keyword == "propertyNames" && !e.hiddenName(f.val) {
		v.Want = "a property name that is " + describeName(f.n.object.propertyNames)
		v.Fix = fmt.Sprintf("Rename or remove the property %s: its name must be %s.", clipQuote(name), describeName(f.n.object.propertyNames))
		return
	}
	v.Want = "no property of this name"
	if e.hiddenName(f.val) {
		v.Fix = fmt.Sprintf("Remove the property at line %d, column %d from %s, or give it a name that the contract has.", v.Line, v.Column, pointerWords(e.pointer(parent)))
		return
	}
	v.Near = e.nearDeclared(parent, f.n, name)
	v.Fix = fmt.Sprintf("Remove the property %s from %s.", clipQuote(name), pointerWords(e.pointer(parent)))
	if len(v.Near) > 0 {
		v.Fix = fmt.Sprintf("Rename the property %s of %s to %s, or remove it.", clipQuote(name), pointerWords(e.pointer(parent)), clipQuote(v.Near[0]))
	}
	v.Near = clipAll(v.Near)
}

// nearDeclared lists the declared names that an object lacks and that one of
// its members is likely meant to have.
func (e *evaluator) nearDeclared(object int32, n *node, name string) []string {
	v := e.vocabulary(object, n)
	for _, declared := range e.aliased(v, name) {
		if v.absent(declared) {
			return []string{declared} // it is said, not guessed
		}
	}
	search := nearSearch{byText: true}
	if !search.start(name, &e.distances) {
		return nil
	}
	for _, d := range v.declared {
		search.offer(d, v.absent)
	}
	return search.found()
}

func describeName(n *node) string {
	switch {
	case n.strings != nil && n.strings.pattern != nil:
		return "matched by " + clipQuoteLong(n.strings.pattern.String())
	case n.strings != nil && n.strings.maxLength >= 0:
		return fmt.Sprintf("of at most %d characters", n.strings.maxLength)
	case n.strings != nil:
		return fmt.Sprintf("of at least %d characters", n.strings.minLength)
	}
	return describe(n)
}

// nearValues lists the wanted values that a string is close to.
func (e *evaluator) nearValues(i int32, list *wantedList) []string {
	v := &e.t.values[i]
	if v.kind != kindString || v.end-v.start > nearLength+2 || e.hidden(i) {
		return nil
	}
	got := string(e.t.str(i))
	near := list.near(got, &e.distances)
	if p := list.otherCase(got); p != "" { // nearest of all
		near = slices.Insert(slices.DeleteFunc(near, func(s string) bool { return s == p }), 0, p)
	}
	if len(near) > nearMax {
		near = near[:nearMax]
	}
	for i := range near {
		near[i] = clipQuote(near[i])
	}
	return near
}

// quotedScalar spots a number, a truth value or null that was sent as a
// string, the commonest slip of a model.
func (e *evaluator) quotedScalar(i int32, want typeSet, at string) string {
	v := &e.t.values[i]
	if v.kind != kindString || v.end-v.start > 40 || e.hidden(i) {
		return ""
	}
	s := string(e.t.str(i))
	ok := want&typeBoolean != 0 && (s == "true" || s == "false") || want&typeNull != 0 && s == "null"
	if want&(typeNumber|typeInteger) != 0 && isJSONNumber(s) && (want&typeNumber != 0 || isInteger([]byte(s))) {
		ok = true
	}
	if !ok {
		return ""
	}
	return fmt.Sprintf("Send %s at %s without quotes.", s, pointerWords(at))
}

func isJSONNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	whole, frac, hasFrac := strings.Cut(s, ".")
	_, ok := allDigits(whole)
	if !ok || len(whole) > 1 && whole[0] == '0' || len(s) > DefaultNumberLength {
		return false
	}
	if hasFrac {
		_, ok = allDigits(frac)
	}
	return ok
}

func clipAll(in []string) []string {
	for i := range in {
		in[i] = clip(in[i], clipSample)
	}
	return in
}
