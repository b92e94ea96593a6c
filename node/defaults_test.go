package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// embedded are drivers that keep nothing.
func embedded() Drivers {
	return Drivers{
		Stores: map[string]func(context.Context, StoreOptions) (store.Store, error){
			"sqlite": func(ctx context.Context, _ StoreOptions) (store.Store, error) {
				return sqlitestore.Open(ctx, sqlitestore.Config{Memory: true})
			},
		},
		Brokers: map[string]func(context.Context, BrokerOptions) (broker.Broker, error){
			"memory": func(context.Context, BrokerOptions) (broker.Broker, error) {
				return membroker.New(membroker.Config{}), nil
			},
		},
	}
}

// TestRetainReachesEveryStream: what defaults.retain says holds for every stream
// that names none, the default stream too, whether others are declared or not.
func TestRetainReachesEveryStream(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[string]time.Duration
	}{
		"no stream":      {"defaults: {retain: 90d}", map[string]time.Duration{"events": 90 * 24 * time.Hour}},
		"another stream": {"defaults: {retain: 10s}\nstreams: {other: {types: ['ticket.*']}, own: {types: ['x.*'], retain: 1h}}", map[string]time.Duration{"events": 10 * time.Second, "other": 10 * time.Second, "own": time.Hour}},
		"the default":    {"defaults: {retain: 10s}\nstreams: {events: {partitions: 2}}", map[string]time.Duration{"events": 10 * time.Second}},
		"its own":        {"defaults: {retain: 10s}\nstreams: {events: {retain: 2h}}", map[string]time.Duration{"events": 2 * time.Hour}},
		"nothing":        {"", map[string]time.Duration{"events": 7 * 24 * time.Hour}},
	} {
		cfg, problems := Parse([]byte(c.text))
		if len(problems) > 0 {
			t.Fatalf("%s: %v", name, problems)
		}
		table, err := cfg.Topology()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range table.Streams() {
			if s.Retain != c.want[s.Name] {
				t.Errorf("%s: %s keeps for %s, want %s", name, s.Name, s.Retain, c.want[s.Name])
			}
		}
	}
}

