package condition

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"cel.dev/cel-go/cel"

	"github.com/headgate/headgate"
)

// Bounds on expressions.
const (
	MaxExpression = 4 << 10 // bytes of an expression or a template

	maxNodes  = 1000
	maxDepth  = 50
	maxNested = 3      // comprehensions inside each other
	maxRegexp = 1000   // instructions of a compiled regular expression
	costLimit = 50_000 // of one evaluation, in CEL's units: 5,000 list entries, or one look through 500 KB
	maxReason = 300    // bytes of an error's text
)

// environment is built once; it is immutable.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("data", cel.DynType),
		cel.Variable("id", cel.StringType),
		cel.Variable("source", cel.StringType),
		cel.Variable("type", cel.StringType),
		cel.Variable("subject", cel.StringType),
		cel.Variable("time", cel.TimestampType),
		cel.Variable("key", cel.StringType),
		cel.Variable("origin", cel.StringType),
		cel.Variable("principal", cel.StringType),
		cel.Variable("actor", cel.StringType),
		cel.Variable("rootid", cel.StringType),
		cel.Variable("ttl", cel.IntType),
		cel.Variable("hop", cel.IntType),
		cel.Variable("ext", cel.MapType(cel.StringType, cel.DynType)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(MaxExpression),
		cel.ParserRecursionLimit(maxDepth),
		cel.ExpressionNodeLimit(maxNodes),
		cel.ExpressionNestingDepthLimit(maxDepth),
		cel.RegexProgramSizeLimit(maxRegexp),
		cel.ASTValidators(
			cel.ValidateComprehensionNestingLimit(maxNested),
			cel.ValidateRegexLiterals(),
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
		),
	)
})

// program is a compiled expression.
type program struct {
	cel.Program
	path []string // not nil: the expression only selects members of data
}

// compile compiles an expression that stands at the column offset (from 0) of
// its text. It may yield one of the types, or what is only known when it runs.
func compile(expr string, offset int, wanted ...*cel.Type) (*program, error) {
	switch {
	case strings.TrimSpace(expr) == "":
		return nil, invalid(1, offset+1, "the expression is empty")
	case len(expr) > MaxExpression:
		return nil, invalid(1, offset+1, fmt.Sprintf("the expression has more than %d bytes", MaxExpression))
	case !utf8.ValidString(expr):
		return nil, invalid(1, offset+1, "the expression is not valid UTF-8")
	}
	env, err := environment()
	if err != nil {
		return nil, headgate.NewError(headgate.CodeInternal, "The expression language could not be set up: %v", err)
	}
	ast, issues := env.Compile(expr)
	if issues.Err() != nil {
		return nil, firstIssue(issues, offset)
	}
	if out := ast.OutputType(); !accepts(wanted, out) {
		return nil, invalid(1, offset+1, "the expression yields "+out.String()+" where "+names(wanted)+" is wanted")
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	if !cheap(env, ast) {
		options = append(options, cel.CostLimit(costLimit))
	}
	compiled, err := env.Program(ast, options...)
	if err != nil {
		return nil, invalid(1, offset+1, reason(err.Error()))
	}
	return &program{compiled, pathOf(ast)}, nil
}

func accepts(wanted []*cel.Type, out *cel.Type) bool {
	if out.IsExactType(cel.DynType) {
		return true
	}
	for _, w := range wanted {
		if out.IsExactType(w) {
			return true
		}
	}
	return false
}

func names(wanted []*cel.Type) string {
	var s []string
	for _, w := range wanted {
		s = append(s, w.String())
	}
	return strings.Join(s, " or ")
}

// firstIssue returns the first fault in the order of the text.
func firstIssue(issues *cel.Issues, offset int) error {
	line, column, message := 1, 1, issues.Err().Error()
	for i, e := range issues.Errors() {
		l, c := max(e.Location.Line(), 1), max(e.Location.Column(), 0)+1
		if i == 0 || l < line || l == line && c < column {
			line, column, message = l, c, e.Message
		}
	}
	if line == 1 {
		column += offset
	}
	return invalid(line, column, reason(message))
}

func invalid(line, column int, message string) error {
	place := "column " + strconv.Itoa(column)
	if line > 1 {
		place = "line " + strconv.Itoa(line) + ", " + place
	}
	return &headgate.Error{
		Code:   headgate.CodeInvalidArgument,
		Detail: place + ": " + message + ".",
		Where:  &headgate.Place{Line: line, Column: column},
		Fix:    "Correct the expression at the column that is named; see docs/conditions.md.",
	}
}

// failed turns an evaluation's error into ours.
func (s *Scope) failed(err error) error {
	if s.dataErr != nil {
		return s.dataErr
	}
	return &headgate.Error{Code: headgate.CodeInvalidArgument, Detail: "The expression cannot be evaluated: " + reason(err.Error()) + "."}
}

// reason makes a message of the library fit to be shown: one line, clipped,
// and without its notions of containers.
func reason(s string) string {
	s = strings.ReplaceAll(s, " (in container '')", "")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxReason {
		cut := maxReason
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strings.TrimRight(s, " .")
}
