package contract

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"sync"

	"github.com/headgate/headgate"
)

// avroTwin lays an Avro schema out as a program of the JSON engine, so that what
// is made for JSON Schemas, proposals and what may not be shown, need not be
// made twice. The program decides nothing: what it says of a payload is asked
// of the Avro schema again.
//
// It is as large as the Avro schema, whatever that is: a union has its branches
// twice, bare and in Avro's own form, but what stands behind them is laid out
// once and shared, named or not. It has no ceiling of cost, as no check runs
// it: each look is under the budget of a repair, or of the search for what may
// not be shown.
type avroTwin struct {
	p      *program
	always [2]*node // the schemas false and true
	made   map[*avroNode]*node
	plain  map[plainScalar]*node // scalars without a name, by what they are
	null   *avroNode
	queue  []*avroNode // records that are laid out later
	// What was made of other schemas.
	marked, nullable, wrapped, arrays, maps map[*node]*node
	unions                                  map[string]*node // by the numbers of the branches
	bounds                                  map[int64]*bound
}

// plainScalar is what tells the scalars without a name apart.
type plainScalar struct {
	op      avroOp
	logical avroLogical
	max     int64
}

// twinPolicy is the policy of a twin. A union is an object in JSON and no value
// of its own in Avro.
func twinPolicy(pol Policy) Policy {
	pol.CloseObjects = false // the schema closes its objects
	pol.Depth = min(2*pol.Depth+2, maxDepth)
	return pol
}

// twin returns the contract of the JSON form, which is made when it is first
// asked for: most contracts never refuse anything. It takes as many steps as
// the schema has places, and cannot fail.
func (p *avroProgram) twin() *Contract {
	p.twinOnce.Do(func() {
		c := &Contract{
			policy: twinPolicy(p.policy), prog: newAvroTwin(p),
			repairs: &sync.Pool{New: func() any { return new(repairer) }},
		}
		c.takes = func(text []byte) bool {
			_, _, _, ok := p.readJSON(text, p.policy, false)
			return ok
		}
		p.twinMade = c
	})
	return p.twinMade
}

func newAvroTwin(p *avroProgram) *program {
	w := &avroTwin{
		p: &program{repair: p.repair}, null: &avroNode{op: avroNull}, made: map[*avroNode]*node{}, plain: map[plainScalar]*node{},
		marked: map[*node]*node{}, nullable: map[*node]*node{}, wrapped: map[*node]*node{}, arrays: map[*node]*node{}, maps: map[*node]*node{},
		unions: map[string]*node{}, bounds: map[int64]*bound{},
	}
	w.always = [2]*node{w.add(&node{always: -1}), w.add(&node{always: 1})}
	w.p.root = w.place(p.root)
	for len(w.queue) > 0 {
		n := w.queue[0]
		w.queue = w.queue[1:]
		w.record(n, w.made[n])
	}
	w.p.sensitive = p.sensitive
	w.p.markSecrets()
	w.p.indexNames()
	return w.p
}

func (w *avroTwin) add(n *node) *node {
	n.id, n.draft = len(w.p.nodes), 2020
	w.p.nodes = append(w.p.nodes, n)
	return n
}

// once returns what was made of a schema before, or makes it.
func (w *avroTwin) once(made map[*node]*node, of *node, make func() *node) *node {
	n, ok := made[of]
	if !ok {
		n = w.add(make())
		made[of] = n
	}
	return n
}

// place returns the schema of one place.
func (w *avroTwin) place(n *avroNode) *node {
	sub := w.form(n)
	if !n.sensitive {
		return sub
	}
	return w.once(w.marked, sub, func() *node { return &node{ref: sub, sensitive: true} })
}

// form returns the schema of a place without its mark. It goes into each place
// once, however often it is asked.
func (w *avroTwin) form(n *avroNode) *node {
	out, ok := w.made[n]
	if !ok {
		out = w.make(n)
		w.made[n] = out
	}
	return out
}

func (w *avroTwin) make(n *avroNode) *node {
	switch n.op {
	case avroArray:
		item := w.place(n.item)
		return w.once(w.arrays, item, func() *node {
			a := &arrayRules{minItems: -1, maxItems: -1, minContains: -1, maxContains: -1, rest: item, restKeyword: "items"}
			if n.item.minBytes == 0 {
				a.maxItems = maxAvroEmptyItems
			}
			return &node{types: typeArray, array: a}
		})
	case avroMap:
		item := w.place(n.item)
		return w.once(w.maps, item, func() *node {
			return &node{types: typeObject, object: &objectRules{minProps: -1, maxProps: -1, hasAdditional: true, additional: item, each: true}}
		})
	case avroUnion:
		return w.union(n)
	case avroRecord:
		w.queue = append(w.queue, n)
		return w.add(w.scalar(n))
	}
	if n.op == avroEnum || n.op == avroFixed || n.decimal != nil {
		return w.add(w.scalar(n))
	}
	key := plainScalar{n.op, n.logical, n.max}
	out, ok := w.plain[key]
	if !ok {
		out = w.add(w.scalar(n))
		w.plain[key] = out
	}
	return out
}

