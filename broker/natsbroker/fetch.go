package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/broker"
)

// Bounds of one read: what a reader may hold beyond its window.
const (
	fetchFrames  = 256
	fetchBytes   = 512 << 10
	fetchTimeout = 5 * time.Second
)

// errNoMessage: the broker stream has no message at or behind the sequence.
var errNoMessage = errors.New("natsbroker: no such message")

// fetcher reads messages through the server's direct get, which needs no
// consumer on the server: nothing there to expire, to count or to wake up.
type fetcher struct {
	b     *Broker
	sub   *nats.Subscription
	inbox string
	calls uint64
	most  time.Duration // one wait for the server
}

// message is one stored message.
type message struct {
	seq  uint64
	data []byte
}

// fetcher returns an idle fetcher or makes one.
func (b *Broker) fetcher() (*fetcher, error) {
	select {
	case f := <-b.fetchers:
		return f, nil
	default:
	}
	f := &fetcher{b: b, inbox: b.nc.NewInbox(), most: fetchTimeout}
	sub, err := b.nc.SubscribeSync(f.inbox + ".*")
	if err != nil {
		return nil, b.lost(err)
	}
	// A request bounds what comes; a limit here would drop messages.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, b.lost(err)
	}
	f.sub = sub
	return f, nil
}

// release puts a fetcher back.
func (b *Broker) release(f *fetcher) {
	select {
	case b.fetchers <- f:
	default:
		_ = f.sub.Unsubscribe()
	}
}

// lost translates an error of the connection.
func (b *Broker) lost(err error) error {
	if b.life.Err() != nil || errors.Is(err, nats.ErrConnectionClosed) {
		return broker.Closed()
	}
	return unavailable(err, "the NATS server cannot be reached")
}

type getRequest struct {
	Seq      uint64 `json:"seq"`
	Batch    int    `json:"batch"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// one returns the first message at or behind the sequence, or errNoMessage.
func (f *fetcher) one(ctx context.Context, stream string, seq uint64) (message, error) {
	var got message
	err := f.batch(ctx, stream, seq, 1, func(m message) bool { got = m; return true })
	if err == nil && got.data == nil {
		err = errNoMessage
	}
	return got, err
}

// batch calls yield with up to n messages at and behind the sequence, in
// order, until it answers false. No message at all is not an error. What yield
// waits for is not the server's time.
func (f *fetcher) batch(ctx context.Context, stream string, seq uint64, n int, yield func(message) bool) error {
	f.calls++
	reply := f.inbox + "." + strconv.FormatUint(f.calls, 36)
	req, err := json.Marshal(getRequest{Seq: max(1, seq), Batch: n, MaxBytes: fetchBytes})
	if err != nil {
		return err
	}
	began := time.Now()
	bound, cancel := f.b.session.bound(ctx, f.most)
	defer func() { cancel() }()
	if err := f.b.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, reply, req); err != nil {
		return f.b.lost(err)
	}
	for wanted := true; ; {
		m, err := f.sub.NextMsgWithContext(bound)
		if err != nil {
			return f.failed(ctx, stream, err)
		}
		if m.Subject != reply {
			continue // of an earlier request that was given up
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404":
			return nil
		case "503":
			return unavailable(nil, "broker stream %s does not answer", stream)
		default:
			return unavailable(nil, "broker stream %s: status %s %s", stream, status, m.Header.Get("Description"))
		}
		at, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil {
			return unavailable(nil, "broker stream %s: answer without a sequence", stream)
		}
		// What is not wanted any more is still taken in, up to the end of the
		// batch, so that the next request finds nothing in its way.
		if m.Data == nil {
			m.Data = []byte{}
		}
		wanted = wanted && yield(message{at, m.Data})
		if time.Since(began) < f.most/2 {
			continue
		}
		if errors.Is(bound.Err(), context.Canceled) {
			return f.failed(ctx, stream, bound.Err()) // with what was still to come
		}
		cancel()
		began = time.Now()
		bound, cancel = f.b.session.bound(ctx, f.most)
	}
}

func (f *fetcher) failed(ctx context.Context, stream string, err error) error {
	switch {
	case f.b.life.Err() != nil:
		return broker.Closed()
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(nil, "broker stream %s did not answer in %v", stream, f.most)
	case errors.Is(err, context.Canceled):
		return unavailable(nil, "the connection broke while broker stream %s answered", stream)
	default:
		return f.b.lost(err)
	}
}
