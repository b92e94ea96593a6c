package contract

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxPatternProgram bounds the instructions of one compiled pattern. Matching
// takes at worst that many steps a byte.
const maxPatternProgram = 1000

// pattern is a compiled regular expression with the cost of using it.
type pattern struct {
	*regexp.Regexp
	steps int // instructions of the program
	width int // of them, those that one character may make it look at
	row   *bytePattern
	auto  *automaton // of this pattern alone, where row is not enough
}

// Match reports whether the text matches.
func (p *pattern) Match(text []byte) bool { return p.row.match(text) }

// compilePattern compiles a regular expression of a schema. The error names
// the construct that is not supported and says what to write in its place.
func compilePattern(src string) (*pattern, error) {
	re, prog, err := parsePattern(src)
	if err != nil {
		return nil, err
	}
	return newPattern(re, len(prog.Inst), patternWidth(prog)), nil
}

func newPattern(re *regexp.Regexp, steps, width int) *pattern {
	p := &pattern{Regexp: re, steps: steps, width: width}
	p.row = newBytePattern(p)
	return p
}

// parsePattern is compilePattern without what matching alone needs.
func parsePattern(src string) (*regexp.Regexp, *syntax.Prog, error) {
	parsed, err := syntax.Parse(src, syntax.Perl)
	if err != nil {
		return nil, nil, explainPattern(src, err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, nil, explainPattern(src, err)
	}
	if len(prog.Inst) > maxPatternProgram {
		return nil, nil, fmt.Errorf("the pattern compiles to %d steps, more than %d: use smaller repeat counts, or minLength and maxLength", len(prog.Inst), maxPatternProgram)
	}
	re, err := regexp.Compile(src)
	if err != nil {
		return nil, nil, explainPattern(src, err)
	}
	return re, prog, nil
}

// regexpEngine makes the schema library compile patterns as we do.
func regexpEngine(src string) (jsonschema.Regexp, error) { return compilePattern(src) }

// constructs are what other regular expression dialects have and RE2 lacks, in
// the order in which they are looked for.
var constructs = [...]struct{ mark, name, advice string }{
	{"(?=", "lookahead (?=…)", "match the whole text instead, or split the rule into two patterns under allOf"},
	{"(?!", "negative lookahead (?!…)", `move what is forbidden into {"not":{"pattern":…}}`},
	{"(?<=", "lookbehind (?<=…)", "write the text before it as part of the pattern"},
	{"(?<!", "negative lookbehind (?<!…)", `move what is forbidden into {"not":{"pattern":…}}`},
	{"(?>", "atomic group (?>…)", "use a plain group (?:…): matching is linear in any case"},
	{"(?(", "conditional group (?(…)", "split the rule into several patterns under anyOf"},
	{`\u`, `\u escape`, `write \x{HHHH}`},
	{`\k<`, "back reference by name", "write the repeated part out, or check it in the consumer"},
	{`\c`, `\c control escape`, `write \x{HH}`},
	{`\R`, `\R line break`, `write (?:\r\n|[\n\r])`},
	{`\h`, `\h blank`, `write [ \t]`},
	{`\Z`, `\Z end of text`, `write $`},
	{`\G`, `\G`, "leave it out"},
	{"[^]", "empty negated class [^]", `write [\s\S]`},
	{"[]", "empty class []", `write [^\s\S]`},
}

func explainPattern(src string, err error) error {
	for _, c := range constructs {
		if hasConstruct(src, c.mark) {
			return fmt.Errorf("the pattern uses %s, which RE2 does not have: %s", c.name, c.advice)
		}
	}
	for i := 0; i+1 < len(src); i++ {
		if src[i] == '\\' {
			if src[i+1] >= '1' && src[i+1] <= '9' {
				return fmt.Errorf(`the pattern uses the back reference \%c, which RE2 does not have: write the repeated part out, or check it in the consumer`, src[i+1])
			}
			i++
		}
	}
	var serr *syntax.Error
	if !errors.As(err, &serr) {
		return fmt.Errorf("the pattern does not compile: %s", clip(err.Error(), 120))
	}
	switch serr.Code {
	case syntax.ErrInvalidRepeatSize:
		if n, err := strconv.Atoi(strings.Trim(serr.Expr[strings.LastIndexAny(serr.Expr, "{,")+1:], "}?")); err == nil && n <= 1000 {
			return fmt.Errorf("the pattern repeats %s what has repetitions itself: RE2 allows at most 1000 of the innermost, multiplied; use minLength and maxLength", clipQuote(serr.Expr))
		}
		return fmt.Errorf("the pattern repeats %s: RE2 allows at most 1000; use minLength and maxLength", clipQuote(serr.Expr))
	case syntax.ErrInvalidRepeatOp:
		return fmt.Errorf("the pattern repeats a repetition or uses a possessive quantifier (%s): write a plain quantifier on a group", clipQuote(serr.Expr))
	case syntax.ErrInvalidCharRange:
		return fmt.Errorf("the pattern names the class %s, which RE2 does not have: use a class such as \\pL or \\p{Greek}, or list the characters", clipQuote(serr.Expr))
	}
	return fmt.Errorf("the pattern has the fault %q at %s", serr.Code.String(), clipQuote(serr.Expr))
}

// hasConstruct reports whether mark stands in src outside of an escape.
func hasConstruct(src, mark string) bool {
	for i := 0; i < len(src); i++ {
		if strings.HasPrefix(src[i:], mark) {
			return true
		}
		if src[i] == '\\' {
			i++
		}
	}
	return false
}
