package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// cursor holds the next offset to read, per stream and partition. Its text
// form is "STREAM=P:O,P:O;STREAM=…", in order.
type cursor map[string]map[uint32]uint64

// maxCursor bounds the text of a cursor.
const maxCursor = 16 << 10

func parseCursor(s string) (cursor, error) {
	c := cursor{}
	if s == "" {
		return c, nil
	}
	if len(s) > maxCursor {
		return nil, fmt.Errorf("cursor is longer than %d bytes", maxCursor)
	}
	for part := range strings.SplitSeq(s, ";") {
		stream, positions, ok := strings.Cut(part, "=")
		if !ok || stream == "" || c[stream] != nil {
			return nil, fmt.Errorf("cursor: want STREAM=P:O,…")
		}
		c[stream] = map[uint32]uint64{}
		for text := range strings.SplitSeq(positions, ",") {
			p, err := headgate.ParsePosition(text)
			if err != nil {
				return nil, err
			}
			c[stream][p.Partition] = p.Offset
		}
	}
	return c, nil
}

// append writes the text form.
func (c cursor) append(b []byte) []byte {
	for i, stream := range slices.Sorted(maps.Keys(c)) {
		if i > 0 {
			b = append(b, ';')
		}
		b = append(append(b, stream...), '=')
		for j, p := range slices.Sorted(maps.Keys(c[stream])) {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(p), 10)
			b = append(b, ':')
			b = strconv.AppendUint(b, c[stream][p], 10)
		}
	}
	return b
}
