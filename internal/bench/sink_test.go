package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestSinkCounts(t *testing.T) {
	c := newTally()
	at := time.UnixMicro(1_000_000)
	for _, m := range []string{
		`{"order_id": 0, "bench": "0.3.999000"}`,
		`{"data":{"bench":"100.3.999500"}}`,
		`{"payload":"{\"order_id\": 97, \"bench\": \"97.3.999800\"}"}`, // behind 100
		`{"schema":{},"payload":"{\"bench\":\"100.3.999500\"}"}`,       // again
		`{"bench":"1.4.999000"}`,
		`{"nothing":1}`,
	} {
		c.add([]byte(m), at)
	}
	r := c.finish(6)
	if r.Events != 4 || r.Duplicates != 1 || r.Disorder != 1 || r.Unmarked != 1 || r.Missing != 2 {
		t.Errorf("%+v", r)
	}
	if r.Latency.P50 != 1000 && r.Latency.P50 != 500 {
		t.Errorf("latency: %+v", r.Latency)
	}
}

func TestSinkReadsJetStream(t *testing.T) {
	url := os.Getenv("HEADGATE_TEST_NATS")
	if url == "" {
		if os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1" {
			t.Fatal("HEADGATE_TEST_NATS names no server")
		}
		t.Skip("HEADGATE_TEST_NATS names no server; scripts/services run CMD starts one")
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("SINK%d", time.Now().UnixNano())
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	defer js.DeleteStream(context.WithoutCancel(t.Context()), name)
	for n := range 5 {
		if _, err := js.Publish(t.Context(), name, fmt.Appendf(nil, `{"bench": "%d.0.%d"}`, n, time.Now().UnixMicro())); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Sink(t.Context(), SinkConfig{NATS: url, Stream: name, Expect: 5})
	if err != nil || r.Events != 5 || r.Disorder+r.Duplicates+r.Missing != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	// Without the last one it ends when nothing comes any more.
	r, err = Sink(t.Context(), SinkConfig{NATS: url, Stream: name, Expect: 6, Idle: 300 * time.Millisecond})
	if err != nil || r.Missing != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
