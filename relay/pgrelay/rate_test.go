package pgrelay_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
)

type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logLines) with(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// A principal beyond its rate of roots delays its own rows, and those behind
// them of the same keys, but no others of the lane.
func TestRateOfOneRoleDelaysNoOther(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.Who["slow"] = &headgate.Principal{Name: "slow", Kind: headgate.KindSystem, Emit: []string{"order.*"}, Roots: headgate.RootRight{Allowed: true, Rate: 0.001, Burst: 1}}
	var log logLines
	x := r.run(func(c *relay.Config) {
		c.Lanes, c.Drain, c.Log = 1, time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	})
	r.exec(`INSERT INTO headgate.outbox (id, role, type, key, data) SELECT 's' || i, 'slow', 'order.placed', 'slow' || i % 5, convert_to('{"n":' || 1000 + i || '}', 'UTF8') FROM generate_series(1, 20) i`)
	r.until("the rate is used up", func() bool { return x.Status().Waiting[headgate.CodeRateLimited] == 19 })
	r.exec(`SELECT headgate.emit('order.placed', '{"n":2000}', 'slow2')`) // behind slow rows of its key
	r.emit(1, 50)
	rows := x.Wait(t, 51)
	for _, d := range rows[1:] {
		if d.Row.Role == "slow" || d.Row.Event.Key == "slow2" {
			t.Errorf("%s of role %s and key %s came out of its turn", d.Row.Event.ID, d.Row.Role, d.Row.Event.Key)
		}
	}
	if s := x.Status(); s.InFlight != 20 || s.Waiting[headgate.CodeRateLimited] != 19 {
		t.Errorf("waiting: %+v", s)
	}
	if n := log.with("outbox rows wait"); n != 1 || log.with("role=slow") != 1 || log.with("code=rate_limited") != 1 {
		t.Errorf("the log tells of the wait %d times", n)
	}
}
