package contract

import (
	"encoding/json"
	"regexp"
	"sync"
	"sync/atomic"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// node is one schema of a compiled contract, in the form that the evaluator
// reads.
type node struct {
	id    int
	at    string // JSON Pointer in the contract; a URL for a schema outside of it
	draft int
	res   *resource

	always     int8 // +1: true schema, -1: false schema, 0: look at the rest
	types      typeSet
	konst      *literal
	enum       *enumSet
	format     *format
	ref        *node
	onlyRefers bool // nothing but ref
	recRef     *node
	dynRef     *node
	dynName    string // of dynRef, when it names an anchor that may be rebound

	not, ifs, then, otherwise *node
	allOf                     []*node
	all                       *pick // of allOf, where that is many
	anyOf, oneOf              *union

	object  *objectRules
	array   *arrayRules
	strings *stringRules
	numbers *numberRules
	// reads says, in a twin, which strings are values of the schema, whatever
	// its types say; nil: they say it.
	reads func(text []byte) bool

	unevalProps, unevalItems *node

	// classes decides scalars, where many schemas apply to them; containers
	// decides arrays and objects that are decided by being one.
	classes    *classes
	containers [2]classVerdict

	// What the schema says beyond what is valid: other names that senders use
	// for the property, its default, and whether reports may show its value.
	aliases   []string
	fallback  json.RawMessage
	sensitive bool
	// Found at the end, where any schema is sensitive: whether one is here or
	// below, among the members' schemas, among the items'; and what a reference
	// may also come to that depends on how it is reached.
	secretBelow, secretMembers, secretItems bool
	mayBe                                   []*node
}

// union is anyOf or oneOf.
type union struct {
	branches []*node
	// disc chooses the branch by a property, where the branches allow it.
	disc *discriminator
	pick *pick // of many branches
	// merged is what the branches asked for last.
	merged atomic.Pointer[mergedWanted]
	// wrapped are, in a twin, the branches in Avro's own form, by the name of
	// the only member that they have.
	wrapped map[string]*node
}

type objectRules struct {
	minProps, maxProps int // -1: none
	required           []string
	requiredIndex      map[string]int
	props              map[string]*node
	names              []string            // of props, ordered
	near               []nearName          // of names, in their order
	aliases            map[string][]string // alias → names
	patterns           []patternRule
	auto               *automaton // of all patterns
	hasAdditional      bool
	additional         *node // of hasAdditional
	propertyNames      *node
	dependencies       []dependency
	each               bool           // something is asked of each member
	dependent          map[string]int // the names in dependencies, numbered
}

type patternRule struct {
	re   *pattern
	node *node
}

// dependency is one member of dependencies, dependentRequired or
// dependentSchemas.
type dependency struct {
	keyword  string
	name     string
	required []string
	node     *node
	// number is that of the name, and numbers those of required.
	number  int
	numbers []int
}

type arrayRules struct {
	minItems, maxItems int // -1: none
	unique             bool
	prefix             []*node
	prefixKeyword      string
	rest               *node // of items behind prefix; nil: anything
	restKeyword        string
	contains           *node
	minContains        int // -1: none, which asks for one
	maxContains        int // -1: none
	// group is that of contains, where it is the member at an index of one.
	group  *classGroup
	member int
}

type stringRules struct {
	minLength, maxLength int // -1: none
	pattern              *pattern
}

type numberRules struct {
	min, max, exclMin, exclMax, multiple *bound
}

// resource is a schema resource: the scope of dynamic references.
type resource struct {
	root            *node
	recursiveAnchor bool
	anchors         map[string]*node // by $dynamicAnchor
}

// program is a compiled schema.
type program struct {
	root  *node
	nodes []*node
	// dynamic is set when evaluation must know which resources it came
	// through.
	dynamic bool
	// closing is set when undeclared properties are refused by policy.
	closing bool
	cost    int // the greatest number of schemas that one value meets
	// spare is what is left of spareWork, and prepared how many schemas were
	// asked and visited for it.
	spare, prepared int

	repair    RepairMode
	sensitive bool // some schema is
	aliased   bool // some property has an alias

	diagnoses sync.Pool // of *diagnosis: memory of checks for the next

	byAnchor  map[string][]*node // of dynamicTargets, while compiling
	recursive []*node            // of recursiveTargets, while compiling
}

// typeSet is a set of JSON types; integer is a type of its own.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeNumber
	typeString
	typeArray
	typeObject
	typeInteger
)

var typeNames = [...]string{"null", "boolean", "number", "string", "array", "object", "integer"}

