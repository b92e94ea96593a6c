package pgrelay_test

import (
	"testing"

	"github.com/headgate/headgate/internal/pgtest"
)

// The publication is dropped under a relay, rows are written, and it is made
// again. Since PostgreSQL 18 the server goes on and leaves those rows out, with
// a warning that settings of the database keep from clients that do not ask.
func TestTrap31PublicationDroppedUnderTheRelay(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`ALTER DATABASE ` + r.connect().Config().Database + ` SET client_min_messages = 'error'`)
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	r.youngPublication()
	r.until("all are stored", func() bool { return len(r.Stored()) >= 30 })
	r.until("the stream is back", r.quiet)
	r.emit(31, 40)
	r.until("the stream goes on", func() bool { return len(r.Stored()) >= 40 })
	r.Verify(40)
	x.Stop()
}
