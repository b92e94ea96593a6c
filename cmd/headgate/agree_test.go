package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// heard is output that says when it holds something.
type heard struct {
	mu   sync.Mutex
	all  strings.Builder
	want string
	got  chan struct{}
	once sync.Once
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all.Write(p)
	if h.got != nil && strings.Contains(h.all.String(), h.want) {
		h.once.Do(func() { close(h.got) })
	}
	return len(p), nil
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all.String()
}

// serves runs headgate serve until it is ready, then ends it. It returns the
// exit code and what it said.
func serves(t *testing.T, file string) (code int, started bool, said string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	out := &heard{want: "headgate is ready", got: make(chan struct{})}
	var errs heard
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--config", file}, streams{in: strings.NewReader(""), out: out, err: &errs})
	}()
	select {
	case code = <-ended:
	case <-out.got:
		started = true
		stop()
		code = <-ended
	}
	return code, started, errs.String()
}

// faulty are configurations that no node starts on, and part of what they are
// refused by. DIR is a folder of the test's own.
var faulty = []struct{ name, config, says string }{
	{"port 0 of a target", "leases: {seal: {crm: {url: 'http://127.0.0.1:0/seal'}}}", "port"},
	{"no port", "leases: {seal: {crm: {url: 'https://crm.example:99999/seal'}}}", "port"},
	{"two targets of one audience", "leases: {seal: {a: {url: 'https://a.example/s', audience: crm}, b: {url: 'https://b.example/s', audience: crm}}}", "audience"},
	{"a target of another's name as audience", "leases: {seal: {a: {url: 'https://a.example/s'}, b: {url: 'https://b.example/s', audience: a}}}", "audience"},
	{"two audiences behind references", "leases: {seal: {a: {url: 'env:AGREE_A'}, b: {url: 'env:AGREE_B', audience: a}}}", "audience"},
	{"a target's reserved audience", "leases: {seal: {headgate: {url: 'https://a.example/s'}}}", "audience"},
	{"a target without a driver", "leases: {seal: {a: {url: 'mysql://h/d'}}}", "leases.seal.a"},
	{"a referred target without a driver", "leases: {seal: {a: {url: 'env:AGREE_MYSQL'}}}", "leases.seal.a"},
	{"a target's URL that cannot be read", "leases: {seal: {a: {url: 'postgres://u@h:x/d'}}}", "leases.seal.a"},
	{"an outbox without a driver", "outbox: [{name: o, url: 'mysql://h/d'}]", "outbox"},
	{"an outbox's URL that cannot be read", "outbox: [{name: o, url: 'postgres://u@h:x/d'}]", "outbox"},
	{"a referred outbox that does not fit", "outbox: [{name: o, url: 'env:AGREE_SQLITE'}]", "principal is missing"},
	{"a store's URL of another database", "store: {driver: postgres, url: 'mysql://h/d'}", "URL"},
	{"a store's URL that cannot be read", "store: {driver: postgres, url: 'postgres://u@h:x/d'}", "URL"},
	{"a referred store's URL that cannot be read", "store: {driver: postgres, url: 'env:AGREE_MYSQL'}", "URL"},
	{"a broker's URL that cannot be read", "broker: {url: 'nats://h:port'}", "broker.url"},
	{"a broker's port 0", "broker: {url: 'nats://h:0'}", "port"},
	{"a broker of another kind", "broker: {url: 'amqp://h'}", "scheme"},
	{"credentials of an embedded broker", "broker: {credentials: DIR/x.creds}", "broker.credentials"},
	{"a host that is none", "listen: '256.0.0.1:7530'", "listen"},
	{"a host with a space", "listen: 'a b:7530'", "listen"},
	{"a host with an empty label", "listen: 'a..b:7530'", "listen"},
	{"a port that is none", "listen: '127.0.0.1:99999'", "listen"},
	{"a port without a name", "listen: '127.0.0.1:nowhere'", "listen"},
	{"a weak token", "principals: [{name: p, kind: system, token: 'env:AGREE_WEAK'}]", "token of principal p"},
	{"one token of two", "principals: [{name: p, kind: system, token: 'env:AGREE_TOKEN'}, {name: q, kind: system, token: 'env:AGREE_TOKEN'}]", "token for q"},
	{"a principal that cannot be called so", "principals: [{name: 'a b', kind: system}]", "principal"},
	{"a subscription to what its principal may not hear", "principals: [{name: p, kind: system, listen: [a.b]}]\nsubscriptions: {s: {types: [c.d], as: p}}", "may not listen"},
	{"a subscription that cannot be called so", "principals: [{name: p, kind: system, listen: ['*']}]\nsubscriptions: {'a b': {types: [c.d], as: p}}", "name"},
	{"a subscription that cannot be called so, of a principal that only a store could know", "subscriptions: {'a b': {types: [c.d], as: other}}", "name"},
	{"a principal that no store could know", "subscriptions: {s: {types: [c.d], as: 'Not A Name'}}", "subscriptions.s.as"},
	{"a backoff that is none", "defaults: {backoff: hello}", "defaults.backoff"},
	{"a partition that is none", "principals: [{name: p, kind: system, listen: ['*']}]\nstreams: {x: {types: ['c.*'], partitions: 2}}\nsubscriptions: {s: {types: [c.d], as: p, from: 'x/7:1'}}", "partition"},
	{"a stream that no type is in", "principals: [{name: p, kind: system, listen: ['*']}]\nsubscriptions: {s: {types: [c.d], as: p, from: 'elsewhere/0:1'}}", "elsewhere"},
	{"a stream that cannot be called so", "streams: {'a b': {types: ['c.*']}}", "streams"},
	{"no folder of contracts", "contracts: {dir: DIR/nowhere}", "contracts.dir"},
	{"a negative bound", "limits: {in_flight: -1}", "in_flight"},
	{"a negative retention", "quarantine: {retain: -1h}", "retain"},
	{"a name of a host with a port", "hosts: ['a:1']", "hosts"},
}

