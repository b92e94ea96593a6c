package gateway

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/perimeter"
)

// partBytes bounds, with admitPart, what of a bulk body is decoded and not yet
// admitted.
const partBytes = 1 << 20

// publishLines admits NDJSON part by part, while the rest still arrives. When
// the body breaks off or goes beyond a bound, what was admitted until then
// stays admitted, and the answer says so.
func (g *Gateway) publishLines(c *Call, tokens []string) error {
	if c.body == nil {
		return headgate.NewError(headgate.CodeSyntax, "The body is empty; one event a line is expected.")
	}
	r, hint, err := c.content()
	if err != nil {
		return err
	}
	if hint > c.body.limit {
		return tooLarge(c.body.limit)
	}
	room := int64(2*g.lim.Line + partBytes)
	if hint >= 0 {
		room = min(room, 2*hint)
	}
	if err := c.reserve(room); err != nil {
		return err
	}
	dec := headgate.Decoder{MaxEvent: g.lim.Line, MaxItems: g.lim.BulkEvents, Expect: hint}
	sink := newSink(g.cfg.SpoolDir)
	defer sink.close()
	stopped := g.admitLines(c, tokens, dec.ReadLines(r), sink)
	switch {
	case sink.count() > 0:
		return c.results(sink, publicOrNil(stopped))
	case stopped != nil:
		return stopped
	}
	return headgate.NewError(headgate.CodeSyntax, "The body holds no event; one a line is expected.")
}

func publicOrNil(err error) *headgate.Error {
	if err == nil {
		return nil
	}
	return publicError(err)
}

// admitLines reads and admits until the end, or the first error that ends the
// request: what was read before it is still admitted.
func (g *Gateway) admitLines(c *Call, tokens []string, lines *headgate.Items, sink *sink) error {
	items, size := make([]perimeter.Item, 0, 64), 0
	for {
		line, more := lines.Next()
		if more {
			items = append(items, itemOf(line))
			size += len(line.Raw)
		}
		if len(items) == admitPart || size >= partBytes || !more && len(items) > 0 {
			if err := g.admitPart(c, tokens, items, sink); err != nil {
				return err
			}
			clear(items) // the events belong to the perimeter now
			items, size = items[:0], 0
		}
		if !more {
			return lines.Err()
		}
	}
}

// admitPart admits what was read, if the caller still may: a body can take
// hours to arrive.
func (g *Gateway) admitPart(c *Call, tokens []string, items []perimeter.Item, sink *sink) error {
	if err := g.authenticate(c); err != nil {
		return err
	}
	ctx, cancel := c.workContext()
	defer cancel()
	return g.admitAll(ctx, c, tokens, items, sink)
}
