package bench

import (
	"testing"
	"time"
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
