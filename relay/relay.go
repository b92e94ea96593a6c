package relay

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
)

// Door is the name of this way into the perimeter.
const Door = "relay"

// Admitter is the perimeter.
type Admitter interface {
	Admit(ctx context.Context, s perimeter.Submission) []perimeter.Result
}

// Keeper is the quarantine.
type Keeper interface {
	Keep(ctx context.Context, rs []quarantine.Refusal, at []time.Time, keys []string) ([]string, error)
}

// Config configures a relay.
type Config struct {
	// Name names the outbox in logs, records and figures.
	Name   string
	Source Source
	Admit  Admitter
	Keep   Keeper
	// Principal returns who a database role writes as. Its error refuses the
	// row for good, unless a retry may help.
	Principal func(role string) (*headgate.Principal, error)
	// KeyOf returns the ordering key of an event that names none, as the type's
	// key expression yields it; "" when there is none. May be nil.
	KeyOf func(*headgate.Event) string
	// Broker and Streams are where the events of this outbox lie. Rows that may
	// have been submitted before, longer ago than the broker remembers ids, are
	// looked for there. Without a broker such a row is stored twice.
	Broker  broker.Broker
	Streams []string
	// Lanes is how many submissions run at the same time; default 32.
	Lanes int
	// InFlight and InFlightBytes bound what was read and is not done; default
	// 4096 rows and 32 MiB.
	InFlight, InFlightBytes int
	// Horizon is how long after its acknowledgement a row may still be lost by
	// the broker: positions are confirmed that much later. Default 0, right for
	// a broker whose acknowledgement is durable.
	Horizon time.Duration
	// Drain is how long Run waits for what is in flight when its context ends;
	// default 10 s.
	Drain time.Duration
	// Done, if set, is told of every row that is done.
	Done func(Done)
	// Fault, if set, is called at named points. It is for tests that end the
	// process there.
	Fault func(point string)
	Log   *slog.Logger     // default: none
	Now   func() time.Time // default time.Now
}

// Done is the end of one row.
type Done struct {
	Row *Row
	// Result is the perimeter's last word on it.
	Result perimeter.Result
	// QID is the quarantine record of a row that was refused for good.
	QID string
	At  time.Time
}

// Relay carries the events of one outbox.
type Relay struct {
	cfg Config

	mu     sync.Mutex
	status Status
	now    *run // the session that runs
}

// Status is what a relay does at the moment.
type Status struct {
	Name string `json:"name"`
	// Leads is whether this process reads the log; otherwise it waits.
	Leads bool `json:"leads"`
	// Error is why the last session ended; empty while one runs well.
	Error     string    `json:"error,omitempty"`
	Since     time.Time `json:"since"` // of Leads
	Confirmed Position  `json:"confirmed"`
	// InFlight and InFlightBytes are what was read and is not done, Lanes how
	// many lanes hold it, and Oldest when the oldest of it was committed; zero
	// when nothing is in flight.
	InFlight      int `json:"in_flight"`
	InFlightBytes int `json:"in_flight_bytes"`
	Lanes         int `json:"lanes"`
	// Waiting is how many of the rows in flight are held back, by the code of
	// what they wait for: rate_limited is a principal's rate of roots.
	Waiting map[headgate.Code]int `json:"waiting,omitempty"`
	// Aside are the rows that are set aside until their role's turn comes, those
	// with most first; they are not in flight. AsideFull says that no more fits.
	Aside     []AsideStatus `json:"aside,omitempty"`
	AsideFull bool          `json:"aside_full,omitempty"`
	Oldest    time.Time     `json:"oldest,omitzero"`
	Sessions  uint64        `json:"sessions"` // opened since the process started
	Stored    uint64        `json:"stored"`
	Duplicate uint64        `json:"duplicate"`
	Parked    uint64        `json:"parked"`
	Retried   uint64        `json:"retried"`
	LastDone  time.Time     `json:"last_done"`
	// Log is what the session knows of the log itself.
	Log LogStatus `json:"log"`
}

