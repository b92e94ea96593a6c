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

// The owner of a broker's streams is in a broker stream of its own: the last
// message names it, and those before name the owners before. A new one is
// appended on condition of the last, so that of two one wins; the condition is
// checked, and the last message read, by the leader.
type ownerRecord struct {
	Owner string    `json:"owner"`
	Since time.Time `json:"since"`
}

// ownersKept is how many owners the stream remembers.
const ownersKept = 64

// Own implements [broker.Broker].
func (b *Broker) Own(ctx context.Context, owner, from string) (broker.Ownership, error) {
	if owner != "" && !broker.ValidOwner(owner) {
		return broker.Ownership{}, broker.BadOwner()
	}
	if b.isClosed() {
		return broker.Ownership{}, broker.Closed()
	}
	for {
		have, seq, err := b.owner(ctx)
		if err != nil {
			return broker.Ownership{}, err
		}
		switch {
		case owner == "" || owner == have.Owner:
			return have, nil
		case have.Owner != "" && have.Owner != from:
			return have, broker.Foreign(have)
		}
		next := broker.Ownership{Owner: owner, Since: b.cfg.Now().UTC()}
		if done, err := b.putOwner(ctx, next, seq); err != nil || done {
			return next, err
		}
	}
}

// owner reads the last record; seq is 0 when there is none.
func (b *Broker) owner(ctx context.Context) (o broker.Ownership, seq uint64, err error) {
	ctx, cancel := b.session.bound(ctx, sendTimeout)
	defer cancel()
	data, seq, err := b.leaderMessage(ctx, b.ownerName(), `{"last_by_subj":"`+b.ownerName()+`"}`)
	if errors.Is(err, errNoMessage) {
		return broker.Ownership{}, 0, nil
	}
	if err != nil {
		return broker.Ownership{}, 0, err
	}
	var r ownerRecord
	if err := json.Unmarshal(data, &r); err != nil || !broker.ValidOwner(r.Owner) {
		b.cfg.Logger.Error("whom the streams belong to cannot be read", "stream", b.ownerName(), "sequence", seq)
		return broker.Ownership{Owner: broker.Unreadable}, seq, nil
	}
	return broker.Ownership(r), seq, nil
}

// putOwner appends a record behind the one of the sequence. It is not done when
// another was faster.
func (b *Broker) putOwner(ctx context.Context, o broker.Ownership, behind uint64) (done bool, err error) {
	data, err := json.Marshal(ownerRecord(o))
	if err != nil {
		return false, headgate.NewError(headgate.CodeInternal, "the owner's record: %v", err)
	}
	if err := b.createOwners(ctx); err != nil {
		return false, err
	}
	ctx, cancel := b.session.bound(ctx, sendTimeout)
	defer cancel()
	resp, err := b.nc.RequestMsgWithContext(ctx, &nats.Msg{
		Subject: b.ownerName(), Data: data,
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(behind, 10)}},
	})
	if err != nil {
		return false, b.lost(err) // it may be stored: asking again tells
	}
	var ack pubAck
	switch err := json.Unmarshal(resp.Data, &ack); {
	case err != nil:
		return false, unavailable(err, "the answer of broker stream %s cannot be read", b.ownerName())
	case ack.Error == nil:
		return true, nil
	case ack.Error.ErrorCode == jsWrongLastSequence || ack.Error.ErrorCode == jsWrongLastSequenceTwo:
		return false, nil
	}
	return false, unavailable(nil, "broker stream %s: %s", b.ownerName(), ack.Error.Description)
}

func (b *Broker) createOwners(ctx context.Context) error {
	_, err := b.js.CreateStream(ctx, jetstream.StreamConfig{
		Name:              b.ownerName(),
		Description:       "The Headgate store that the streams of this prefix belong to: the last message. See headgate broker adopt.",
		Subjects:          []string{b.ownerName()},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardOld,
		Replicas:          b.cfg.Replicas,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgsPerSubject: ownersKept,
		MaxConsumers:      -1,
		MaxMsgSize:        -1,
		DenyDelete:        true,
	})
	if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil
	}
	return unavailable(err, "broker stream %s cannot be created", b.ownerName())
}

func (b *Broker) ownerName() string { return b.cfg.Prefix + "_OWNER" }
