package contract

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// avroTwin writes the JSON Schema of the JSON form of an Avro schema, so that
// what is made for JSON Schemas, proposals and the strict export, need not be
// made twice. The schema decides nothing: what it says of a payload is asked of
// the Avro schema again.
type avroTwin struct {
	// written asks for the form that is written alone. Otherwise the schema takes
	// what is read besides, as far as proposals can do with it.
	written bool
	defs    map[string]any
	known   map[string]bool // definitions that are written or wait to be
	queue   []*avroNode
	places  map[string]string // pointers of the schema → of the Avro schema
}

// schema returns the JSON Schema of an Avro schema, and from which places of
// the Avro schema its places come.
func (p *avroProgram) schema(written bool) (text []byte, places map[string]string, err error) {
	w := &avroTwin{written: written, defs: map[string]any{}, known: map[string]bool{}, places: map[string]string{}}
	root := w.write(p.root, "")
	for len(w.queue) > 0 {
		n := w.queue[0]
		w.queue = w.queue[1:]
		w.defs[n.name] = w.define(n, "/$defs/"+escapeToken(n.name))
	}
	if len(w.defs) > 0 {
		root["$defs"] = w.defs
	}
	root[keyRepair] = string(p.repair)
	text, err = json.Marshal(root)
	return text, w.places, err
}

// twinPolicy is the policy of a twin. A union is an object in JSON and no value
// of its own in Avro.
func (c *Contract) twinPolicy() Policy {
	pol := c.policy
	pol.CloseObjects = false // the schema closes its objects
	pol.Depth = min(2*pol.Depth+2, maxDepth)
	return pol
}

// newTwin compiles the contract of the JSON form. The error is that of a schema
// that is too large for one.
func (c *Contract) newTwin() (*Contract, error) {
	text, _, err := c.avro.schema(false)
	if err != nil {
		return nil, err
	}
	twin, _, err := Compile(c.ref.Subject, c.ref.Version, text, &CompileOpts{Policy: c.twinPolicy(), hooks: compileHooks{generalOnly: true}})
	if err != nil {
		return nil, err
	}
	twin.takes = c.takesMended
	return twin, nil
}

// write returns the schema of one place, which stands at the pointer "to".
func (w *avroTwin) write(n *avroNode, to string) map[string]any {
	out := w.form(n, to)
	if n.sensitive && !w.written {
		out[keySensitive] = true
	}
	return out
}

func (w *avroTwin) form(n *avroNode, to string) map[string]any {
	w.places[to] = n.at
	switch n.op {
	case avroRecord, avroEnum:
		if !w.known[n.name] {
			w.known[n.name] = true
			w.queue = append(w.queue, n)
		}
		return map[string]any{"$ref": "#/$defs/" + url.PathEscape(escapeToken(n.name))}
	case avroArray:
		out := map[string]any{"type": "array", "items": w.write(n.item, to+"/items")}
		if n.item.minBytes == 0 {
			out["maxItems"] = maxAvroEmptyItems
		}
		return out
	case avroMap:
		return map[string]any{"type": "object", "additionalProperties": w.write(n.item, to+"/additionalProperties")}
	case avroUnion:
		return w.union(n, to)
	}
	return w.scalar(n)
}

// define returns the schema of a named type.
func (w *avroTwin) define(n *avroNode, to string) map[string]any {
	w.places[to] = n.at
	out := map[string]any{}
	if n.doc != "" {
		out["description"] = n.doc
	}
	if n.op == avroEnum {
		out["type"], out["enum"] = "string", n.symbols
		return out
	}
	props, required := map[string]any{}, []string{}
	for i := range n.fields {
		f := &n.fields[i]
		at := to + "/properties/" + escapeToken(f.name)
		sub := w.write(n.kids[i], at)
		w.places[at] = n.at + "/fields/" + strconv.Itoa(i)
		if f.doc != "" {
			sub["description"] = f.doc
		}
		if f.sensitive && !w.written {
			sub[keySensitive] = true
		}
		props[f.name] = sub
		if !f.hasDefault {
			required = append(required, f.name)
		}
	}
	if !w.written {
		n.annotateAliases(props)
	}
	out["type"], out["properties"], out["required"], out["additionalProperties"] = "object", props, required, false
	return out
}

