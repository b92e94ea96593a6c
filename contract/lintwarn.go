package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/headgate/headgate/internal/jsontext"
)

// span is a range of drafts.
type span struct{ from, to int }

// keywords lists the keywords of all drafts with the drafts that read them.
// Zero means without a bound.
var keywords = map[string]span{
	"$schema": {}, "$ref": {}, "title": {}, "description": {}, "default": {},
	"id": {to: 4}, "$id": {from: 6}, "$comment": {from: 7}, "examples": {from: 6}, "readOnly": {from: 7}, "writeOnly": {from: 7},
	"$anchor": {from: 2019}, "$defs": {}, "definitions": {}, "$vocabulary": {from: 2019}, "deprecated": {from: 2019},
	"$recursiveRef": {from: 2019, to: 2019}, "$recursiveAnchor": {from: 2019, to: 2019},
	"$dynamicRef": {from: 2020}, "$dynamicAnchor": {from: 2020},
	"type": {}, "enum": {}, "const": {from: 6}, "format": {},
	"multipleOf": {}, "maximum": {}, "minimum": {}, "exclusiveMaximum": {}, "exclusiveMinimum": {},
	"maxLength": {}, "minLength": {}, "pattern": {},
	"items": {}, "additionalItems": {to: 2019}, "prefixItems": {from: 2020}, "unevaluatedItems": {from: 2019},
	"maxItems": {}, "minItems": {}, "uniqueItems": {}, "contains": {from: 6}, "maxContains": {from: 2019}, "minContains": {from: 2019},
	"maxProperties": {}, "minProperties": {}, "required": {}, "properties": {}, "patternProperties": {}, "additionalProperties": {},
	"propertyNames": {from: 6}, "unevaluatedProperties": {from: 2019},
	"dependencies": {}, "dependentRequired": {from: 2019}, "dependentSchemas": {from: 2019},
	"if": {from: 7}, "then": {from: 7}, "else": {from: 7}, "allOf": {}, "anyOf": {}, "oneOf": {}, "not": {},
	"contentEncoding": {from: 7}, "contentMediaType": {from: 7}, "contentSchema": {from: 2019},
}

func (s span) has(draft int) bool {
	return (s.from == 0 || draft >= s.from) && (s.to == 0 || draft <= s.to)
}

func (l *lint) warning(code, at, format string, args ...any) {
	l.warn = append(l.warn, Warning{Code: code, At: at, Detail: fmt.Sprintf(format, args...)})
}

// weaknesses warns of what is valid and likely not meant.
func (l *lint) weaknesses(p place) {
	l.unknownKeywords(p)
	if s, ok := p.obj["pattern"].(string); ok {
		l.patternEngines(p.ptr+"/pattern", s)
	}
	if m, ok := p.obj["patternProperties"].(map[string]any); ok {
		for _, src := range sortedKeys(m) {
			l.patternEngines(p.ptr+"/patternProperties/"+escapeToken(src), src)
		}
	}
	if props, ok := p.obj["properties"].(map[string]any); ok {
		for _, name := range sortedKeys(props) {
			if combining(name) {
				l.warning(WarnNotNormal, p.ptr+"/properties/"+escapeToken(name),
					"the name %s holds combining marks: names are compared by code points, so that a sender's composed form is another name; write it in NFC", clipQuote(name))
			}
		}
	}
	l.precision(p)
	l.unreachable(p)
}

// unknownKeywords warns of names that no draft, or not this one, reads. Names
// that start with "x-" are for others.
func (l *lint) unknownKeywords(p place) {
	for _, name := range sortedKeys(p.obj) {
		if strings.HasPrefix(name, "x-") {
			continue
		}
		at := p.ptr + "/" + escapeToken(name)
		s, known := keywords[name]
		switch {
		case known && s.has(p.draft):
		case known:
			l.warning(WarnUnknownKeyword, at, "%s says nothing in %s", clipQuote(name), draftName(p.draft))
		default:
			advice := ""
			if near := nearest(name, sortedKeys(keywords)); len(near) > 0 {
				advice = "; did you mean " + near[0] + "?"
			}
			l.warning(WarnUnknownKeyword, at, "%s is no keyword and says nothing%s", clipQuote(name), advice)
		}
	}
}

func draftName(draft int) string {
	if draft < 2019 {
		return "draft-0" + strconv.Itoa(draft)
	}
	return map[int]string{2019: "2019-09", 2020: "2020-12"}[draft]
}

// foreign are constructs of RE2 that ECMA-262, which other validators use, does
// not have or reads differently.
var foreign = [...]struct{ mark, what string }{
	{"(?i", "the flag group (?i…)"},
	{"(?s", "the flag group (?s…)"},
	{"(?m", "the flag group (?m…)"},
	{"(?U", "the flag group (?U…)"},
	{"(?P<", "a named group (?P<…>)"},
	{`\A`, `\A`},
	{`\z`, `\z`},
	{`\Q`, `\Q…\E`},
	{"[[:", "a class such as [[:alpha:]]"},
	{`\C`, `\C`},
	{`\x{`, `\x{…}`},
	{`\pL`, `\pL`},
	{`\pN`, `\pN`},
}

