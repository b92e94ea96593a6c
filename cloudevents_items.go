package headgate

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/headgate/headgate/internal/jsontext"
)

// Item is one event of several, or the reason why it could not be read.
type Item struct {
	Index int // from 0, counting what was refused as well
	Line  int // where the item begins in the body, from 1
	// Raw are the bytes of the item. Of a line that is too long to be held
	// they are the first 1 KiB.
	Raw []byte
	Decoded
	// Err is why this one item is refused; the others are unaffected.
	Err *Error
}

// Items walks the events of one body, one at a time. It belongs to one
// goroutine. The items share memory with the body.
type Items struct {
	dec   *Decoder
	next  func(*Items) (Item, bool)
	index int
	err   *Error

	// The place of the present item, from 1 (offset from 0).
	offset, line, column int

	// Batch.
	text []byte
	scan jsontext.Scanner

	// Lines.
	rest  []byte // bytes not handed out yet
	taken int    // bytes of the present line, its end included

	// Lines from a reader.
	src     io.Reader
	filled  int64 // bytes read from it
	ended   bool
	readErr error
}

// Next returns the next item, and false at the end or when the rest cannot be
// read, which Err tells.
func (it *Items) Next() (Item, bool) {
	if it.err != nil {
		return Item{}, false
	}
	item, found := it.next(it)
	if !found {
		return Item{}, false
	}
	if it.index >= it.dec.maxItems() {
		it.err = &Error{Code: CodeTooLarge, Detail: fmt.Sprintf("There are more than %d events.", it.dec.maxItems())}
		return Item{}, false
	}
	item.Index = it.index
	it.index++
	if item.Err != nil {
		item.Event, item.Ignored = nil, nil
		it.shift(item.Err.Where)
	}
	return item, true
}

// Err returns why Next stopped early: the text around the items is not
// well-formed (syntax), there are too many items (too_large), or the reader
// failed (its error, if that is an *Error, else unavailable with it as the
// cause). Items handed out before are good, but whoever needs all or nothing
// must not use them.
func (it *Items) Err() error {
	if it.err == nil {
		return nil
	}
	return it.err
}

// shift turns a place within the present item into one within the body.
func (it *Items) shift(p *Place) {
	if p == nil {
		return
	}
	p.Offset += it.offset
	if p.Line == 1 {
		p.Column += it.column - 1
	}
	p.Line += it.line - 1
}

// advance moves the present place over b.
func (it *Items) advance(b []byte) {
	it.offset += len(b)
	n := bytes.Count(b, []byte{'\n'})
	if n == 0 {
		it.column += len(b)
		return
	}
	it.line += n
	it.column = len(b) - bytes.LastIndexByte(b, '\n')
}

// Batch walks the events of the batched mode: a JSON array of structured
// events. A fault of the array's grammar ends the walk, wherever it stands:
// the whole body is one JSON text.
func (d *Decoder) Batch(body []byte) *Items {
	it := &Items{dec: d, next: (*Items).nextOfBatch, line: 1, column: 1, text: body}
	if len(body) > 1<<31-1 {
		it.err = &Error{Code: CodeTooLarge, Detail: "The batch has more than 2 GiB."}
		return it
	}
	it.scan = jsontext.NewScanner(body, envelopeLimits(2))
	t, f := it.scan.Next()
	switch {
	case f != nil:
		it.err = syntaxError(f)
	case t.Kind != jsontext.BeginArray:
		it.err = (&Error{Code: CodeSyntax, Detail: "A batch must be a JSON array, not " + t.Kind.String() + "."}).at(body, t.Start)
	}
	return it
}

func (it *Items) nextOfBatch() (Item, bool) {
	t, f := it.scan.Next()
	if f == nil && t.Kind == jsontext.EndArray {
		_, f = it.scan.Next()
		if f == nil {
			return Item{}, false
		}
	}
	if f != nil {
		it.err = syntaxError(f)
		return Item{}, false
	}
	it.advance(it.text[it.offset:t.Start])
	item := Item{Line: it.line}
	r := reading{text: it.text, base: t.Start, trusted: it.dec.Trusted}
	if t.Kind == jsontext.BeginObject {
		f = r.members(&it.scan)
	} else {
		_, f = it.scan.Skip()
	}
	if f != nil {
		it.err = syntaxError(f)
		return Item{}, false
	}
	end, _ := it.scan.Skip()
	item.Raw = it.text[t.Start:end:end]
	switch {
	case t.Kind != jsontext.BeginObject:
		item.Err = notAnObject(t.Kind).at(item.Raw, 0)
	case len(item.Raw) > it.dec.maxEvent():
		item.Err = tooLongEvent(it.dec.maxEvent()).at(item.Raw, 0)
	default:
		item.Decoded, item.Err = r.event()
	}
	return item, true
}

