package gateway

import (
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
	"github.com/headgate/headgate/perimeter"
)

// itemOf takes over what a decoder read from among several.
func itemOf(it headgate.Item) perimeter.Item {
	return perimeter.Item{Event: it.Event, Raw: it.Raw, Ignored: it.Ignored, Err: it.Err}
}

// decoded takes over what a decoder read alone.
func decoded(raw []byte, d headgate.Decoded, err error) perimeter.Item {
	if err != nil {
		return perimeter.Item{Raw: raw, Err: publicError(err)}
	}
	return perimeter.Item{Event: d.Event, Raw: raw, Ignored: d.Ignored}
}

func (g *Gateway) decodeStructured(body []byte) perimeter.Item {
	dec := headgate.Decoder{MaxEvent: int(g.lim.Body)}
	d, err := dec.Structured(body)
	return decoded(body, d, err)
}

func (g *Gateway) decodeBinary(h http.Header, body []byte) perimeter.Item {
	dec := headgate.Decoder{MaxEvent: int(g.lim.Body)}
	d, err := dec.Binary(h, body)
	return decoded(body, d, err)
}

// decodeBatch reads a JSON array of events: all of its items, or none.
func (g *Gateway) decodeBatch(body []byte) ([]perimeter.Item, *headgate.Error) {
	dec := headgate.Decoder{MaxEvent: int(g.lim.Body), MaxItems: g.lim.BatchEvents}
	var items []perimeter.Item
	walk := dec.Batch(body)
	for it, ok := walk.Next(); ok; it, ok = walk.Next() {
		items = append(items, itemOf(it))
	}
	if err := walk.Err(); err != nil {
		return nil, publicError(err)
	}
	return items, nil
}

// decodeEmit reads an event that a consumer emits with a settlement. Unlike a
// published event it may leave out specversion, which a function that returns
// "what to emit" has no reason to know.
func (g *Gateway) decodeEmit(raw []byte) perimeter.Item {
	dec := headgate.Decoder{MaxEvent: int(g.lim.Body)}
	d, err := dec.Structured(withSpecVersion(raw))
	return decoded(raw, d, err)
}

// withSpecVersion adds the specversion to an event object that has none.
func withSpecVersion(raw []byte) []byte {
	s := jsontext.NewScanner(raw, jsontext.Limits{Depth: jsontext.DefaultDepth + 1})
	t, f := s.Next()
	if f != nil || t.Kind != jsontext.BeginObject {
		return raw
	}
	open := t.End
	for first := true; ; first = false {
		name, f := s.Next()
		switch {
		case f != nil:
			return raw
		case name.Kind == jsontext.EndObject:
			out := append([]byte(nil), raw[:open]...)
			out = append(out, `"specversion":"`+headgate.SpecVersion+`"`...)
			if !first {
				out = append(out, ',')
			}
			return append(out, raw[open:]...)
		case string(jsontext.Unquote(nil, raw[name.Start:name.End])) == "specversion":
			return raw
		}
		if value, f := s.Next(); f != nil {
			return raw
		} else if value.Kind == jsontext.BeginObject || value.Kind == jsontext.BeginArray {
			if _, f := s.Skip(); f != nil {
				return raw
			}
		}
	}
}