// annotateAliases hands the aliases of fields on, but for those that could mean
// two fields.
func (n *avroNode) annotateAliases(props map[string]any) {
	uses := map[string]int{}
	for i := range n.fields {
		for _, a := range slices.Compact(slices.Sorted(slices.Values(n.fields[i].aliases))) {
			uses[a]++
		}
	}
	for i := range n.fields {
		var list []string
		for _, a := range n.fields[i].aliases {
			if uses[a] == 1 && a != "" && len(a) <= maxAliasName && len(list) < maxAliases && props[a] == nil && !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
		if sub, ok := props[n.fields[i].name].(map[string]any); ok && len(list) > 0 {
			sub[keyAliases] = list
		}
	}
}

// scalar returns the schema of a type that holds no others.
func (w *avroTwin) scalar(n *avroNode) map[string]any {
	switch n.op {
	case avroBoolean:
		return map[string]any{"type": "boolean"}
	case avroInt, avroLong:
		low, high := int64(-1<<63), int64(1<<63-1)
		switch {
		case n.logical == avroTimeOfDay:
			low, high = 0, n.max-1
		case n.op == avroInt:
			low, high = -1<<31, 1<<31-1
		}
		return map[string]any{"type": "integer", "minimum": low, "maximum": high}
	case avroFloat:
		return map[string]any{"type": "number", "minimum": json.Number("-3.4028234663852886e38"), "maximum": json.Number("3.4028234663852886e38")}
	case avroDouble:
		return map[string]any{"type": "number", "minimum": json.Number("-1.7976931348623157e308"), "maximum": json.Number("1.7976931348623157e308")}
	case avroString:
		if n.logical == avroUUID {
			return map[string]any{"type": "string", "format": "uuid"}
		}
		return map[string]any{"type": "string"}
	case avroBytes, avroFixed:
		if n.decimal != nil {
			return n.decimal.schema()
		}
		return w.bytes(n)
	}
	return map[string]any{"type": "null"}
}

// schema returns the schema of a decimal as a number: exactly the numbers that
// its digits can say, as far as exponents go.
func (r *avroDecimalRule) schema() map[string]any {
	power := func(n int) string { return "1e" + strconv.Itoa(min(max(n, -DefaultExponent), DefaultExponent)) }
	above := power(r.precision - r.scale)
	return map[string]any{
		"type": "number", "multipleOf": json.Number(power(-r.scale)),
		"exclusiveMinimum": json.Number("-" + above), "exclusiveMaximum": json.Number(above),
	}
}

// bytes returns the schema of bytes that are written as code points.
func (w *avroTwin) bytes(n *avroNode) map[string]any {
	const each = `[\x00-\xff]`
	out := map[string]any{"type": "string", "pattern": "^" + each + "*$"}
	if n.op != avroFixed {
		return out
	}
	if w.written && n.size <= maxRepeat { // the export says the length by a pattern alone
		out["pattern"] = "^" + each + "{" + strconv.Itoa(n.size) + "}$"
		return out
	}
	out["minLength"], out["maxLength"] = n.size, n.size
	return out
}

// union returns the schema of a union.
func (w *avroTwin) union(n *avroNode, to string) map[string]any {
	if kid := n.optional(); kid != nil {
		if w.written {
			return w.nullable(kid, to)
		}
		return map[string]any{"anyOf": []any{w.nullable(kid, to+"/anyOf/0"), w.wrapped(kid, to+"/anyOf/1")}}
	}
	var list []any
	next := func() string { return to + "/anyOf/" + strconv.Itoa(len(list)) }
	for _, k := range n.kids {
		if k.op == avroNull || !w.written {
			list = append(list, w.write(k, next()))
		}
	}
	for _, k := range n.kids {
		if k.op != avroNull {
			list = append(list, w.wrapped(k, next()))
		}
	}
	if len(list) == 0 {
		return map[string]any{"not": map[string]any{}}
	}
	return map[string]any{"anyOf": list}
}

// wrapped returns the schema of a union's branch in Avro's own form.
func (w *avroTwin) wrapped(n *avroNode, to string) map[string]any {
	inner := w.write(n, to+"/properties/"+escapeToken(n.name))
	return map[string]any{"type": "object", "properties": map[string]any{n.name: inner}, "required": []string{n.name}, "additionalProperties": false}
}

// nullable returns the schema of a place that takes null too.
func (w *avroTwin) nullable(n *avroNode, to string) map[string]any {
	switch n.op {
	case avroRecord, avroEnum, avroArray, avroMap:
		return map[string]any{"anyOf": []any{w.write(n, to+"/anyOf/0"), map[string]any{"type": "null"}}}
	}
	out := maps.Clone(w.write(n, to))
	out["type"] = []any{out["type"], "null"}
	return out
}

// avroPlace returns the place of the Avro schema that a place of its JSON form
// comes from.
func avroPlace(places map[string]string, at string) string {
	for {
		if p, ok := places[at]; ok {
			return p
		}
		i := strings.LastIndexByte(at, '/')
		if i < 0 {
			return ""
		}
		at = at[:i]
	}
}

// reportAvro is [Contract.Report] for an Avro contract. All that the twin does
// is under the budget of a repair, its first look too, and it makes no report.
func (c *Contract) reportAvro(payload []byte) (*headgate.Verdict, []byte) {
	v := c.checkAvroJSON(payload)
	if v == nil || c.avro.twin == nil || c.avro.repair == RepairOff {
		return v, nil
	}
	if len(payload) > maxRepairPayload || len(v.Violations)+v.Truncated > maxRepairFindings {
		return v, nil
	}
	r := c.avro.twin.repairs.Get().(*repairer)
	r.begin(c.avro.twin, payload, nil)
	mended := r.propose(v, payload)
	r.end()
	return v, mended
}

// takesMended reports whether an Avro contract takes a payload as its twin
// mended it. A string of digits may be the bytes of a decimal, so that one
// becomes a number only where there is a fault.
func (c *Contract) takesMended(payload []byte, d *draft) bool {
	var faults []headgate.Violation
	for i := range d.Steps {
		s := &d.Steps[i]
		if s.Step != headgate.StepIntegerString && s.Step != headgate.StepNumberString {
			continue
		}
		if faults == nil {
			if v := c.checkAvroJSON(payload); v != nil {
				faults = v.Violations
			}
		}
		if !slices.ContainsFunc(faults, func(x headgate.Violation) bool { return x.At == s.At }) {
			return false
		}
	}
	return c.checkAvroJSON(d.text) == nil
}

// strictAvro is [Contract.Strict] for an Avro contract: the export of the JSON
// form that is written.
func (c *Contract) strictAvro(limits *StrictLimits) (*StrictExport, error) {
	text, places, err := c.avro.schema(true)
	if err != nil {
		return nil, headgate.NewError(headgate.CodeInternal, "%v", err)
	}
	form, _, err := Compile(c.ref.Subject, c.ref.Version, text, &CompileOpts{Policy: c.twinPolicy(), hooks: compileHooks{generalOnly: true}})
	if err != nil {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "no strict form: as JSON Schema: %s", headgate.AsError(err).Detail)
	}
	x, err := form.Strict(limits)
	if err != nil {
		return nil, err
	}
	for i := range x.Losses {
		x.Losses[i].At = clip(avroPlace(places, x.Losses[i].At), 400)
	}
	x.sortLosses()
	return x, nil
}
