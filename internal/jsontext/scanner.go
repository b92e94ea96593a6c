package jsontext

// state says what the grammar allows next.
type state uint8

const (
	wantValue        state = iota // a value, and nothing else
	wantFirstElement              // a value or "]"
	wantFirstName                 // a name or "}"
	wantName                      // a name, after a comma
	wantMore                      // a comma or the end of the container
	wantEnd                       // the end of the text
)

// Scanner walks one text, token by token, without allocating on valid input.
// It checks grammar and limits, but not the uniqueness of names.
type Scanner struct {
	text  []byte
	pos   int
	state state
	last  Kind
	quiet bool // do not locate faults: this scanner is locating one
	depth int
	// objects has one bit for each open container: set for an object.
	objects [MaxDepth / 64]uint64
	lim     Limits
	fault   *Fault
}

// NewScanner returns a scanner over the text.
func NewScanner(text []byte, lim Limits) Scanner {
	return Scanner{text: text, lim: lim.withDefaults()}
}

// Reset makes the scanner walk another text under the same limits.
func (s *Scanner) Reset(text []byte) {
	s.text, s.pos, s.state, s.last, s.depth, s.fault = text, 0, wantValue, EOF, 0, nil
}

// Depth returns how many objects and arrays are open after the last token.
func (s *Scanner) Depth() int { return s.depth }

// Next returns the next token; EOF once the text ended after one value.
func (s *Scanner) Next() (Token, *Fault) {
	if s.fault != nil {
		return Token{}, s.fault
	}
	text := s.text
	i := skipSpace(text, s.pos)
	if s.state == wantMore {
		if i >= len(text) {
			return s.fail(unexpected, i)
		}
		switch c := text[i]; {
		case c == ',':
			i = skipSpace(text, i+1)
			s.state = wantValue
			if s.inObject() {
				s.state = wantName
			}
		case c == '}' && s.inObject():
			return s.close(EndObject, i)
		case c == ']' && !s.inObject():
			return s.close(EndArray, i)
		default:
			return s.fail(unexpected, i)
		}
	}
	if i >= len(text) {
		if s.state == wantEnd {
			s.pos, s.last = i, EOF
			return Token{Kind: EOF, Start: i, End: i}, nil
		}
		return s.fail(unexpected, i)
	}
	s.pos = i
	switch s.state {
	case wantFirstName:
		if text[i] == '}' {
			return s.close(EndObject, i)
		}
		return s.name(i)
	case wantName:
		return s.name(i)
	case wantFirstElement:
		if text[i] == ']' {
			return s.close(EndArray, i)
		}
		s.state = wantValue
		return s.value(i)
	case wantEnd:
		return s.fail(unexpected, i)
	default:
		return s.value(i)
	}
}

// Skip consumes the rest of the value that the last token began, and returns
// the end offset of the value. After a name it consumes the member's value;
// after a scalar or an end token it does nothing.
func (s *Scanner) Skip() (int, *Fault) {
	if s.fault != nil {
		return s.pos, s.fault
	}
	target := s.depth
	switch s.last {
	case BeginObject, BeginArray:
		target--
	case Name:
	default:
		return s.pos, nil
	}
	for {
		t, f := s.Next()
		if f != nil {
			return s.pos, f
		}
		if s.depth == target {
			return t.End, nil
		}
	}
}

func (s *Scanner) value(i int) (Token, *Fault) {
	switch c := s.text[i]; c {
	case '"':
		end, escaped, p := scanString(s.text, i)
		if p != none {
			return s.fail(p, end)
		}
		s.scalar(String, end)
		return Token{Kind: String, Start: i, End: end, Escaped: escaped}, nil
	case '{':
		return s.open(BeginObject, i)
	case '[':
		return s.open(BeginArray, i)
	case 't':
		return s.literal(True, i, "true")
	case 'f':
		return s.literal(False, i, "false")
	case 'n':
		return s.literal(Null, i, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		end, p := scanNumber(s.text, i, &s.lim)
		if p != none {
			return s.fail(p, end)
		}
		s.scalar(Number, end)
		return Token{Kind: Number, Start: i, End: end}, nil
	default:
		return s.fail(unexpected, i)
	}
}

func (s *Scanner) scalar(k Kind, end int) {
	s.pos, s.last = end, k
	s.state = wantMore
	if s.depth == 0 {
		s.state = wantEnd
	}
}

func (s *Scanner) name(i int) (Token, *Fault) {
	if s.text[i] != '"' {
		return s.fail(unexpected, i)
	}
	end, escaped, p := scanString(s.text, i)
	if p != none {
		return s.fail(p, end)
	}
	colon := end
	if colon >= len(s.text) || s.text[colon] != ':' {
		colon = skipSpace(s.text, end)
		if colon >= len(s.text) || s.text[colon] != ':' {
			return s.fail(missingColon, colon)
		}
	}
	s.pos, s.last, s.state = colon+1, Name, wantValue
	return Token{Kind: Name, Start: i, End: end, Escaped: escaped}, nil
}

func (s *Scanner) literal(k Kind, i int, word string) (Token, *Fault) {
	end := i + len(word)
	if end > len(s.text) || string(s.text[i:end]) != word {
		at := i
		for at < len(s.text) && at-i < len(word) && s.text[at] == word[at-i] {
			at++
		}
		return s.fail(badLiteral, at)
	}
	s.scalar(k, end)
	return Token{Kind: k, Start: i, End: end}, nil
}

func (s *Scanner) open(k Kind, i int) (Token, *Fault) {
	if s.depth >= s.lim.Depth {
		return s.fail(tooDeep, i)
	}
	word, bit := s.depth>>6, uint64(1)<<(s.depth&63)
	if k == BeginObject {
		s.objects[word] |= bit
		s.state = wantFirstName
	} else {
		s.objects[word] &^= bit
		s.state = wantFirstElement
	}
	s.depth++
	s.pos, s.last = i+1, k
	return Token{Kind: k, Start: i, End: i + 1}, nil
}

func (s *Scanner) close(k Kind, i int) (Token, *Fault) {
	s.depth--
	s.scalar(k, i+1)
	return Token{Kind: k, Start: i, End: i + 1}, nil
}

func (s *Scanner) inObject() bool {
	top := s.depth - 1
	return s.objects[top>>6&(MaxDepth/64-1)]&(1<<(top&63)) != 0
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && text[i] <= ' ' {
		switch text[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}