// record fills the schema of a record in.
func (w *avroTwin) record(n *avroNode, into *node) {
	props, required := make(map[string]*node, len(n.fields)), []string(nil)
	aliases := n.aliases()
	for i := range n.fields {
		f := &n.fields[i]
		sub := w.place(n.kids[i])
		if len(aliases[i]) > 0 || f.sensitive {
			sub = w.add(&node{ref: sub, aliases: aliases[i], sensitive: f.sensitive})
		}
		props[f.name] = sub
		if !f.hasDefault {
			required = append(required, f.name)
		}
	}
	into.object = w.closed(props, required)
}

// closed returns the rules of an object that has these properties alone.
func (w *avroTwin) closed(props map[string]*node, required []string) *objectRules {
	o := &objectRules{
		minProps: -1, maxProps: -1, props: props, names: sortedKeys(props), required: required,
		hasAdditional: true, additional: w.always[0], each: true,
	}
	if len(required) > 0 {
		o.requiredIndex = make(map[string]int, len(required))
		for i, name := range required {
			o.requiredIndex[name] = i
		}
	}
	return o
}

// aliases returns the aliases of each field, but for those that could mean two
// fields.
func (n *avroNode) aliases() [][]string {
	uses := map[string]int{}
	for i := range n.fields {
		for _, a := range slices.Compact(slices.Sorted(slices.Values(n.fields[i].aliases))) {
			uses[a]++
		}
	}
	out := make([][]string, len(n.fields))
	for i := range n.fields {
		for _, a := range n.fields[i].aliases {
			if uses[a] == 1 && a != "" && len(a) <= maxAliasName && len(out[i]) < maxAliases && n.field([]byte(a)) < 0 && !slices.Contains(out[i], a) {
				out[i] = append(out[i], a)
			}
		}
	}
	return out
}

// union returns the schema of a union: each branch bare and in Avro's own form.
func (w *avroTwin) union(n *avroNode) *node {
	var branches []*node
	if kid := n.optional(); kid != nil {
		branches = append(branches, w.orNull(kid))
	} else {
		for _, k := range n.kids {
			branches = append(branches, w.place(k))
		}
	}
	wrapped := map[string]*node{}
	for _, k := range n.kids {
		if k.op != avroNull {
			wrapped[k.name] = w.wrap(k)
			branches = append(branches, wrapped[k.name])
		}
	}
	out := w.anyOf(branches)
	if out.anyOf != nil {
		out.anyOf.wrapped = wrapped
	}
	return out
}

func (w *avroTwin) anyOf(branches []*node) *node {
	if len(branches) == 0 {
		return w.always[0]
	}
	var key []byte
	for _, b := range branches {
		key = append(strconv.AppendInt(key, int64(b.id), 36), ' ')
	}
	n, ok := w.unions[string(key)]
	if !ok {
		n = w.add(&node{anyOf: &union{branches: branches}})
		w.unions[string(key)] = n
	}
	return n
}

// wrap returns the schema of a union's branch in Avro's own form.
func (w *avroTwin) wrap(n *avroNode) *node {
	inner := w.place(n)
	return w.once(w.wrapped, inner, func() *node {
		return &node{types: typeObject, object: w.closed(map[string]*node{n.name: inner}, []string{n.name})}
	})
}

// orNull returns the schema of a place that takes null too.
func (w *avroTwin) orNull(n *avroNode) *node {
	sub := w.place(n)
	switch n.op {
	case avroRecord, avroEnum, avroArray, avroMap:
		return w.anyOf([]*node{sub, w.form(w.null)})
	}
	return w.once(w.nullable, sub, func() *node {
		out := *w.form(n)
		out.types |= typeNull
		out.sensitive = n.sensitive
		return &out
	})
}

