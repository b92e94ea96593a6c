package router

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/store"
)

// origin is where a subscription starts, as its specification says.
type origin struct {
	kind   string // now, beginning, time, position
	at     time.Time
	stream string
	pos    headgate.Position
}

// parseFrom reads the from of a specification.
func parseFrom(s string) (origin, bool) {
	switch s {
	case "", "now":
		return origin{kind: "now"}, true
	case "beginning":
		return origin{kind: "beginning"}, true
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return origin{kind: "time", at: t}, true
	}
	i := strings.LastIndexByte(s, '/')
	if i < 1 {
		return origin{}, false
	}
	part, off, ok := strings.Cut(s[i+1:], ":")
	p, err1 := strconv.ParseUint(part, 10, 32)
	o, err2 := strconv.ParseUint(off, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return origin{}, false
	}
	return origin{kind: "position", stream: s[:i], pos: headgate.Position{Partition: uint32(p), Offset: o}}, true
}

// startRows returns the first progress of a subscription in a stream.
func (r *Router) startRows(ctx context.Context, name, stream string, from origin) ([]store.Progress, error) {
	stats, err := r.broker.Stat(ctx, stream)
	if err != nil {
		return nil, err
	}
	if from.kind == "position" && from.stream == stream && !slices.ContainsFunc(stats, func(st broker.PartitionStat) bool { return st.Partition == from.pos.Partition }) {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "from: stream %s has no partition %d; it has %d", stream, from.pos.Partition, len(stats))
	}
	rows := make([]store.Progress, 0, len(stats))
	for _, st := range stats {
		start := st.Next
		switch {
		case from.kind == "beginning":
			start = st.First
		case from.kind == "time":
			if start, err = firstAt(ctx, r.broker, stream, st, from.at); err != nil {
				return nil, err
			}
		case from.kind == "position" && from.stream == stream && from.pos.Partition == st.Partition:
			if from.pos.Offset > st.Next {
				return nil, headgate.NewError(headgate.CodeInvalidArgument,
					"from: %s/%s lies beyond the end of the partition, %d", stream, from.pos, st.Next)
			}
			start = max(from.pos.Offset, st.First)
		}
		rows = append(rows, store.Progress{Subscription: name, Stream: stream, Partition: st.Partition, Start: start, Floor: start})
	}
	return rows, nil
}

// firstAt returns the offset of the first event of a partition that was stored
// at or after a time; the end of the partition when there is none. Times rise
// with offsets, as far as the host's clock does.
func firstAt(ctx context.Context, b broker.Broker, stream string, st broker.PartitionStat, at time.Time) (uint64, error) {
	lo, hi := st.First, st.Next
	for lo < hi {
		mid := lo + (hi-lo)/2
		got, err := b.Browse(ctx, stream, headgate.Position{Partition: st.Partition, Offset: mid}, 1)
		if err != nil {
			return 0, err
		}
		if len(got) == 0 {
			hi = mid
			continue
		}
		if got[0].Time.Before(at) {
			lo = max(mid, got[0].Position.Offset) + 1
		} else {
			hi = mid
		}
	}
	return min(lo, st.Next), nil
}
