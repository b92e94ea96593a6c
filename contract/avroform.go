package contract

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// avroForm writes the JSON Schema of the JSON that an Avro schema's values are
// written as, for the strict export. Every place is written once.
type avroForm struct {
	defs   map[string]any
	known  map[string]bool // definitions that are written or wait to be
	queue  []*avroNode
	places map[string]string // pointers of the schema → of the Avro schema
}

// form returns the JSON Schema of what values of an Avro schema are written as,
// and from which places of the Avro schema its places come.
func (p *avroProgram) form() (text []byte, places map[string]string, err error) {
	w := &avroForm{defs: map[string]any{}, known: map[string]bool{}, places: map[string]string{}}
	root := w.write(p.root, "")
	for len(w.queue) > 0 {
		n := w.queue[0]
		w.queue = w.queue[1:]
		w.defs[n.name] = w.define(n, "/$defs/"+escapeToken(n.name))
	}
	if len(w.defs) > 0 {
		root["$defs"] = w.defs
	}
	text, err = json.Marshal(root)
	return text, w.places, err
}

// write returns the schema of one place, which stands at the pointer "to".
func (w *avroForm) write(n *avroNode, to string) map[string]any {
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
func (w *avroForm) define(n *avroNode, to string) map[string]any {
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
		props[f.name] = sub
		if !f.hasDefault {
			required = append(required, f.name)
		}
	}
	out["type"], out["properties"], out["required"], out["additionalProperties"] = "object", props, required, false
	return out
}

// scalar returns the schema of a type that holds no others.
func (w *avroForm) scalar(n *avroNode) map[string]any {
	switch n.op {
	case avroBoolean:
		return map[string]any{"type": "boolean"}
	case avroInt, avroLong:
		low, high := n.integers()
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
	above, step := r.powers()
	return map[string]any{
		"type": "number", "multipleOf": json.Number(step),
		"exclusiveMinimum": json.Number("-" + above), "exclusiveMaximum": json.Number(above),
	}
}

// powers returns the power of ten that numbers stay below, and that which they
// are multiples of.
func (r *avroDecimalRule) powers() (above, step string) {
	power := func(n int) string { return "1e" + strconv.Itoa(min(max(n, -DefaultExponent), DefaultExponent)) }
	return power(r.precision - r.scale), power(-r.scale)
}

// bytes returns the schema of bytes that are written as code points.
func (w *avroForm) bytes(n *avroNode) map[string]any {
	const each = `[\x00-\xff]`
	out := map[string]any{"type": "string", "pattern": "^" + each + "*$"}
	if n.op != avroFixed {
		return out
	}
	if n.size <= maxRepeat { // the export says the length by a pattern alone
		out["pattern"] = "^" + each + "{" + strconv.Itoa(n.size) + "}$"
		return out
	}
	out["minLength"], out["maxLength"] = n.size, n.size
	return out
}

// union returns the schema of a union.
func (w *avroForm) union(n *avroNode, to string) map[string]any {
	if kid := n.optional(); kid != nil {
		return w.nullable(kid, to)
	}
	var list []any
	next := func() string { return to + "/anyOf/" + strconv.Itoa(len(list)) }
	for _, k := range n.kids {
		if k.op == avroNull {
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
func (w *avroForm) wrapped(n *avroNode, to string) map[string]any {
	inner := w.write(n, to+"/properties/"+escapeToken(n.name))
	return map[string]any{"type": "object", "properties": map[string]any{n.name: inner}, "required": []string{n.name}, "additionalProperties": false}
}

// nullable returns the schema of a place that takes null too.
func (w *avroForm) nullable(n *avroNode, to string) map[string]any {
	switch n.op {
	case avroRecord, avroEnum, avroArray, avroMap:
		return map[string]any{"anyOf": []any{w.write(n, to+"/anyOf/0"), map[string]any{"type": "null"}}}
	}
	out := w.write(n, to)
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

// strictAvro is [Contract.Strict] for an Avro contract: the export of the JSON
// form that is written.
func (c *Contract) strictAvro(limits *StrictLimits) (*StrictExport, error) {
	text, places, err := c.avro.form()
	if err != nil {
		return nil, headgate.NewError(headgate.CodeInternal, "%v", err)
	}
	form, _, err := Compile(c.ref.Subject, c.ref.Version, text, &CompileOpts{Policy: twinPolicy(c.policy), hooks: compileHooks{generalOnly: true}})
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
