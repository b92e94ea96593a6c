package jsontext

// The defaults of [Limits], and the greatest depth that can be asked for.
const (
	DefaultDepth        = 64
	DefaultNumberLength = 64
	DefaultExponent     = 400
	MaxDepth            = 1024
)

// Limits bound what is accepted. Zero fields mean the defaults.
type Limits struct {
	Depth        int // nesting of objects and arrays; default 64, at most MaxDepth
	NumberLength int // bytes of a number token; default 64
	Exponent     int // absolute value of a number's exponent; default 400
}

func (l Limits) withDefaults() Limits {
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	l.Depth = min(l.Depth, MaxDepth)
	if l.NumberLength <= 0 {
		l.NumberLength = DefaultNumberLength
	}
	if l.Exponent <= 0 {
		l.Exponent = DefaultExponent
	}
	return l
}

// Kind is the kind of a token.
type Kind uint8

// The kinds of token.
const (
	EOF Kind = iota
	BeginObject
	EndObject
	BeginArray
	EndArray
	Name // the name of an object's member; the colon is consumed with it
	String
	Number
	True
	False
	Null
)

// String returns the kind in words, for messages.
func (k Kind) String() string {
	switch k {
	case EOF:
		return "the end of the text"
	case BeginObject:
		return "an object"
	case EndObject:
		return "the end of an object"
	case BeginArray:
		return "an array"
	case EndArray:
		return "the end of an array"
	case Name:
		return "a name"
	case String:
		return "a string"
	case Number:
		return "a number"
	case True, False:
		return "a boolean"
	default:
		return "null"
	}
}

// Token is one token. Start and End delimit its raw bytes in the text, quotes
// included.
type Token struct {
	Kind       Kind
	Start, End int
	Escaped    bool // a Name or String that holds an escape
}