// Lines walks the events of NDJSON: one structured event a line, LF or CRLF;
// the last line needs no end, blank lines are skipped. A line that cannot be
// read is an item with an Err, and the walk goes on behind it.
func (d *Decoder) Lines(body []byte) *Items {
	return &Items{dec: d, next: (*Items).nextLine, line: 1, column: 1, rest: body, ended: true}
}

const (
	chunkSize  = 64 << 10 // bytes asked of a reader at once
	keptOfLong = 1 << 10  // bytes kept of a line that is too long
)

// ReadLines is [Decoder.Lines] over a reader: lines are handed out as they
// arrive, and memory stays bounded by MaxEvent and 64 KiB, whatever comes. The
// memory of items is never used again, but lines that came together share it:
// copy an event that is to be kept for long. An error of the reader ends the walk,
// and a line that it cut short is not handed out.
func (d *Decoder) ReadLines(src io.Reader) *Items {
	return &Items{dec: d, next: (*Items).nextLine, line: 1, column: 1, src: src}
}

func (it *Items) nextLine() (Item, bool) {
	for {
		if it.taken > 0 {
			it.offset += it.taken
			it.line++
		}
		line, full, found := it.takeLine()
		if !found {
			return Item{}, false
		}
		if !full {
			return Item{Line: it.line, Raw: line, Err: tooLongEvent(it.dec.maxEvent()).at(line, 0)}, true
		}
		it.taken = len(line)
		text := bytes.TrimSuffix(line, []byte{'\n'})
		text = bytes.TrimSuffix(text, []byte{'\r'})
		if len(bytes.TrimLeft(text, " \t")) == 0 {
			continue
		}
		item := Item{Line: it.line, Raw: text[:len(text):len(text)]}
		item.Decoded, item.Err = it.dec.structured(text)
		return item, true
	}
}

// takeLine returns the next line with its end. A line that is too long is
// passed over, and only its beginning returned, with full false.
func (it *Items) takeLine() (line []byte, full, found bool) {
	searched := 0
	for {
		if n := bytes.IndexByte(it.rest[searched:], '\n'); n >= 0 {
			n += searched + 1
			line, it.rest = it.rest[:n:n], it.rest[n:]
			return line, true, true
		}
		searched = len(it.rest)
		switch {
		case it.ended && it.readErr != nil:
			it.err = readError(it.readErr)
			return nil, false, false
		case it.ended:
			line, it.rest = it.rest, nil
			return line, true, len(line) > 0
		case searched > it.dec.maxEvent()+1:
			return it.passLong()
		}
		it.fill()
	}
}

// fill reads once, behind the bytes not handed out yet.
func (it *Items) fill() {
	want := chunkSize
	if left := it.dec.Expect - it.filled; left > 0 && left < chunkSize {
		want = int(left)
	}
	if cap(it.rest)-len(it.rest) < min(want, chunkSize/4) {
		grown := make([]byte, len(it.rest), 2*len(it.rest)+want)
		copy(grown, it.rest)
		it.rest = grown
	}
	const patience = 100 // reads without bytes or error, as in package bufio
	for range patience {
		n, err := it.src.Read(it.rest[len(it.rest):cap(it.rest)])
		it.rest = it.rest[:len(it.rest)+n]
		it.filled += int64(n)
		if err != nil {
			it.ended = true
			if !errors.Is(err, io.EOF) {
				it.readErr = err
			}
		}
		if n > 0 || err != nil {
			return
		}
	}
	it.ended, it.readErr = true, io.ErrNoProgress
}

// passLong reads on to the end of the present line without keeping it.
func (it *Items) passLong() (line []byte, full, found bool) {
	line = bytes.Clone(it.rest[:min(keptOfLong, len(it.rest))])
	passed := 0
	buf := make([]byte, 0, chunkSize)
	for {
		if n := bytes.IndexByte(it.rest, '\n'); n >= 0 {
			it.rest = it.rest[n+1:]
			passed += n + 1
			break
		}
		passed += len(it.rest)
		it.rest = buf
		if it.ended {
			break
		}
		it.fill()
	}
	it.taken = passed
	return line, false, true
}

func readError(err error) *Error {
	if e := AsError(err); e != nil {
		return e
	}
	return &Error{Code: CodeUnavailable, Detail: "The body could not be read to its end.", Err: err}
}