// scalar returns the schema of a type that holds no others, and the beginning
// of that of a record.
func (w *avroTwin) scalar(n *avroNode) *node {
	switch n.op {
	case avroBoolean:
		return &node{types: typeBoolean}
	case avroInt, avroLong:
		low, high := n.integers()
		return &node{types: typeInteger, numbers: &numberRules{min: w.bound(low), max: w.bound(high)}}
	case avroFloat:
		return &node{types: typeNumber, reads: isAvroFloatWord, numbers: floatRules(128, 24)}
	case avroDouble:
		return &node{types: typeNumber, reads: isAvroFloatWord, numbers: floatRules(1024, 53)}
	case avroString:
		if n.logical == avroUUID {
			return &node{types: typeString, format: lookupFormat("uuid")}
		}
		return &node{types: typeString}
	case avroBytes, avroFixed:
		return w.bytes(n)
	case avroEnum:
		symbols := make([]any, len(n.symbols))
		for i, s := range n.symbols {
			symbols[i] = s
		}
		return &node{types: typeString, enum: newEnumSet(symbols)}
	case avroRecord:
		return &node{types: typeObject}
	}
	return &node{types: typeNull}
}

func (w *avroTwin) bound(v int64) *bound {
	b, ok := w.bounds[v]
	if !ok {
		b = newBound(new(big.Rat).SetInt64(v))
		w.bounds[v] = b
	}
	return b
}

// floatRules bounds numbers below what is rounded to infinity: half a step above
// the greatest float of these powers of two and bits.
func floatRules(power, bits uint) *numberRules {
	above := new(big.Int).Lsh(bigOne, power)
	above.Sub(above, new(big.Int).Lsh(bigOne, power-bits-1))
	rat := new(big.Rat).SetInt(above)
	return &numberRules{exclMin: newBound(new(big.Rat).Neg(rat)), exclMax: newBound(rat)}
}

// bytes returns the schema of bytes, which are written as code points, and of
// decimals, which are numbers or such bytes.
func (w *avroTwin) bytes(n *avroNode) *node {
	if n.decimal == nil {
		out := &node{types: typeString, reads: isAvroBytes}
		if n.op == avroFixed {
			out.strings = &stringRules{minLength: n.size, maxLength: n.size}
		}
		return out
	}
	above, step := n.decimal.powers()
	return &node{
		types: typeNumber,
		reads: func(text []byte) bool {
			b, ok := avroBytesOf(text)
			return ok && (n.op != avroFixed || len(b) == n.size) && n.decimal.fits(b)
		},
		numbers: &numberRules{exclMin: newBound(ratOf([]byte("-" + above))), exclMax: newBound(ratOf([]byte(above))), multiple: newMultipleBound(ratOf([]byte(step)))},
	}
}

// integers returns the least and the greatest value of an int or a long.
func (n *avroNode) integers() (low, high int64) {
	switch {
	case n.logical == avroTimeOfDay:
		return 0, n.max - 1
	case n.op == avroInt:
		return math.MinInt32, math.MaxInt32
	}
	return math.MinInt64, math.MaxInt64
}

// isAvroFloatWord reports whether a string is a number that JSON has none for.
func isAvroFloatWord(text []byte) bool {
	switch string(text) {
	case "NaN", "Infinity", "-Infinity":
		return true
	}
	return false
}

// avroBytesOf reads bytes that are written as code points.
func avroBytesOf(text []byte) (b []byte, ok bool) {
	for _, c := range string(text) {
		if c > 0xff {
			return nil, false
		}
		b = append(b, byte(c))
	}
	return b, true
}

func isAvroBytes(text []byte) bool {
	for _, c := range string(text) {
		if c > 0xff {
			return false
		}
	}
	return true
}

// wrapped returns the branch of a twin's union that a value names in Avro's own
// form, nil where it names none.
func (e *evaluator) wrapped(u *union, v int32) *node {
	if val := &e.t.values[v]; u.wrapped == nil || val.kind != kindObject || val.count != 1 {
		return nil
	}
	return u.wrapped[string(e.t.name(v+1))]
}

// reportAvro is [Contract.Report] for an Avro contract. All that the twin does
// is under the budget of a repair, its first look too, and it makes no report.
func (c *Contract) reportAvro(payload []byte) (*headgate.Verdict, []byte) {
	v := c.checkAvroJSON(payload)
	if v == nil || c.avro.repair == RepairOff {
		return v, nil
	}
	if len(payload) > maxRepairPayload || len(v.Violations)+v.Truncated > maxRepairFindings {
		return v, nil
	}
	twin := c.avro.twin()
	r := twin.repairs.Get().(*repairer)
	r.begin(twin, payload, nil)
	mended := r.propose(v, payload)
	r.end()
	return v, mended
}
