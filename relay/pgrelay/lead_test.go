package pgrelay_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay/pgrelay"
)

// late is a way to the server on which statements with some text in them wait to
// be let through.
func late(t *testing.T, raw, text string) (through string, held <-chan struct{}, release chan struct{}) {
	t.Helper()
	u, err := url.Parse(raw)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	waits, release := make(chan struct{}, 10), make(chan struct{})
	server := u.Host
	pass := func(c net.Conn) {
		defer c.Close()
		s, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer s.Close()
		go func() {
			_, _ = io.Copy(c, s) // it ends with the connection
			c.Close()
		}()
		for b := make([]byte, 1<<16); ; {
			n, err := c.Read(b)
			if bytes.Contains(b[:n], []byte(text)) {
				waits <- struct{}{}
				<-release
			}
			if _, failed := s.Write(b[:n]); failed != nil || err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go pass(c)
		}
	}()
	u.Host = l.Addr().String()
	return u.String(), waits, release
}

// A relay that another one took over from does not move the slot, however late
// its statement comes: what the other has proven says nothing of the events that
// the slot would then leave out.
func TestSupersededRelayLeavesTheSlot(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	r.until("all of it is proven", r.allProven)
	x.Stop()
	r.exec(gaveUp)
	through, held, release := late(t, r.db, "pg_replication_slot_advance")
	first := r.Run(r.sourceOf(pgrelay.Config{URL: through, Beat: 500 * time.Millisecond}), nil)
	<-held
	second := r.Run(relaytest.HastyEnd(r.sourceOf(pgrelay.Config{Beat: time.Second})), nil)
	r.until("the second leads, and streams", r.quiet)
	r.emit(11, 20)
	r.until("all of it is stored and proven", func() bool {
		return len(r.Stored()) == 20 && r.allProven() && pgtest.Exec(t, r.db, `SELECT beat = proven_beat FROM headgate.relay_state`)[0][0] == "t"
	})
	second.Stop() // as if it was killed
	r.emit(21, 30)
	before, _ := r.slot()
	close(release)
	r.until("the first has had its answer", func() bool { // and leads again, or has moved the slot
		now, _ := r.slot()
		return now != before || len(r.Stored()) >= 30
	})
	first.Stop()
	third := r.run(nil)
	r.emit(31, 40)
	r.until("all are stored", func() bool { return len(r.Stored()) >= 40 })
	r.Verify(40)
	third.Stop()
}
