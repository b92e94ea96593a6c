package jsontext

import (
	"bytes"
	"math"
)

// Check walks the whole text and also refuses duplicate names, however they
// are spelt. It is linear in the length of the text. Nil means valid.
func Check(text []byte, lim Limits) *Fault {
	if len(text) > math.MaxInt32 {
		return &Fault{Code: CodeSyntax, Line: 1, Column: 1, First: -1, Detail: "The text is longer than 2 GiB."}
	}
	if f, fits := checkSmall(text, lim); fits {
		return f
	}
	return checkLarge(text, lim)
}

// DuplicateFault describes the Name token t of the text as a duplicate.
func DuplicateFault(text []byte, lim Limits, t Token) *Fault { return duplicateFault(text, lim, t) }

// checkSmall checks a text whose open objects never have more than a few names
// together, as most events do; fits is false for any other. It exists so that
// those pay for little memory: clearing the tables of checkLarge would cost
// half as much again as the check itself.
func checkSmall(text []byte, lim Limits) (f *Fault, fits bool) {
	s := NewScanner(text, lim)
	n := fewNames{text: text, base: -1}
	for {
		t, f := s.Next()
		if f != nil {
			return f, true
		}
		fresh, fits := true, true
		switch t.Kind {
		case EOF:
			return nil, true
		case BeginObject:
			fits = n.open()
		case EndObject:
			n.close()
		case Name:
			fresh, fits = n.add(t)
		}
		if !fits {
			return nil, false
		}
		if !fresh {
			return duplicateFault(text, lim, t), true
		}
	}
}

// checkLarge checks any text.
func checkLarge(text []byte, lim Limits) *Fault {
	s := NewScanner(text, lim)
	n := manyNames{text: text, base: -1}
	for {
		t, f := s.Next()
		if f != nil {
			return f
		}
		switch t.Kind {
		case EOF:
			return nil
		case BeginObject:
			n.open()
		case EndObject:
			n.close()
		case Name:
			if !n.add(t) {
				return duplicateFault(text, lim, t)
			}
		}
	}
}

// nameRef is the content of one name: a part of the text, or of the buffer
// when the name was written with escapes. The first entry of each object is a
// marker whose start is the base of the object around it.
type nameRef struct {
	start, end int32
	slot       int32 // in the hash table, from 1; 0 if it is not there
	buffered   bool
}

// refOf returns the reference of a Name token, unescaping into buf if needed.
func refOf(text []byte, buf *[]byte, t Token) nameRef {
	if !t.Escaped {
		return nameRef{start: int32(t.Start + 1), end: int32(t.End - 1)}
	}
	before := len(*buf)
	*buf = Unquote(*buf, text[t.Start:t.End])
	return nameRef{start: int32(before), end: int32(len(*buf)), buffered: true}
}

// fewNames holds the names of all open objects, innermost last, as long as
// they are few enough to be compared one by one.
type fewNames struct {
	text  []byte
	buf   []byte // unescaped names
	base  int    // index of the innermost object's marker, or -1
	count int
	refs  [24]nameRef
}

func (n *fewNames) open() (fits bool) {
	if n.count == len(n.refs) {
		return false
	}
	n.refs[n.count] = nameRef{start: int32(n.base)}
	n.base = n.count
	n.count++
	return true
}

func (n *fewNames) close() {
	n.count = n.base
	n.base = int(n.refs[n.base].start)
}

func (n *fewNames) content(r *nameRef) []byte {
	if r.buffered {
		return n.buf[r.start:r.end]
	}
	return n.text[r.start:r.end]
}

// add adds the name to the innermost object; fresh is false if it was there.
func (n *fewNames) add(t Token) (fresh, fits bool) {
	if n.count == len(n.refs) {
		return true, false
	}
	ref := refOf(n.text, &n.buf, t)
	name := n.content(&ref)
	for i := n.base + 1; i < n.count; i++ {
		m := &n.refs[i]
		if m.end-m.start == ref.end-ref.start && bytes.Equal(n.content(m), name) {
			return false, true
		}
	}
	n.refs[n.count] = ref
	n.count++
	return true, true
}
