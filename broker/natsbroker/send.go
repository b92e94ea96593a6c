package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// sendTimeout bounds one attempt. A server that is this slow is asked again,
// not given up.
const sendTimeout = 10 * time.Second

// attempt is what one attempt to store a frame brought.
type attempt struct {
	stored bool
	seq    uint64
	// wrongSequence: the partition does not end where the frame expects it.
	wrongSequence bool
	// refusal: the server said no, for a reason that may pass.
	refusal *broker.Result
	// mayHaveArrived: no answer came, so the frame may have been stored.
	mayHaveArrived bool
}

// Error codes of the server, from its list of JetStream errors.
const (
	jsInsufficientResources jetstream.ErrorCode = 10023
	jsStorageExceeded       jetstream.ErrorCode = 10047
	jsMessageTooLarge       jetstream.ErrorCode = 10054
	jsStoreFailed           jetstream.ErrorCode = 10077
	jsWrongLastSequence     jetstream.ErrorCode = 10071
	jsWrongLastSequenceTwo  jetstream.ErrorCode = 10164
)

type pubAck struct {
	Error *jetstream.APIError `json:"error"`
	Seq   uint64              `json:"seq"`
}

// send makes one attempt to store a frame behind the sequence.
func (p *partition) send(life context.Context, frame []byte, behind uint64) attempt {
	ctx, cancel := p.b.session.bound(life, sendTimeout)
	defer cancel()
	msg := &nats.Msg{
		Subject: p.subject,
		Header:  nats.Header{jetstream.ExpectedLastSeqHeader: {strconv.FormatUint(behind, 10)}},
		Data:    frame,
	}
	resp, err := p.b.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		// No responders means that nobody listens on the subject: certainly
		// not stored. After any other error it may have been.
		return attempt{mayHaveArrived: !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, nats.ErrReconnectBufExceeded)}
	}
	var ack pubAck
	if err := json.Unmarshal(resp.Data, &ack); err != nil {
		return attempt{mayHaveArrived: true}
	}
	if ack.Error == nil {
		return attempt{stored: ack.Seq > 0, seq: ack.Seq, mayHaveArrived: ack.Seq == 0}
	}
	return p.denied(ack.Error)
}

func (p *partition) denied(e *jetstream.APIError) attempt {
	var r broker.Result
	switch e.ErrorCode {
	case jsWrongLastSequence, jsWrongLastSequenceTwo:
		return attempt{wrongSequence: true}
	case jsStoreFailed, jsStorageExceeded, jsInsufficientResources:
		r = broker.Throttled(headgate.CodeStreamFull, "partition %d of stream %s: %s", p.number, p.s.name, e.Description)
	case jsMessageTooLarge:
		r = broker.Result{Outcome: broker.OutcomeRejected, Err: headgate.NewError(headgate.CodeTooLarge, "partition %d of stream %s: %s", p.number, p.s.name, e.Description)}
	default:
		r = broker.Throttled(headgate.CodeUnavailable, "partition %d of stream %s: %s (%d)", p.number, p.s.name, e.Description, e.ErrorCode)
	}
	return attempt{refusal: &r}
}

// resolve is called when the partition does not end where a frame expected it:
// an earlier attempt of the same frame was stored, or another writer was
// first. It reports whether the frame is settled; if not, the partition's tail
// is fresh and w holds what is left to store.
func (p *partition) resolve(life context.Context, w *writing, h header, sent bool) (done bool, err error) {
	ctx, cancel := p.b.session.bound(life, sendTimeout)
	defer cancel()
	if sent {
		found, err := p.leaderHeader(ctx, p.tail.seq+1)
		if err != nil && !errors.Is(err, errNoMessage) && !errors.Is(err, errFrame) {
			return false, err
		}
		if err == nil && found.writer == h.writer && found.serial == h.serial {
			p.commit(w, h, p.tail.seq+1)
			return true, nil
		}
	}
	p.b.cfg.Logger.Warn("another writer stores to the partition", "stream", p.s.name, "partition", p.number)
	if err := p.catchUp(ctx); err != nil {
		return false, err
	}
	p.contested = true
	p.dropKnown(&w.batch)
	return false, nil
}