func (l *lint) patternEngines(ptr, src string) {
	for _, f := range foreign {
		if hasConstruct(src, f.mark) {
			l.warning(WarnPatternEngines, ptr, "the pattern uses %s, which validators in JavaScript do not have", f.what)
			return
		}
	}
	if hasConstruct(strings.ReplaceAll(strings.ReplaceAll(src, `[\s\S]`, ""), `[^\s\S]`, ""), `\s`) {
		l.warning(WarnPatternEngines, ptr, `\s is ASCII white space here, and more than that for validators in JavaScript: list the characters`)
	}
}

// combining reports whether a name holds combining marks behind letters that
// have composed forms.
func combining(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool { return r >= 0x300 && r <= 0x36F && unicode.Is(unicode.Mn, r) }) > 0
}

// precision warns of numbers that readers with doubles take for others.
func (l *lint) precision(p place) {
	for _, kw := range []string{"const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"} {
		list, isList := p.obj[kw].([]any)
		if !isList {
			list = []any{p.obj[kw]}
		}
		for _, v := range list {
			n, ok := v.(json.Number)
			if !ok {
				continue
			}
			if canon := string(appendCanonicalNumber(nil, []byte(n))); strings.ContainsRune(canon, 'e') && !isDouble(n) {
				l.warning(WarnPrecision, p.ptr+"/"+kw, "%s is compared exactly here; readers with double precision take it for another number", clip(string(n), 40))
				break
			}
		}
	}
}

// isDouble reports whether a double has exactly this value.
func isDouble(n json.Number) bool {
	f, err := strconv.ParseFloat(string(n), 64)
	return err == nil && string(parseDecimal([]byte(ecmaNumber(f))).appendKey(nil)) == string(parseDecimal([]byte(n)).appendKey(nil))
}

// unreachable warns of alternatives and bounds that no value meets.
func (l *lint) unreachable(p place) {
	for _, kw := range []string{"anyOf", "oneOf"} {
		list, _ := p.obj[kw].([]any)
		seen := map[string]int{}
		for i, b := range list {
			at := fmt.Sprintf("%s/%s/%d", p.ptr, kw, i)
			if b == false {
				l.warning(WarnUnreachable, at, "no value matches this alternative")
				continue
			}
			text := string(appendCanonical(nil, b))
			first, twice := seen[text]
			switch {
			case twice && kw == "oneOf":
				l.warning(WarnUnreachable, at, "this alternative equals that at index %d, so that a value which matches one matches both and is refused", first)
			case twice:
				l.warning(WarnUnreachable, at, "this alternative equals that at index %d", first)
			default:
				seen[text] = i
			}
		}
	}
	for _, b := range [][2]string{{"minLength", "maxLength"}, {"minItems", "maxItems"}, {"minProperties", "maxProperties"}, {"minContains", "maxContains"}, {"minimum", "maximum"}} {
		least, ok1 := p.obj[b[0]].(json.Number)
		most, ok2 := p.obj[b[1]].(json.Number)
		if ok1 && ok2 && ratOf([]byte(least)).Cmp(ratOf([]byte(most))) > 0 {
			l.warning(WarnUnreachable, p.ptr+"/"+b[0], "%s is greater than %s, so that nothing is valid here", b[0], b[1])
		}
	}
}

// checkLiterals warns of fixed values and defaults that their own schema
// refuses.
func (p *program) checkLiterals(l *lint) {
	byPtr := map[string]*node{}
	for _, n := range p.nodes {
		byPtr[n.at] = n
	}
	work := literalWork
	passes := func(n *node, v any) bool {
		text, err := json.Marshal(v)
		if err != nil || work <= len(text) {
			return true
		}
		t, fault := readTape(text, jsontext.Limits{Depth: maxDepth, NumberLength: maxNumberLength, Exponent: maxExponent}, nil)
		if fault != nil {
			return true
		}
		e := newEvaluator(p, &t)
		e.limit = work
		ok := e.eval(n, 0, nil, nil) || e.over()
		work -= e.work + len(text)
		return ok
	}
	for _, pl := range l.places {
		n := byPtr[pl.ptr]
		if n == nil {
			continue
		}
		if v, ok := pl.obj["default"]; ok && !passes(n, v) {
			l.warning(WarnBadDefault, pl.ptr+"/default", "the schema refuses its own default, so that it is never proposed for a missing property")
		}
		list, _ := literals(pl.obj)
		if refused := slices.IndexFunc(list, func(v any) bool { return !passes(n, v) }); refused >= 0 {
			kw := "enum"
			if _, ok := pl.obj["const"]; ok {
				kw = "const"
			}
			l.warning(WarnUnreachable, pl.ptr+"/"+kw, "the value at index %d is never valid: other keywords refuse it", refused)
		}
	}
}

// literalWork bounds the work of checking the fixed values of one contract;
// what is left over then is not checked.
const literalWork = 1 << 19
