package natsbroker

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// Pauses between attempts to learn a frame's outcome.
const (
	firstPause  = 20 * time.Millisecond
	longestWait = 2 * time.Second
)

// run is the partition's writer: it gathers whatever waits into one frame,
// stores it, and gathers again. While a frame is under way the next one grows,
// so that a lone event goes at once and a crowd shares.
func (p *partition) run() {
	life := p.b.life
	var w writing
	for {
		select {
		case <-p.queue.work:
		case <-life.Done():
			p.refuseQueue()
			return
		}
		for {
			w.batch.reset()
			p.queue.take(p.b.cfg.FrameEvents, p.b.cfg.FrameBytes, &w.batch)
			for _, c := range w.batch.abandoned {
				p.refuse(c, broker.Throttled(headgate.CodeCanceled, "the caller left before the event was stored"))
			}
			if p.contested {
				// What waited was looked up before the other writer's events
				// were known.
				known := len(w.batch.recs)
				if p.dropKnown(&w.batch); known > 0 && len(w.batch.recs) == 0 {
					continue
				}
			}
			if len(w.batch.recs) == 0 {
				break
			}
			p.store(life, &w)
		}
	}
}

// writing is the writer's working memory, reused from frame to frame.
type writing struct {
	batch batch
	buf   []byte
}

// refuseQueue answers whatever still waits when the driver ends. None of it
// was sent.
func (p *partition) refuseQueue() {
	var b batch
	for {
		b.reset()
		p.queue.take(1<<20, 1<<40, &b)
		if len(b.chunks)+len(b.abandoned) == 0 {
			return
		}
		for _, c := range append(b.chunks, b.abandoned...) {
			p.refuse(c, broker.Throttled(headgate.CodeDraining, "the driver was closed before the event was stored"))
		}
	}
}

// store stores one frame and settles its events. It returns when the outcome
// is known, or when the driver ends.
//
// A frame names the sequence that it expects to follow, so it can be stored
// once at most, however often it is sent: an attempt whose answer was lost is
// simply repeated, and the refusal of the repetition is followed by a look at
// who holds the sequence.
func (p *partition) store(life context.Context, w *writing) {
	h := p.header(&w.batch)
	w.buf = appendFrame(w.buf[:0], h, w.batch.ids, w.batch.recs)
	sent := false // an attempt may have been stored
	for pause := firstPause; ; pause = min(2*pause, longestWait) {
		a := p.send(life, w.buf, p.tail.seq)
		sent = sent || a.mayHaveArrived
		switch {
		case a.stored:
			p.commit(w, h, a.seq)
			return
		case a.wrongSequence:
			done, err := p.resolve(life, w, h, sent)
			if err == nil && done {
				return
			}
			if err == nil {
				// Another writer was first: the frame moved, and no earlier
				// form of it can be stored any more.
				if len(w.batch.recs) == 0 {
					return
				}
				h, sent, pause = p.header(&w.batch), false, firstPause/2
				w.buf = appendFrame(w.buf[:0], h, w.batch.ids, w.batch.recs)
				continue
			}
		case a.refusal != nil && !sent:
			p.refuseBatch(&w.batch, *a.refusal)
			return
		}
		if !sent && w.batch.left() {
			p.refuseBatch(&w.batch, broker.Throttled(headgate.CodeUnavailable, "the NATS server cannot be reached"))
			return
		}
		if !rest(life, pause) {
			p.giveUp(&w.batch, sent)
			return
		}
	}
}

func (p *partition) header(b *batch) header {
	p.tail.time = latest(p.tail.time, p.b.cfg.Now())
	return header{
		base: p.tail.next, count: uint32(len(b.recs)), body: uint32(b.bytes),
		time: p.tail.time, writer: p.b.writer, serial: p.b.serial.Add(1),
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// left reports whether every caller has gone.
func (b *batch) left() bool {
	for _, c := range b.chunks {
		if !c.it.sub.left() {
			return false
		}
	}
	return true
}

// rest waits and reports whether life goes on.
func rest(life context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-life.Done():
		return false
	}
}

// commit settles the events of a stored frame.
func (p *partition) commit(w *writing, h header, seq uint64) {
	if err := p.folders.changed(); err != nil {
		// The frame itself is synced; only a new file's name may not be.
		p.b.cfg.Logger.Error("folder of the event store cannot be synced", "stream", p.s.name, "partition", p.number, "error", err)
	}
	p.tail.seq, p.tail.next = seq, h.end()
	if p.written(seq, h, w.buf) {
		w.buf = nil // the readers' now
	}
	m := p.s.memory
	m.mu.Lock()
	for i, d := range w.batch.ids {
		delete(m.pending, d)
		m.put(d, headgate.Position{Partition: p.number, Offset: h.base + uint64(i)}, h.time)
	}
	m.mu.Unlock()
	at := h.base
	for _, c := range w.batch.chunks {
		base := at
		c.it.settle(c.from, c.to, func(k int) broker.Result {
			return broker.Result{
				Outcome:  broker.OutcomeStored,
				Position: headgate.Position{Partition: p.number, Offset: base + uint64(k-c.from)},
			}
		})
		at += uint64(c.to - c.from)
	}
	p.b.wake(p, seq)
}

// refuseBatch answers the same for every event of a frame, and for what its
// last call still has in the queue: events of one call and key must not
// overtake each other.
func (p *partition) refuseBatch(b *batch, r broker.Result) {
	behind := r
	if r.Outcome == broker.OutcomeRejected {
		behind = broker.HeldBack()
	}
	for _, c := range b.chunks {
		p.refuse(c, r)
		if rest := p.queue.skip(c.it); rest.from < rest.to {
			p.refuse(rest, behind)
		}
	}
}

// giveUp ends a frame whose outcome cannot be learnt any more.
func (p *partition) giveUp(b *batch, sent bool) {
	r := broker.Throttled(headgate.CodeDraining, "the driver was closed before the event was stored")
	if sent {
		r = broker.Unknown(broker.ErrClosed)
	}
	p.refuseBatch(b, r)
}

// refuse settles events that were not stored.
func (p *partition) refuse(c chunk, r broker.Result) {
	if c.from == c.to {
		return
	}
	m := p.s.memory
	m.mu.Lock()
	for _, d := range c.it.ids[c.from:c.to] {
		delete(m.pending, d)
	}
	m.mu.Unlock()
	c.it.settle(c.from, c.to, func(int) broker.Result { return r })
}
