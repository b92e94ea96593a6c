package natsbroker

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/broker"
)

// rebuild fills the dedupe window from the tails of the partitions. Publish
// waits for it; readers do not. Partitions are merged by store time, so that a
// bounded window keeps the latest ids of the stream, not of a partition.
func (s *stream) rebuild() {
	life := s.b.life
	for pause := firstPause; ; pause = min(2*pause, longestWait) {
		err := s.tryRebuild(life)
		if err == nil {
			close(s.rebuilt)
			return
		}
		if life.Err() != nil || errors.Is(err, broker.ErrClosed) {
			return
		}
		s.b.cfg.Logger.Warn("dedupe window cannot be rebuilt yet", "stream", s.name, "error", err)
		if !rest(life, pause) {
			return
		}
	}
}

func (s *stream) tryRebuild(ctx context.Context) error {
	var last time.Time
	for _, p := range s.parts {
		last = latest(last, p.tail.time)
	}
	if last.IsZero() {
		return nil
	}
	// The window ends at the last stored event: a node that was down for an
	// hour still knows what its clients may repeat now.
	cut := last.Add(-s.b.cfg.DedupeWindow)
	var open []*cursor
	defer func() {
		for _, c := range open {
			s.b.release(c.f)
		}
	}()
	for _, p := range s.parts {
		f, err := s.b.fetcher()
		if err != nil {
			return err
		}
		c := &cursor{p: p, f: f}
		open = append(open, c)
		if err := c.seek(ctx, cut, uint64(s.b.cfg.DedupeIDs)); err != nil {
			return err
		}
	}
	for {
		var next *cursor
		for _, c := range open {
			if err := c.fill(ctx); err != nil {
				return err
			}
			if len(c.frames) > 0 && (next == nil || c.frames[0].time.Before(next.frames[0].time)) {
				next = c
			}
		}
		if next == nil {
			return nil
		}
		s.memory.mu.Lock()
		next.p.remember(&next.frames[0])
		s.memory.mu.Unlock()
		next.frames = next.frames[1:]
	}
}

// cursor reads one partition's frames ahead.
type cursor struct {
	p      *partition
	f      *fetcher
	seq    uint64 // of the next frame to fetch
	frames []frame
}

// seek finds the first frame that is young enough and holds one of the last
// ids. Both times and offsets rise within a partition.
func (c *cursor) seek(ctx context.Context, cut time.Time, ids uint64) error {
	p := c.p
	end, _ := p.visible()
	if end == 0 {
		c.seq = 1
		return nil
	}
	st, err := p.state(ctx)
	if err != nil {
		return err
	}
	floor := uint64(0)
	if p.tail.next > ids {
		floor = p.tail.next - ids
	}
	lo, hi := st.FirstSeq, end+1
	for lo < hi {
		mid := lo + (hi-lo)/2
		fr, err := p.frameAt(ctx, c.f, mid)
		switch {
		case errors.Is(err, errNoMessage):
			hi = mid
		case err != nil:
			return err
		case fr.time.Before(cut) || fr.end() <= floor:
			lo = fr.seq + 1
		default:
			hi = mid
		}
	}
	c.seq = lo
	return nil
}

// fill fetches more frames when none is left.
func (c *cursor) fill(ctx context.Context) error {
	end, _ := c.p.visible()
	for len(c.frames) == 0 && c.seq <= end {
		before := c.seq
		err := c.f.batch(ctx, c.p.name, c.seq, fetchFrames, func(m message) bool {
			c.seq = m.seq + 1
			fr, err := parseFrame(m.data)
			if err != nil {
				c.p.b.report(Damage{Stream: c.p.s.name, Partition: c.p.number, Sequence: m.seq, Err: err})
				return true
			}
			fr.seq = m.seq
			// Only the ids are kept: the events would fill the memory.
			fr.ids, fr.events = append([]byte(nil), fr.ids...), nil
			c.frames = append(c.frames, fr)
			return true
		})
		if err != nil {
			return err
		}
		if c.seq == before {
			c.seq = end + 1
		}
	}
	return nil
}
