package contract

import (
	"strings"

	"github.com/headgate/headgate/internal/jsontext"
)

// fastProgram is a contract in the form that the fast engine reads: tables that
// refer to each other by index.
//
// An entry of values stands for everything that one value of a payload has to
// satisfy: the schemas that apply to it together (by $ref, allOf, and the only
// branch that its type leaves open) were merged when the contract was compiled.
type fastProgram struct {
	root    int32
	values  []fastValue
	objects []fastObject
	arrays  []fastArray
	strings []fastString
	numbers []fastNumber
	hybrids []fastHybrid

	general *program // for hybrids
	limits  jsontext.Limits
}

// References from a fastValue to what is demanded of one type.
const (
	never = -1 // no such value is legal
	free  = 0  // the entry of every table that demands nothing
)

// The bits of fastValue.literals.
const (
	literalNull = 1 << iota
	literalTrue
	literalFalse
)

type fastValue struct {
	object, array, str, number int32
	literals                   uint8
}

// fastAfter is what must be decided about a value after the pass over it.
type fastAfter struct {
	tests  []fastTest
	hybrid int32 // into hybrids, or -1
	any    bool  // there is something to do
}

// fastTest is a keyword whose branches the value must be compared with one by
// one.
type fastTest struct {
	op       testOp
	branches []int32 // values; -1: no branch
}

type testOp uint8

const (
	testAny testOp = iota
	testOne
	testNot
	testIf
)

// fastHybrid is a set of schemas that the general engine decides.
type fastHybrid struct {
	nodes []*node
	at    string
	why   string
}

type fastObject struct {
	names    nameTable
	required []uint64
	words    int // of the bit set of declared names
	minProps int
	maxProps int // or the greatest int
	// other is the value of an undeclared name; others has one for each
	// combination of the patterns that it may match: by the sets of auto, or by
	// the bits of the patterns.
	other    int32
	others   []int32
	auto     *automaton
	patterns []*bytePattern
	// nameRules are values that every name must satisfy.
	nameRules []int32
	deps      []fastDependency
	choice    *fastChoice
	after     fastAfter
	needs     [][]fastNeed // of after.tests, by branch
}

// fastDependency demands something of an object that has one name.
type fastDependency struct {
	name     int32   // index of a declared name
	required []int32 // indexes of declared names
	value    int32   // that the object must satisfy, or -1
}

// fastChoice picks what an object must satisfy by the value of one property.
type fastChoice struct {
	name    []byte
	strings nameTable
	values  []int32          // by index of strings
	others  map[string]int32 // by scalarKey, of what is no string
}

type fastArray struct {
	minItems int
	maxItems int // or the greatest int
	prefix   []int32
	rest     int32
	unique   bool
	contains []fastContains
	group    *classGroup // of contains, where they are many
	after    fastAfter
}

type fastContains struct {
	value       int32
	least, most int
}

type fastString struct {
	listed    bool // one of the enumerated strings, and nothing else is asked
	enum      nameTable
	minLength int
	maxLength int // or the greatest int
	formats   []*format
	patterns  []*bytePattern
	after     fastAfter
	classes   *classes // that decide instead of after, where they are not open
}

type fastNumber struct {
	listed    bool // one of the enumerated numbers, and nothing else is asked
	small     []int64
	keys      map[string]struct{}
	integer   bool
	bounds    []fastBound
	multiples []multiple
	after     fastAfter
	classes   *classes // that decide instead of after, where they are not open
}

// maxWhy bounds the places that the reason for a hybrid lists.
const maxWhy = 3

// hybridWords says which parts the general engine decides, and why.
func (p *fastProgram) hybridWords() string {
	var parts []string
	seen := map[string]bool{}
	more := 0
	for _, h := range p.hybrids {
		s := placeWords(h.at) + " (" + h.why + ")"
		if seen[s] {
			continue
		}
		seen[s] = true
		if len(parts) == maxWhy {
			more++
			continue
		}
		parts = append(parts, s)
	}
	out := "the general engine decides " + strings.Join(parts, ", ")
	if more > 0 {
		out += " and " + plural(more, "other part", "other parts")
	}
	return out
}