// leaderHeader asks the stream's leader, not a replica, for one message.
func (p *partition) leaderHeader(ctx context.Context, seq uint64) (header, error) {
	data, _, err := p.b.leaderMessage(ctx, p.name, `{"seq":`+strconv.FormatUint(seq, 10)+`}`)
	if err != nil {
		return header{}, err
	}
	f, err := parseFrame(data)
	return f.header, err
}

// leaderMessage asks a broker stream's leader for one message; errNoMessage
// when there is none, or no such stream.
func (b *Broker) leaderMessage(ctx context.Context, stream, which string) (data []byte, seq uint64, err error) {
	resp, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, []byte(which))
	if err != nil {
		return nil, 0, b.lost(err)
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Seq  uint64 `json:"seq"`
			Data []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(resp.Data, &got); err != nil {
		return nil, 0, unavailable(err, "the answer of broker stream %s cannot be read", stream)
	}
	if got.Error != nil {
		if got.Error.Code == 404 {
			return nil, 0, errNoMessage
		}
		return nil, 0, unavailable(nil, "broker stream %s: %s", stream, got.Error.Description)
	}
	return got.Message.Data, got.Message.Seq, nil
}

// catchUp reads what another writer stored behind this one's tail: its ids go
// into the dedupe window, its end becomes ours.
func (p *partition) catchUp(ctx context.Context) error {
	st, err := p.state(ctx)
	if err != nil {
		return err
	}
	t, err := p.findTail(ctx, st.FirstSeq, st.LastSeq, st.Msgs)
	if err != nil {
		return err
	}
	f, err := p.b.fetcher()
	if err != nil {
		return err
	}
	defer p.b.release(f)
	for seq := p.tail.seq + 1; seq <= t.seq; {
		fr, err := p.frameAt(ctx, f, seq)
		if errors.Is(err, errNoMessage) {
			break
		}
		if err != nil {
			return err
		}
		p.s.memory.mu.Lock()
		p.remember(&fr)
		p.s.memory.mu.Unlock()
		seq = fr.seq + 1
	}
	t.time = latest(t.time, p.tail.time)
	p.tail = t
	p.advance(t.seq, t.next)
	return nil
}

// remember adds a frame's ids to the dedupe window. The caller holds its lock.
func (p *partition) remember(fr *frame) {
	for i := range int(fr.count) {
		p.s.memory.put(fr.digest(i), headgate.Position{Partition: p.number, Offset: fr.base + uint64(i)}, fr.time)
	}
}

// dropKnown answers Duplicate for events of the batch that another writer
// stored meanwhile, and keeps the rest.
func (p *partition) dropKnown(b *batch) {
	m := p.s.memory
	now := p.b.cfg.Now()
	var kept batch
	for _, c := range b.chunks {
		for k := c.from; k < c.to; k++ {
			id, rec := c.it.ids[k], c.it.recs[k]
			m.mu.Lock()
			at, known := m.get(id, now)
			if known {
				delete(m.pending, id)
			}
			m.mu.Unlock()
			if known {
				c.it.settle(k, k+1, func(int) broker.Result {
					return broker.Result{Outcome: broker.OutcomeDuplicate, Position: at}
				})
				continue
			}
			kept.ids, kept.recs = append(kept.ids, id), append(kept.recs, rec)
			kept.bytes += len(rec)
			if n := len(kept.chunks); n > 0 && kept.chunks[n-1].it == c.it && kept.chunks[n-1].to == k {
				kept.chunks[n-1].to++
			} else {
				kept.chunks = append(kept.chunks, chunk{c.it, k, k + 1})
			}
		}
	}
	*b = kept
}