// nowhere are data folders that there can be none of. LONG is a name of 256
// bytes, and FILE a file.
var nowhere = []struct{ name, data string }{
	{"a NUL", `"DIR/a\0b"`}, {"a long name", "DIR/LONG"}, {"a long name within", "DIR/LONG/x"}, {"a file", "FILE"}, {"below a file", "FILE/x/y"},
}

// sound are configurations that a node starts on, also those that look odd.
var sound = []struct{ name, config string }{
	{"nothing", ""},
	{"targets", "leases: {seal: {a: {url: 'http://127.0.0.1:7/seal'}, b: {url: 'sqlite:DIR/b.db'}, c: {url: 'postgres://u@127.0.0.1:1/d'}, d: {url: 'https://d.example/x', audience: crm}}}"},
	{"an outbox that is away", "outbox: [{name: o, url: 'postgres://u@127.0.0.1:1/d'}]"},
	{"tokens", "principals: [{name: p, kind: system, token: 'env:AGREE_TOKEN'}]"},
	{"a subscription", "principals: [{name: p, kind: system, listen: ['*']}]\nstreams: {x: {types: ['c.*'], partitions: 2}}\nsubscriptions: {s: {types: [c.d], as: p, from: 'x/1:0'}}"},
	{"a port of the system's choice", "listen: '127.0.0.1:0'"},
}

// TestCheckAndServeAgree: what serve refuses for its configuration alone check
// refuses, and what it starts on check passes.
func TestCheckAndServeAgree(t *testing.T) {
	for name, value := range map[string]string{
		"AGREE_A": "https://a.example/s", "AGREE_B": "https://b.example/s", "AGREE_MYSQL": "mysql://u@h/d", "AGREE_SQLITE": "sqlite:x.db",
		"AGREE_WEAK": "abc", "AGREE_TOKEN": "0123456789abcdefghijklmnopqrstuvwxyzABCD",
	} {
		t.Setenv(name, value)
	}
	check := func(file string) (code int, said string) {
		var errs strings.Builder
		code = run(t.Context(), []string{"check", file}, streams{in: strings.NewReader(""), out: io.Discard, err: &errs})
		return code, errs.String()
	}
	write := func(t *testing.T, config string) string {
		dir := t.TempDir()
		text := "data: " + filepath.Join(dir, "data") + "\n"
		if !strings.Contains(config, "listen: '") {
			text += "listen: 127.0.0.1:0\n"
		}
		file := filepath.Join(dir, "node.yaml")
		if err := os.WriteFile(file, []byte(text+strings.ReplaceAll(config, "DIR", dir)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range faulty {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.config)
			if code, started, said := serves(t, file); started || code == exitOK || !strings.Contains(said, c.says) {
				t.Errorf("serve ends with %d (started: %t) and says %s", code, started, said)
			}
			if code, said := check(file); code == exitOK || !strings.Contains(said, c.says) {
				t.Errorf("check ends with %d and says %s", code, said)
			}
		})
	}
	for _, c := range nowhere {
		t.Run("data: "+c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "node.yaml")
			data := strings.NewReplacer("DIR", filepath.Dir(file), "LONG", strings.Repeat("x", 256), "FILE", file).Replace(c.data)
			if err := os.WriteFile(file, []byte("listen: 127.0.0.1:0\ndata: "+data+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if code, started, said := serves(t, file); started || code != exitUsage || !strings.Contains(said, ":2:7: data: ") {
				t.Errorf("serve ends with %d (started: %t) and says %s", code, started, said)
			}
			if code, said := check(file); code != exitUsage || !strings.Contains(said, ":2:7: data: ") {
				t.Errorf("check ends with %d and says %s", code, said)
			}
		})
	}
	for _, c := range sound {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.config)
			if code, said := check(file); code != exitOK {
				t.Errorf("check ends with %d and says %s", code, said)
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), "data")); err == nil {
				t.Error("check made the data folder")
			}
			if code, started, said := serves(t, file); !started || code != exitOK {
				t.Errorf("serve ends with %d (started: %t) and says %s", code, started, said)
			}
		})
	}
}