// TestDefaultsReachSubscriptionsOfTheAPI: one attempt by default is one attempt,
// of a subscription that no file declares too.
func TestDefaultsReachSubscriptionsOfTheAPI(t *testing.T) {
	cfg, problems := Parse([]byte("defaults: {attempts: 1}\nprincipals: [{name: ann, kind: human, roles: [admin], listen: ['*']}]\nsubscriptions: {declared: {types: ['*'], as: ann}}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	cfg.Memory, cfg.Data = true, t.TempDir()
	n, err := Open(t.Context(), cfg, Options{Drivers: embedded()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Router.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := n.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	<-n.Router.Started()
	ann := &headgate.Principal{Name: "ann", Kind: headgate.KindHuman, Roles: []headgate.Role{headgate.RoleAdmin}, Listen: []string{"*"}}
	if _, err := n.Router.Put(ctx, ann, "made", router.Spec{Types: []string{"*"}}, "api"); err != nil {
		t.Fatal(err)
	}
	e := &headgate.Event{
		ID: "1", Source: "/test", Type: "a.b", Key: "k", Data: []byte(`{}`),
		Header: headgate.Header{RootID: "1", TTL: 8, Origin: headgate.OriginSystem, Principal: "ann", Actor: headgate.KindHuman, RecordedTime: time.Now()},
	}
	if _, err := n.Broker.Publish(ctx, "events", []*headgate.Event{e}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"declared", "made"} {
		got, err := n.Router.Pull(ctx, ann, name, 1, time.Minute)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %d deliveries, %v", name, len(got), err)
		}
		if _, err := n.Router.Settle(ctx, ann, name, []router.Settlement{{Claim: got[0].Claim, Outcome: router.OutcomeRetry}}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := n.Router.Conservation(ctx)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, b := range all {
		if b.Counts.Parked != 1 {
			t.Errorf("%s goes on after the one attempt: %+v", b.Subscription, b)
		}
	}
}

// refused are single settings that no one can mean, with the place at which and
// the key by which they are refused.
var refused = []struct{ text, says string }{
	{"defaults: {backoff: hello}", "1:21: defaults.backoff: "},
	{"defaults: {backoff: 10m..1s}", "1:21: defaults.backoff: "},
	{"defaults: {backoff: '-1s..1s'}", "1:21: defaults.backoff: "},
	{`defaults: {backoff: "1s..\0"}`, "1:21: defaults.backoff: "},
	{"defaults: {attempts: 1001}", "1:22: defaults.attempts: 1001, want 1 to 1000"},
	{"limits: {in_flight: 1}", "1:21: limits.in_flight: want at least 16MiB"},
	{"limits: {body: 1}", "1:16: limits.body: want at least 1MiB"},
	{"defaults: {payload_max: 0.5}", "1:25: defaults.payload_max: size"},
	{"defaults: {payload_max: 1e-10GiB}", "1:25: defaults.payload_max: size"},
	{"types:\n  c.d: {payload_max: 0.5}", `2:22: types["c.d"].payload_max: size`},
	{"types:\n  c.d: {expire: 0.3ns}", `2:17: types["c.d"].expire: duration`},
	{"defaults: {retain: 2562047h47m}", "1:20: defaults.retain: "},
	{"quarantine: {retain: 2562047h47m}", "1:22: quarantine.retain: "},
	{"streams:\n  s: {types: ['c.*'], retain: 2562047h47m}", "2:31: streams.s.retain: "},
	{"outbox:\n- {name: o, url: 'postgres://u@h/d', retain: 2562047h47m}", "2:46: outbox[0].retain: "},
	{"types:\n  c.d: {expire: 2562047h47m}", `2:17: types["c.d"].expire: `},
	{"types:\n  c.d: {gas: 9223372036854775807}", `2:14: types["c.d"].gas: `},
	{"types:\n  c.d: {breadth: 9223372036854775807}", `2:18: types["c.d"].breadth: `},
	{"types:\n  c.d: {repeats: 65}", `2:18: types["c.d"].repeats: 65, want 1 to 64`},
	{"types:\n  c.d: {ttl: 1000}", `2:14: types["c.d"].ttl: 1000, want 1 to 64`},
	{"defaults: {roots: 1e308/s}", "1:19: defaults.roots: rate"},
	{"defaults: {roots: 1e-324/h}", "1:19: defaults.roots: rate"},
	{"principals:\n- {name: p, kind: system, roots: 2000000/s}", "2:34: principals[0].roots: rate"},
	{"principals:\n- {name: p, kind: system, roots: {rate: 1/s, burst: 10000000}}", "2:53: principals[0].roots.burst: "},
	{"principals:\n- {name: p, kind: system, roots: {burst: 5}}", "2:34: principals[0].roots: has a burst"},
	{"principals:\n- {name: p, kind: system, token: 'env:'}", "2:34: principals[0].token: env: needs"},
	{"store: {driver: postgres, url: 'file:'}", "1:32: store.url: file: needs"},
	{"leases: {seal: {a: {url: 'env:A=B'}}}", "1:26: leases.seal.a.url: env: needs"},
	{"principals:\n- {kind: system, name: 'a b'}", `2:24: principals[0].name: "a b", want`},
	{"principals:\n- {name: p, kind: system, roles: [viewer, approver]}", "2:43: principals[0].roles[1]: approver is for humans"},
	{"principals: [{name: p, kind: system, listen: ['*']}]\nsubscriptions:\n  s: {types: [c.d], as: p, from: yesterday}", `3:34: subscriptions.s.from: "yesterday", want`},
	{"principals: [{name: p, kind: system, listen: ['*']}]\nsubscriptions:\n  s: {types: [c.d, 'x y'], as: p}", `3:20: subscriptions.s.types[1]: "x y"`},
	{"broker: {credentials: x}", "1:23: broker.credentials: "},
	{"# *foo\nhosts: ['*foo']\norigins: [a, *foo]", "3:14: unknown anchor 'foo' referenced"},
	{"version: 1\ndata: é\xff", "2:8: "},
	{"version: 1\ndata: a\x00", "2:8: control characters"},
	{"version: 1\n---\nversion: 1", "2:1: more than one YAML document"},
	{"# it\n%YAML 2.0\n---\nversion: 1", "2:1: found incompatible"},
	{"%WHAT\n---\nversion: 1", "1:1: "},
	{"subscriptions:\n  'a b': {types: [c.d], as: other}", `2:10: subscriptions["a b"]: the name`},
	{"subscriptions:\n  s: {types: [c.d], as: Not A Name}", `2:25: subscriptions.s.as: "Not A Name" is not the name`},
}

// TestRefusedSettings: each is refused alone, by its key and at its place.
func TestRefusedSettings(t *testing.T) {
	for _, c := range refused {
		_, problems := Parse([]byte(c.text))
		if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), c.says) {
			t.Errorf("%s:\n%v, want %s…", c.text, problems, c.says)
		}
	}
}

// TestRootLifeIsPositive: the longest retentions that are taken do not overflow
// the life of a causal tree, twice which its account is kept.
func TestRootLifeIsPositive(t *testing.T) {
	cfg, problems := Parse([]byte("defaults: {retain: 18250d}\nquarantine: {retain: 18250d}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if life, least := cfg.rootLife(), 36500*24*time.Hour; life <= least || 2*life <= life {
		t.Errorf("a tree lives for %s, want more than %s", life, least)
	}
}