// LogStatus is what a session knows of its log. What its database does not have
// stays zero.
type LogStatus struct {
	// Epoch is that of the session's lead.
	Epoch int64 `json:"epoch,omitempty"`
	// Received is how far the log was read, End where it ended when the
	// database was last asked.
	Received Position `json:"received,omitempty"`
	End      Position `json:"end,omitempty"`
	// Held is how many bytes of log the database keeps for the relay, Room how
	// many more it may (-1: it has no bound), State its word for that.
	Held  int64  `json:"held_bytes,omitempty"`
	Room  int64  `json:"room_bytes,omitempty"`
	State string `json:"state,omitempty"`
	// RoundTrip is how long the last heartbeat took through the log.
	RoundTrip time.Duration `json:"round_trip,omitempty"`
	// Repair is why rows are read from the table instead of the log.
	Repair string `json:"repair,omitempty"`
}

// Teller is a session that tells of its log. Sessions need not be one.
type Teller interface {
	// LogStatus may be called at any time and does not block.
	LogStatus() LogStatus
}

// New returns a relay. The error, of code invalid_config, names what is missing.
func New(cfg Config) (*Relay, error) {
	var missing []string
	for _, f := range []struct {
		name string
		have bool
	}{
		{"Name", cfg.Name != ""},
		{"Source", cfg.Source != nil},
		{"Admit", cfg.Admit != nil},
		{"Keep", cfg.Keep != nil},
		{"Principal", cfg.Principal != nil},
	} {
		if !f.have {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "relay: required and missing: %s", strings.Join(missing, ", "))
	}
	setDefault(&cfg.Lanes, 32)
	setDefault(&cfg.InFlight, 4096)
	setDefault(&cfg.InFlightBytes, 32<<20)
	setDefault(&cfg.Drain, 10*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Fault == nil {
		cfg.Fault = func(string) {}
	}
	return &Relay{cfg: cfg, status: Status{Name: cfg.Name, Since: cfg.Now()}}, nil
}

func setDefault[T int | time.Duration](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}

// Status returns what the relay does at the moment.
func (r *Relay) Status() Status {
	r.mu.Lock()
	s, n := r.status, r.now
	r.mu.Unlock()
	if n != nil {
		n.tell(&s)
	}
	return s
}

func (r *Relay) note(change func(*Status)) {
	r.mu.Lock()
	change(&r.status)
	r.mu.Unlock()
}

// The pause between sessions that fail.
const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 10 * time.Second
)

// Run relays until ctx ends. A failing source is tried again for ever: its
// state is told by Status and the log.
func (r *Relay) Run(ctx context.Context) error {
	pause := shortestPause
	for ctx.Err() == nil {
		began := r.cfg.Now()
		err := r.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.note(func(s *Status) { s.Leads, s.Since, s.Error = false, r.cfg.Now(), message(err) })
		if r.cfg.Now().Sub(began) > longestPause {
			pause = shortestPause
		}
		r.cfg.Log.WarnContext(ctx, "outbox session ended and is opened anew", "outbox", r.cfg.Name, "error", err, "pause", pause)
		if !sleep(ctx, pause/2+rand.N(pause)) {
			return nil
		}
		pause = min(pause*2, longestPause)
	}
	return nil
}

func message(err error) string {
	if err == nil {
		return "the session ended"
	}
	if _, network := errors.AsType[*net.OpError](err); network && headgate.AsError(err) == nil {
		return "the connection to the database broke" // viewers read it: the log has the rest
	}
	return err.Error()
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// session opens the source and relays until it fails or ctx ends.
func (r *Relay) session(ctx context.Context) error {
	src, err := r.cfg.Source.Open(ctx)
	if err != nil {
		return err
	}
	n, err := newRun(ctx, r, src)
	if err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Drain)
		defer cancel()
		return errors.Join(err, src.Close(closing))
	}
	r.note(func(s *Status) {
		s.Leads, s.Since, s.Error = true, r.cfg.Now(), ""
		s.Sessions++
		r.now = n
	})
	r.cfg.Log.InfoContext(ctx, "outbox session began", "outbox", r.cfg.Name)
	err = n.relay(ctx)
	r.note(func(*Status) { r.now = nil })
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Drain)
	defer cancel()
	return errors.Join(err, src.Close(closing))
}
