package natsbroker

import (
	"context"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// listenForWakes makes readers look when another node says that it stored a
// frame.
func (b *Broker) listenForWakes() error {
	_, err := b.nc.Subscribe(b.wakeSubject("*", "*"), func(m *nats.Msg) {
		words := strings.Split(m.Subject, ".")
		number, err := strconv.ParseUint(words[len(words)-1], 10, 32)
		if len(words) != 3 || err != nil {
			return
		}
		seq, err := strconv.ParseUint(string(m.Data), 10, 64)
		if err != nil {
			return
		}
		p, err := b.partition(words[1], uint32(number))
		if err != nil {
			return
		}
		// A liar can make readers ask in vain, no more: what they read is
		// checked against what the server has.
		b.task(func() {
			if end, _ := p.visible(); seq > end {
				_ = p.look(b.life)
			}
		})
	})
	if err != nil {
		return b.lost(err)
	}
	return nil
}

// wake tells readers on other nodes of a stored frame. It may get lost.
func (b *Broker) wake(p *partition, seq uint64) {
	if b.shared() {
		_ = b.nc.Publish(b.wakeSubject(p.s.name, strconv.FormatUint(uint64(p.number), 10)), strconv.AppendUint(nil, seq, 10))
	}
}

// look asks the server where the partition ends.
func (p *partition) look(ctx context.Context) error {
	st, err := p.state(ctx)
	if err != nil {
		return err
	}
	p.advance(st.LastSeq, 0)
	return nil
}

// disconnected wakes whoever waits for an answer, which will not come any more.
func (b *Broker) disconnected() {
	b.reach.end()
	b.session.end()
}

// reconnected makes all readers look: wake-ups may have been missed.
func (b *Broker) reconnected() {
	b.reach.back()
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return
	}
	for _, s := range b.streams {
		for _, p := range s.parts {
			b.tasks.Go(func() { _ = p.look(b.life) })
		}
	}
}
