package headgate

import (
	"fmt"
	"strconv"
	"strings"
)

// Position is where an admitted event stands in its stream. Offsets count the
// events of one partition from 0 without gaps, and compare only within it.
type Position struct {
	Partition uint32
	Offset    uint64
}

// String returns "partition:offset", the form that [ParsePosition] reads.
func (p Position) String() string {
	return strconv.FormatUint(uint64(p.Partition), 10) + ":" + strconv.FormatUint(p.Offset, 10)
}

// ParsePosition reads the form that [Position.String] writes.
func ParsePosition(s string) (Position, error) {
	part, off, ok := strings.Cut(s, ":")
	if ok {
		p, err1 := strconv.ParseUint(part, 10, 32)
		o, err2 := strconv.ParseUint(off, 10, 64)
		if err1 == nil && err2 == nil {
			return Position{Partition: uint32(p), Offset: o}, nil
		}
	}
	return Position{}, fmt.Errorf("position %q: want PARTITION:OFFSET", s)
}
