package contract

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
)

// Lint compiles a schema and returns all that there is to say about it: the
// warnings of [Compile], and beyond them advice on what senders and other tools
// will meet, which most contracts can live with. The error is that of Compile.
// A nil opts means the defaults.
func Lint(schema []byte, opts *CompileOpts) ([]Warning, error) {
	c, warnings, err := Compile("lint", 0, schema, opts)
	if err != nil {
		return warnings, err
	}
	l := &lint{doc: parseSchema(schema, &reasons{})}
	if c.prog != nil {
		l.unbounded(c.prog)
		l.clients(c.prog)
	}
	l.strict(c)
	return boundWarnings(append(warnings, l.warn...)), nil
}

// unbounded advises on strings and arrays that may have any size.
func (l *lint) unbounded(p *program) {
	for _, n := range p.nodes {
		if n.always != 0 || n.konst != nil || n.enum != nil {
			continue
		}
		if n.types&typeString != 0 && n.format == nil && (n.strings == nil || n.strings.maxLength < 0 && n.strings.pattern == nil) {
			l.warning(AdviceUnbounded, n.at, "the string may have any length: set maxLength")
		}
		if n.types&typeArray != 0 && (n.array == nil || n.array.maxItems < 0) {
			l.warning(AdviceUnbounded, n.at, "the array may have any number of items: set maxItems")
		}
	}
}

// twins are patterns for formats, for clients that do not know formats.
var twins = map[string]string{
	"uuid": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
	"date": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
}

// clients advises on what clients of the registry in JavaScript stumble over:
// they refuse schemas with formats unless ajv-formats is given to them, and
// keywords that they do not know.
func (l *lint) clients(p *program) {
	formats := map[string]string{}
	for _, n := range p.nodes {
		if n.format != nil {
			if at, ok := formats[n.format.name]; !ok || n.at < at {
				formats[n.format.name] = n.at
			}
		}
		if len(n.aliases) > 0 || n.sensitive {
			l.warning(AdviceClients, n.at, "validators in strict mode, as the registry clients for JavaScript have it, refuse keywords that they do not know: tell them of x-headgate-…")
		}
	}
	for _, name := range sortedKeys(formats) {
		twin := ""
		if pattern, ok := twins[name]; ok {
			twin = fmt.Sprintf(", or use the pattern %s", pattern)
		}
		l.warning(AdviceClients, formats[name]+"/format", "registry clients for JavaScript refuse the format %s unless they are given ajv-formats%s", name, twin)
	}
}

// strict advises on what keeps a contract out of constrained output.
func (l *lint) strict(c *Contract) {
	x, err := c.Strict(nil)
	if err != nil {
		l.warning(AdviceStrict, "", "the contract cannot be exported for constrained output: %s", headgate.AsError(err).Detail)
		return
	}
	for _, loss := range x.Losses {
		what := "the export for constrained output allows less than the contract"
		if loss.Effect == StrictLoosened {
			what = "the export for constrained output allows more than the contract"
		}
		at := loss.At
		if loss.Keyword != "" && c.prog != nil { // of Avro it is none of the schema's own
			at += "/" + escapeToken(loss.Keyword)
		}
		l.warning(AdviceStrict, at, "%s: %s", what, loss.Detail)
	}
	for _, over := range x.Exceeds {
		l.warning(AdviceStrict, "", "the export for constrained output is too large: %s", over)
	}
}

// IsAdvice reports whether a warning is advice, which Lint alone gives.
func (w Warning) IsAdvice() bool {
	return slices.Contains([]string{AdviceUnbounded, AdviceClients, AdviceStrict}, w.Code)
}
