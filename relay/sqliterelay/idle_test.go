package sqliterelay

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/relay"
)

// statements counts what is run on the connections of a relay.
type statements struct {
	mu  sync.Mutex
	all map[string]int
}

func (s *statements) connect(path string) func() (*sql.DB, error) {
	return func() (*sql.DB, error) {
		return driver.Open("file:"+path, func(c *sqlite3.Conn) error {
			return c.Trace(sqlite3.TRACE_STMT, func(_ sqlite3.TraceEvent, _, text any) error {
				query, _ := text.(string) // of a statement of SQLite itself there is none
				s.mu.Lock()
				defer s.mu.Unlock()
				s.all[strings.Join(strings.Fields(query), " ")]++
				return nil
			})
		})
	}
}

// take returns the counts and begins anew.
func (s *statements) take() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = map[string]int{}
	return all
}

// An idle minute reads and writes no table; the minute is virtual.
func TestIdleRelayRunsNoStatement(t *testing.T) {
	path := t.TempDir() + "/app.db"
	db := open(t, path)
	must(t, Install(t.Context(), db))
	emit(t, db, 1, 10, "k")
	synctest.Test(t, func(t *testing.T) {
		seen := &statements{all: map[string]int{}}
		src, err := New(Config{Path: path, Connect: seen.connect(path)})
		must(t, err)
		x, err := relay.New(relay.Config{Name: "orders", Source: src, Admit: sink{}, Keep: keeper{}, Principal: func(string) (*headgate.Principal, error) { return &headgate.Principal{Name: "orders"}, nil }})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- x.Run(ctx) }()
		time.Sleep(10 * time.Second)
		if before := seen.take(); x.Status().Stored != 10 || before[`PRAGMA data_version`] == 0 || len(before) < 5 {
			t.Errorf("%+v; the count sees %v", x.Status(), before)
		}
		time.Sleep(time.Minute)
		idle := seen.take()
		polls := idle[`PRAGMA data_version`]
		delete(idle, `PRAGMA data_version`)
		if len(idle) > 0 || polls < 2900 {
			t.Errorf("%d polls, and %v", polls, idle)
		}
		cancel()
		must(t, <-ended)
	})
}

// A writer in the same process needs no poll: no time passes at all.
func TestWakeReadsAtOnce(t *testing.T) {
	path := t.TempDir() + "/app.db"
	db := open(t, path)
	must(t, Install(t.Context(), db))
	synctest.Test(t, func(t *testing.T) {
		src, err := New(Config{Path: path, Connect: func() (*sql.DB, error) { return connect(path) }})
		must(t, err)
		s, err := src.Open(t.Context())
		must(t, err)
		read := make(chan time.Time)
		go func() {
			for range 2 {
				changes, err := s.Receive(t.Context())
				if len(changes) == 1 && changes[0].Kind == relay.Present { // once, when it was opened
					changes, err = s.Receive(t.Context())
				}
				if err != nil || len(changes) != 3 {
					t.Errorf("%d changes: %v", len(changes), err)
				}
				read <- time.Now()
			}
		}()
		synctest.Wait()
		began := time.Now()
		emit(t, db, 1, 1, "k")
		src.Wake()
		if d := (<-read).Sub(began); d != 0 {
			t.Errorf("a row was read after %s", d)
		}
		synctest.Wait()
		began = time.Now()
		emit(t, db, 2, 1, "k")
		if d := (<-read).Sub(began); d <= 0 || d > pollEvery {
			t.Errorf("a row of another process was read after %s", d)
		}
		must(t, s.Close(t.Context()))
	})
}