// TestStepsNameThePlace: what only the steps of a start find is told with its
// setting and the place of that, by check and by serve.
func TestStepsNameThePlace(t *testing.T) {
	t.Setenv("AGREE_WEAK", "abc")
	t.Setenv("AGREE_SQLITE", "sqlite:x.db")
	t.Setenv("AGREE_MYSQL", "mysql://u@h/d")
	const listener = "principals: [{name: p, kind: system, listen: ['*']}]\n"
	for config, says := range map[string]string{
		"principals:\n- {name: p, kind: system, token: 'env:AGREE_WEAK'}":           "4:34: principals[0].token: token of principal p: ",
		"contracts:\n  dir: DIR/nowhere":                                            "4:8: contracts.dir: DIR/nowhere: the folder of contracts cannot be read: no such file",
		listener + "subscriptions:\n  s: {types: [c.d], as: p, from: 'x/0:1'}":      "5:34: subscriptions.s.from: no type",
		listener + "subscriptions:\n  s: {types: [c.d], as: p, from: 'events/9:1'}": "5:34: subscriptions.s.from: stream events has",
		"broker:\n  url: 'nats://h:port'":                                           "4:8: broker.url: want",
		"store:\n  driver: postgres\n  url: 'postgres://u@h:x/d'":                   "5:8: store.url: ",
		"leases: {seal: {a: {url: 'postgres://u@h:x/d'}}}":                          "3:26: leases.seal.a.url: ",
		"leases: {seal: {a: {url: 'env:AGREE_MYSQL'}}}":                             "3:26: leases.seal.a.url: ",
		"outbox:\n- {name: o, url: 'mysql://h/d'}":                                  "4:18: outbox[0].url: ",
		"outbox:\n- {name: o, url: 'postgres://u@h:x/d'}":                           "4:18: outbox[0].url: ",
		"outbox:\n- {name: o, url: 'env:AGREE_SQLITE'}":                             "4:18: outbox[0].url: ",
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "node.yaml")
		in := strings.NewReplacer("DIR", dir)
		text := "data: DIR/data\nlisten: 127.0.0.1:0\n" + config + "\n"
		if err := os.WriteFile(file, []byte(in.Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
		var errs strings.Builder
		code := run(t.Context(), []string{"check", file}, streams{in: strings.NewReader(""), out: io.Discard, err: &errs})
		if code == exitOK || !strings.Contains(errs.String(), in.Replace(says)) {
			t.Errorf("%s\ncheck ends with %d and says %s, want %s", config, code, errs.String(), says)
		}
		if code, started, said := serves(t, file); started || code == exitOK || !strings.Contains(said, in.Replace(says)) {
			t.Errorf("%s\nserve ends with %d and says %s, want %s", config, code, said, says)
		}
	}
}

// TestCheckNamesWhatIsNotHere: secrets of another host are no fault, and are
// said not to be checked.
func TestCheckNamesWhatIsNotHere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.yaml")
	config := `store: {driver: postgres, url: 'env:AGREE_ABSENT1'}
broker: {url: 'nats://h', credentials: '/nowhere/AGREE_ABSENT2'}
principals: [{name: p, kind: system, token: 'env:AGREE_ABSENT3'}]
leases: {seal: {a: {url: 'env:AGREE_ABSENT4'}}}
outbox:
  - {name: o, url: 'file:/nowhere/AGREE_ABSENT5'}
  - {name: q, url: 'sqlite:q.db', principal: agree_absent7}
  - {name: r, url: 'postgres://u@127.0.0.1:1/d', roles: {writer: agree_absent8}}
subscriptions: {s: {types: [a.b], as: agree_absent6}}
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"check", file}, streams{in: strings.NewReader(""), out: &out, err: &errs}); code != exitOK {
		t.Fatalf("check ends with %d: %s", code, errs.String())
	}
	for _, name := range []string{"AGREE_ABSENT1", "AGREE_ABSENT2", "AGREE_ABSENT3", "AGREE_ABSENT4", "AGREE_ABSENT5", "agree_absent6", "agree_absent7", "agree_absent8"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("check does not say that %s was not checked:\n%s", name, out.String())
		}
	}
}
