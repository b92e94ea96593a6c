package natsbroker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
)

func TestConfigProblemsAreNamed(t *testing.T) {
	for want, cfg := range map[string]Config{
		"exactly one of Dir and URL": {},
		"Dir and URL is needed":      {Dir: "d", URL: "u"},
		"Replicas":                   {Dir: "d", Replicas: 3},
		"Auth":                       {Dir: "d", Auth: Auth{Token: "x"}},
		"CertFile":                   {URL: "u", Auth: Auth{CertFile: "x"}},
		"MaxEventBytes":              {Dir: "d", MaxEventBytes: 8 << 20},
		"Prefix":                     {Dir: "d", Prefix: "a.b"},
		"quorum":                     {URL: "u", Durability: broker.DurabilityQuorum},
		"Durability":                 {Dir: "d", Durability: "always"},
	} {
		_, err := Open(context.Background(), cfg)
		if headgate.CodeOf(err) != headgate.CodeInvalidConfig || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one about %s", cfg, err, want)
		}
	}
	both := Config{Dir: "d", Prefix: "x", Replicas: 9}.Validate()
	if both == nil || !strings.Contains(both.Error(), "Prefix") || !strings.Contains(both.Error(), "Replicas") {
		t.Errorf("not every problem is named: %v", both)
	}
}

func TestDefaultDurability(t *testing.T) {
	for want, cfg := range map[broker.Durability]Config{
		broker.DurabilityFsync:   {Dir: "d"},
		broker.DurabilityProcess: {URL: "u"},
		broker.DurabilityQuorum:  {URL: "u", Replicas: 3},
	} {
		if got := cfg.withDefaults().caps(); got.Durability != want || got.Words == "" {
			t.Errorf("%+v: caps %+v, want %s", cfg, got, want)
		}
	}
}

func TestFolderBelongsToOneProcess(t *testing.T) {
	d := newDamaged(t)
	_, err := Open(context.Background(), Config{Dir: d.dir})
	if headgate.CodeOf(err) != headgate.CodeConflict {
		t.Errorf("second driver on the folder: %v", err)
	}
}

func TestUnreachableServer(t *testing.T) {
	_, err := Open(context.Background(), Config{URL: "nats://127.0.0.1:1"})
	if headgate.CodeOf(err) != headgate.CodeUnavailable {
		t.Errorf("error %v", err)
	}
}

// A broker stream that was made or changed by somebody else is compared
// setting by setting; what voids a guarantee is unsafe.
func TestUnsafeStreamsAreReported(t *testing.T) {
	b := open(t, Config{Dir: t.TempDir()}, brokertest.Options{})
	defer func() { _ = b.Close(context.Background()) }()
	ctx := context.Background()
	spec := broker.StreamSpec{Name: "s", Partitions: 1}
	change := map[string]func(*jetstream.StreamConfig){
		"persist_mode":         func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
		"storage":              func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"retention":            func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
		"discard":              func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"max_age":              func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"max_msgs_per_subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 },
		"allow_rollup_hdrs":    func(c *jetstream.StreamConfig) { c.AllowRollup = true },
		"allow_direct":         func(c *jetstream.StreamConfig) { c.AllowDirect = false },
		"no_ack":               func(c *jetstream.StreamConfig) { c.NoAck = true },
		"format":               func(c *jetstream.StreamConfig) { c.Metadata = nil },
	}
	for setting, f := range change {
		spec.Name = "s_" + strings.ReplaceAll(setting, ".", "")
		cfg := b.streamConfig(spec, 0)
		f(&cfg)
		if _, err := b.js.CreateStream(ctx, cfg); err != nil {
			t.Errorf("%s: %v", setting, err)
			continue
		}
		drift, err := b.Ensure(ctx, []broker.StreamSpec{spec})
		if err != nil {
			t.Errorf("%s: %v", setting, err)
			continue
		}
		found := false
		for _, d := range drift {
			if strings.HasSuffix(d.Setting, " "+setting) {
				found = d.Unsafe && d.Want != d.Have
			}
		}
		if !found {
			t.Errorf("%s: not reported as unsafe: %+v", setting, drift)
		}
	}
}

// A stream that somebody emptied has lost the count of its offsets: refused.
func TestEmptiedStreamIsRefused(t *testing.T) {
	d := newDamaged(t)
	d.store("a", 3)
	s, err := d.b.js.Stream(context.Background(), d.b.streamName("s", 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(context.Background()); err != nil {
		t.Fatal(err)
	}
	d.close()
	d.b = open(t, Config{Dir: d.dir}, brokertest.Options{})
	_, err = d.b.Ensure(context.Background(), []broker.StreamSpec{{Name: "s", Partitions: 1}})
	if headgate.CodeOf(err) != headgate.CodeConflict {
		t.Errorf("ensure: %v", err)
	}
}
