package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// Metadata of the broker streams. The count of partitions is with each of
// them, so that a later start with another count is seen as drift.
const (
	metaStream     = "headgate.stream"
	metaPartitions = "headgate.partitions"
	metaFormat     = "headgate.format"
)

var formatName = "frame/" + strconv.Itoa(frameVersion)

// Ensure implements [broker.Broker]. Every partition is a broker stream of its
// own; a stream whose creation was interrupted is completed.
func (b *Broker) Ensure(ctx context.Context, specs []broker.StreamSpec) ([]broker.Drift, error) {
	for _, spec := range specs {
		if err := spec.Validate(); err != nil {
			return nil, err
		}
	}
	b.ensuring.Lock()
	defer b.ensuring.Unlock()
	if b.isClosed() {
		return nil, broker.Closed()
	}
	var drift []broker.Drift
	for _, spec := range specs {
		found, err := b.ensure(ctx, spec.WithDefaults())
		if err != nil {
			return drift, err
		}
		drift = append(drift, found...)
	}
	return drift, nil
}

func (b *Broker) ensure(ctx context.Context, want broker.StreamSpec) ([]broker.Drift, error) {
	have := want
	first, err := b.info(ctx, want.Name, 0)
	if err != nil {
		return nil, err
	}
	if first != nil {
		// Partitions and limits are as the stream was made; the rest of the
		// configuration is compared below.
		if n, err := strconv.Atoi(first.Config.Metadata[metaPartitions]); err == nil && n >= 1 && n <= broker.MaxPartitions {
			have.Partitions = n
		}
		have.MaxBytes = max(0, first.Config.MaxBytes)
	}
	drift := broker.Compare(want, have)
	var infos []*jetstream.StreamInfo
	for p := range have.Partitions {
		cfg := b.streamConfig(have, uint32(p))
		info, err := b.create(ctx, want.Name, uint32(p), cfg)
		if err != nil {
			return drift, err
		}
		drift = append(drift, compare(want.Name, cfg, info.Config)...)
		infos = append(infos, info)
	}
	return drift, b.open(ctx, have, infos)
}

// create returns the partition's broker stream, creating it when missing.
func (b *Broker) create(ctx context.Context, stream string, partition uint32, cfg jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	info, err := b.info(ctx, stream, partition)
	if err != nil || info != nil {
		return info, err
	}
	s, err := b.js.CreateStream(ctx, cfg)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return b.info(ctx, stream, partition) // another node was faster
	}
	if err != nil {
		return nil, unavailable(err, "partition %d of stream %s cannot be created on the NATS server", partition, stream)
	}
	return s.CachedInfo(), nil
}

// info returns nil when the broker stream does not exist.
func (b *Broker) info(ctx context.Context, stream string, partition uint32) (*jetstream.StreamInfo, error) {
	s, err := b.js.Stream(ctx, b.streamName(stream, partition))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err, "the NATS server does not tell of partition %d of stream %s", partition, stream)
	}
	return s.CachedInfo(), nil
}

func (b *Broker) streamConfig(spec broker.StreamSpec, partition uint32) jetstream.StreamConfig {
	limit := int64(-1)
	if spec.MaxBytes > 0 {
		limit = spec.MaxBytes
	}
	return jetstream.StreamConfig{
		Name:              b.streamName(spec.Name, partition),
		Description:       fmt.Sprintf("Headgate stream %s, partition %d. Frames: not for other clients.", spec.Name, partition),
		Subjects:          []string{b.subject(spec.Name, partition)},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardNew,
		Compression:       jetstream.NoCompression,
		Replicas:          b.cfg.Replicas,
		MaxBytes:          limit,
		MaxMsgs:           -1,
		MaxMsgsPerSubject: -1,
		MaxConsumers:      -1,
		MaxMsgSize:        -1,
		AllowDirect:       true,
		// Offsets are counted without gaps: single messages must stay.
		DenyDelete: true,
		Metadata: map[string]string{
			metaStream:     spec.Name,
			metaPartitions: strconv.Itoa(spec.Partitions),
			metaFormat:     formatName,
		},
	}
}

// compare lists the settings of a broker stream that differ from what the
// driver would create. Unsafe are those by which the server would lose, hide
// or alter events, or acknowledge them sooner than the driver promises.
func compare(stream string, want, have jetstream.StreamConfig) []broker.Drift {
	var drift []broker.Drift
	check := func(setting string, unsafe bool, w, h any) {
		if a, b := fmt.Sprint(w), fmt.Sprint(h); a != b {
			drift = append(drift, broker.Drift{Stream: stream, Setting: have.Name + " " + setting, Want: a, Have: b, Unsafe: unsafe})
		}
	}
	check("format", true, want.Metadata[metaFormat], have.Metadata[metaFormat])
	check("stream", true, want.Metadata[metaStream], have.Metadata[metaStream])
	check("partitions", true, want.Metadata[metaPartitions], have.Metadata[metaPartitions])
	check("subjects", true, want.Subjects, have.Subjects)
	check("persist_mode", true, persistMode(want), persistMode(have))
	check("retention", true, want.Retention, have.Retention)
	check("storage", true, want.Storage, have.Storage)
	check("discard", true, want.Discard, have.Discard)
	check("no_ack", true, want.NoAck, have.NoAck)
	check("max_age", true, want.MaxAge, have.MaxAge)
	check("max_msgs", false, want.MaxMsgs, have.MaxMsgs)
	check("max_msgs_per_subject", true, want.MaxMsgsPerSubject, have.MaxMsgsPerSubject)
	check("max_msg_size", true, want.MaxMsgSize, have.MaxMsgSize)
	check("max_bytes", false, want.MaxBytes, have.MaxBytes)
	check("num_replicas", have.Replicas < want.Replicas, want.Replicas, have.Replicas)
	check("sealed", true, want.Sealed, have.Sealed)
	check("allow_direct", true, want.AllowDirect, have.AllowDirect)
	check("allow_rollup_hdrs", true, want.AllowRollup, have.AllowRollup)
	check("allow_msg_ttl", true, want.AllowMsgTTL, have.AllowMsgTTL)
	check("deny_delete", false, want.DenyDelete, have.DenyDelete)
	check("compression", false, want.Compression, have.Compression)
	check("mirror", true, want.Mirror != nil, have.Mirror != nil)
	check("sources", true, len(want.Sources), len(have.Sources))
	check("subject_transform", true, want.SubjectTransform != nil, have.SubjectTransform != nil)
	return drift
}

func persistMode(c jetstream.StreamConfig) string {
	if c.PersistMode == jetstream.AsyncPersistMode {
		return "async"
	}
	return "default"
}

func (b *Broker) streamName(stream string, partition uint32) string {
	return b.cfg.Prefix + "_" + stream + "_" + strconv.FormatUint(uint64(partition), 10)
}

func (b *Broker) subject(stream string, partition uint32) string {
	return b.cfg.Prefix + "." + stream + "." + strconv.FormatUint(uint64(partition), 10)
}

// wakeSubject carries a message after each frame on a shared server, so that
// readers on other nodes look at once. It holds no event and may get lost.
func (b *Broker) wakeSubject(stream, partition string) string {
	return b.cfg.Prefix + "_WAKE." + stream + "." + partition
}

// unavailable tells what could not be done. The cause, in the words of the client
// library, may name the server: the log has it, clients do not.
func unavailable(cause error, format string, args ...any) error {
	return &headgate.Error{Code: headgate.CodeUnavailable, Detail: fmt.Sprintf(format, args...), Err: cause}
}
