package contract

// requiredExceptions are the required tests whose answer we do not share.
var requiredExceptions = map[int][]exception{
	4: nil,
	6: nil,
	7: {
		{"format.json", "idn-email format", "", unlistedFormat},
		{"format.json", "idn-hostname format", "", unlistedFormat},
		{"format.json", "iri format", "", unlistedFormat},
		{"format.json", "iri-reference format", "", unlistedFormat},
	},
	2019: {
		{"format.json", "idn-email format", "", unlistedFormat},
		{"format.json", "idn-hostname format", "", unlistedFormat},
		{"format.json", "iri format", "", unlistedFormat},
		{"format.json", "iri-reference format", "", unlistedFormat},
	},
	2020: {
		{"format.json", "idn-email format", "", unlistedFormat},
		{"format.json", "idn-hostname format", "", unlistedFormat},
		{"format.json", "iri format", "", unlistedFormat},
		{"format.json", "iri-reference format", "", unlistedFormat},
	},
}

const unlistedFormat = "a format outside of the closed list is refused at registration"

// rows lists tests of one case that differ for one reason.
func rows(file, group, reason string, tests ...string) []exception {
	var out []exception
	for _, test := range tests {
		out = append(out, exception{file, group, test, reason})
	}
	return out
}

const (
	idnaTables   = "which code points IDNA allows in a decoded label is not checked: that takes its tables"
	hyphens34    = "labels with hyphens in the third and fourth place are refused under every draft, as RFC 5891 reserves them"
	re2Spaces    = `\s is ASCII white space without the vertical tab in RE2`
	re2Control   = `RE2 has no \c escape; the refusal says what to write`
	floatInteger = "1.0 is an integer under every draft, as from draft 6 on"
)

func aLabels() []exception {
	return rows("hostname.json", "validation of A-label (punycode) host names", idnaTables,
		"contains illegal char U+302E Hangul single dot tone mark",
		`contains "--" in the 3rd and 4th position`,
		"ZERO WIDTH JOINER not preceded by anything",
		"ZERO WIDTH JOINER not preceded by Virama",
		"MIDDLE DOT with nothing preceding",
		"MIDDLE DOT with nothing following",
		"MIDDLE DOT with no preceding 'l'",
		"MIDDLE DOT with no following 'l'",
		"KATAKANA MIDDLE DOT with no other characters",
		"KATAKANA MIDDLE DOT with no Hiragana, Katakana, or Han",
		"Hebrew GERSHAYIM not preceded by anything",
		"Hebrew GERSHAYIM not preceded by Hebrew",
		"Hebrew GERESH not preceded by anything",
		"Hebrew GERESH not preceded by Hebrew",
		"Greek KERAIA not followed by anything",
		"Greek KERAIA not followed by Greek",
		"Exceptions that are DISALLOWED, right-to-left chars",
		"Exceptions that are DISALLOWED, left-to-right chars",
		"Begins with an Enclosing Mark",
		"Begins with a Spacing Combining Mark",
		"Begins with a Nonspacing Mark",
		"Arabic-Indic digits mixed with Extended Arabic-Indic digits",
	)
}

// formatExceptions are tests of asserted formats.
var formatExceptions = map[int][]exception{
	4:    rows("hostname.json", "validation of host names", hyphens34, "hostname with consecutive hyphens (RFC1123)"),
	6:    rows("hostname.json", "validation of host names", hyphens34, "hostname with consecutive hyphens (RFC1123)"),
	7:    aLabels(),
	2019: aLabels(),
	2020: aLabels(),
}

func ecmaRegex() []exception {
	const file = "ecmascript-regex.json"
	out := rows(file, `ECMA 262 \s matches whitespace`, re2Spaces,
		"zero-width whitespace matches", "paragraph separator matches (line terminator)",
		"latin-1 non-breaking-space matches", "Line tabulation matches", "EM SPACE matches (Space_Separator)")
	out = append(out, rows(file, `ECMA 262 \S matches everything but whitespace`, re2Spaces,
		"zero-width whitespace does not match", "paragraph separator does not match (line terminator)",
		"latin-1 non-breaking-space does not match", "Line tabulation does not match", "EM SPACE does not match (Space_Separator)")...)
	for _, group := range []string{`ECMA 262 regex escapes control codes with \c and upper letter`, `ECMA 262 regex escapes control codes with \c and lower letter`} {
		out = append(out, rows(file, group, re2Control, "matches", "does not match")...)
	}
	return out
}

// optionalExceptions are other optional tests.
var optionalExceptions = map[int][]exception{
	4: append(ecmaRegex(), rows("zeroTerminatedFloats.json", "some languages do not distinguish between different types of numeric value",
		floatInteger, "a float is not an integer even without fractional part")...),
	6: ecmaRegex(), 7: ecmaRegex(), 2019: ecmaRegex(), 2020: ecmaRegex(),
}