func (s typeSet) names() []string {
	var out []string
	for i, name := range typeNames {
		if s&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

func newTypeSet(names []string) typeSet {
	var s typeSet
	for _, n := range names {
		for i, name := range typeNames {
			if n == name {
				s |= 1 << i
			}
		}
	}
	return s
}

// lowering turns the library's compiled schemas into nodes.
type lowering struct {
	byKey     map[*jsonschema.Schema]*node
	queue     []*jsonschema.Schema
	nodes     []*node
	trueNode  *node
	falseNode *node
	resources *resources
}

func (l *lowering) node(s *jsonschema.Schema) *node {
	if s == nil {
		return nil
	}
	if n, ok := l.byKey[s]; ok {
		return n
	}
	n := l.add(&node{at: location(s.Location), draft: s.DraftVersion})
	l.byKey[s] = n
	l.queue = append(l.queue, s)
	return n
}

func (l *lowering) add(n *node) *node {
	n.id = len(l.nodes)
	l.nodes = append(l.nodes, n)
	return n
}

// findReferences marks the schemas that are references and nothing else. What
// leads back to itself is refused later.
func (l *lowering) findReferences() {
	for _, n := range l.nodes {
		n.onlyRefers = n.ref != nil && n.onlyRef()
	}
}

func (l *lowering) list(in []*jsonschema.Schema) []*node {
	var out []*node
	for _, s := range in {
		out = append(out, l.node(s))
	}
	return out
}

// drain lowers everything that was reached. Resources may add to the queue.
func (l *lowering) drain() error {
	for len(l.queue) > 0 {
		s := l.queue[0]
		l.queue = l.queue[1:]
		if err := l.lower(s, l.byKey[s]); err != nil {
			return err
		}
	}
	return nil
}

func (l *lowering) lower(s *jsonschema.Schema, n *node) error {
	res, err := l.resources.of(s.Location)
	if err != nil {
		return err
	}
	n.res = res
	if s.Bool != nil {
		n.always = -1
		if *s.Bool {
			n.always = 1
		}
		return nil
	}
	if s.Types != nil {
		n.types = newTypeSet(s.Types.ToStrings())
	}
	if s.Const != nil {
		lit := newLiteral(*s.Const)
		n.konst = &lit
	}
	if s.Enum != nil {
		n.enum = newEnumSet(s.Enum.Values)
	}
	if s.Format != nil {
		n.format = lookupFormat(s.Format.Name)
	}
	n.ref = l.node(s.Ref)
	if n.ref != nil && s.DraftVersion < 2019 {
		return nil
	}
	if s.RecursiveRef != nil {
		n.recRef = l.node(s.RecursiveRef)
	}
	if s.DynamicRef != nil {
		n.dynRef = l.node(s.DynamicRef.Ref)
		if a := s.DynamicRef.Anchor; a != "" && s.DynamicRef.Ref.DynamicAnchor == a {
			n.dynName = a
		}
	}
	n.not, n.ifs, n.then, n.otherwise = l.node(s.Not), l.node(s.If), l.node(s.Then), l.node(s.Else)
	n.allOf = l.list(s.AllOf)
	if len(s.AnyOf) > 0 {
		n.anyOf = &union{branches: l.list(s.AnyOf)}
	}
	if len(s.OneOf) > 0 {
		n.oneOf = &union{branches: l.list(s.OneOf)}
	}
	l.lowerObject(s, n)
	l.lowerArray(s, n)
	lowerScalars(s, n)
	n.unevalProps, n.unevalItems = l.node(s.UnevaluatedProperties), l.node(s.UnevaluatedItems)
	return nil
}

func (l *lowering) lowerObject(s *jsonschema.Schema, n *node) {
	o := &objectRules{minProps: orNone(s.MinProperties), maxProps: orNone(s.MaxProperties), required: s.Required}
	used := o.minProps >= 0 || o.maxProps >= 0 || len(s.Required) > 0
	if len(s.Required) > 0 {
		o.requiredIndex = make(map[string]int, len(s.Required))
		for i, name := range s.Required {
			o.requiredIndex[name] = i
		}
	}
	if len(s.Properties) > 0 {
		used = true
		o.props = make(map[string]*node, len(s.Properties))
		o.names = sortedKeys(s.Properties)
		for _, name := range o.names {
			o.props[name] = l.node(s.Properties[name])
		}
	}
	bySource := map[string]jsonschema.Regexp{}
	for re := range s.PatternProperties {
		bySource[re.String()] = re
	}
	for _, src := range sortedKeys(bySource) {
		used = true
		re := bySource[src]
		o.patterns = append(o.patterns, patternRule{asPattern(re), l.node(s.PatternProperties[re])})
	}
	switch a := s.AdditionalProperties.(type) {
	case bool:
		used, o.hasAdditional, o.additional = true, true, l.constant(a)
	case *jsonschema.Schema:
		used, o.hasAdditional, o.additional = true, true, l.node(a)
	}
	if s.PropertyNames != nil {
		used, o.propertyNames = true, l.node(s.PropertyNames)
	}
	for _, name := range sortedKeys(s.Dependencies) {
		switch d := s.Dependencies[name].(type) {
		case []string:
			o.dependencies = append(o.dependencies, dependency{keyword: "dependencies", name: name, required: d})
		case *jsonschema.Schema:
			o.dependencies = append(o.dependencies, dependency{keyword: "dependencies", name: name, node: l.node(d)})
		}
	}
	for _, name := range sortedKeys(s.DependentRequired) {
		o.dependencies = append(o.dependencies, dependency{keyword: "dependentRequired", name: name, required: s.DependentRequired[name]})
	}
	for _, name := range sortedKeys(s.DependentSchemas) {
		o.dependencies = append(o.dependencies, dependency{keyword: "dependentSchemas", name: name, node: l.node(s.DependentSchemas[name])})
	}
	if used || len(o.dependencies) > 0 {
		o.numberDependent()
		o.each = len(o.required) > 0 || len(o.props) > 0 || len(o.patterns) > 0 || o.hasAdditional || o.propertyNames != nil
		n.object = o
	}
}

// numberDependent numbers the names that dependencies speak of.
func (o *objectRules) numberDependent() {
	number := func(name string) int {
		if _, have := o.dependent[name]; !have {
			o.dependent[name] = len(o.dependent)
		}
		return o.dependent[name]
	}
	for i := range o.dependencies {
		if o.dependent == nil {
			o.dependent = map[string]int{}
		}
		d := &o.dependencies[i]
		d.number = number(d.name)
		for _, name := range d.required {
			d.numbers = append(d.numbers, number(name))
		}
	}
}

func (l *lowering) constant(b bool) *node {
	if b {
		return l.trueNode
	}
	return l.falseNode
}

func (l *lowering) lowerArray(s *jsonschema.Schema, n *node) {
	a := &arrayRules{
		minItems: orNone(s.MinItems), maxItems: orNone(s.MaxItems), unique: s.UniqueItems,
		contains: l.node(s.Contains), minContains: orNone(s.MinContains), maxContains: orNone(s.MaxContains),
	}
	if s.DraftVersion >= 2020 {
		a.prefix, a.prefixKeyword = l.list(s.PrefixItems), "prefixItems"
		a.rest, a.restKeyword = l.node(s.Items2020), "items"
	} else {
		switch items := s.Items.(type) {
		case *jsonschema.Schema:
			a.rest, a.restKeyword = l.node(items), "items"
		case []*jsonschema.Schema:
			a.prefix, a.prefixKeyword, a.restKeyword = l.list(items), "items", "additionalItems"
		}
		switch more := s.AdditionalItems.(type) {
		case bool:
			a.rest = l.constant(more)
		case *jsonschema.Schema:
			a.rest = l.node(more)
		}
	}
	if a.minItems >= 0 || a.maxItems >= 0 || a.unique || a.contains != nil || len(a.prefix) > 0 || a.rest != nil {
		n.array = a
	}
}

func lowerScalars(s *jsonschema.Schema, n *node) {
	if s.MinLength != nil || s.MaxLength != nil || s.Pattern != nil {
		n.strings = &stringRules{minLength: orNone(s.MinLength), maxLength: orNone(s.MaxLength)}
		if s.Pattern != nil {
			n.strings.pattern = asPattern(s.Pattern)
		}
	}
	if s.Minimum != nil || s.Maximum != nil || s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil || s.MultipleOf != nil {
		n.numbers = &numberRules{
			min: newBound(s.Minimum), max: newBound(s.Maximum),
			exclMin: newBound(s.ExclusiveMinimum), exclMax: newBound(s.ExclusiveMaximum),
			multiple: newMultipleBound(s.MultipleOf),
		}
	}
}

func orNone(n *int) int {
	if n == nil {
		return -1
	}
	return *n
}

// asPattern returns the compiled form of a library pattern. The library's own
// dialect schemas were compiled without our engine.
func asPattern(re jsonschema.Regexp) *pattern {
	switch re := re.(type) {
	case *pattern:
		return re
	case *regexp.Regexp:
		return newPattern(re, maxPatternProgram, maxPatternProgram)
	default:
		return newPattern(regexp.MustCompile(regexp.QuoteMeta(re.String())), maxPatternProgram, maxPatternProgram)
	}
}
