package relaytest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/natsbroker"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/topology"
)

// Database is what the processes need of one kind of database.
type Database struct {
	// Source opens the outbox of a place for a node. fault, if not nil, belongs
	// to the named points of the source.
	Source func(place string, fault func(point string)) (relay.Source, error)
	// Writer connects to a place. What it returns writes a transaction.
	Writer func(ctx context.Context, place string) (write func(Transaction) error, end func(), err error)
}

// Transaction is what the writer does at once: so many business rows of key Key,
// numbered on, each with its event {"n":NUMBER}.
type Transaction struct {
	Key, Rows int
	// Poison makes events that are refused for good: {"n":"kKEY/NUMBER"}.
	Poison bool
	// Rollback undoes it. Its events bear negative numbers.
	Rollback bool
}

// variable tells a process what it is.
const variable = "HEADGATE_RELAYTEST"

// Variant is a relay that does a thing wrong on purpose, so that a harness can
// show that it would find it.
type Variant string

// The variants. Right does everything as it should.
const (
	Right Variant = ""
	Early Variant = "confirms what it only received"
	Muted Variant = "never confirms"
	Hasty Variant = "ends without handing over"
	// Forgetful needs Slow.
	Forgetful Variant = "does not keep what is set aside"
)

// process is what one started process is.
type process struct {
	What       string // node, writer or broker
	Place, Dir string
	At         string // POINT:N
	NATS       string
	Prefix     string
	Durability broker.Durability
	Variant    Variant
	Tell       bool
	Slow       bool
}

// Main runs the tests of a package, or what this process was started for, and
// returns the code with which TestMain has to exit.
func Main(m *testing.M, d Database) int {
	text := os.Getenv(variable)
	if text == "" {
		// The tests wait for heartbeats and processes most of the time. An argument
		// -parallel counts instead.
		if err := flag.Set("test.parallel", "4"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}
	var p process
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		ctx := context.Background()
		switch p.What {
		case "node":
			err = p.node(ctx, d)
		case "writer":
			err = p.writer(ctx, d)
		default:
			err = p.server()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// AtRow is the named point at which a row is done.
const AtRow = "row"

// node is a node's inside on disk. At the named point it kills itself, at
// SIGTERM it ends in good order.
func (p process) node(ctx context.Context, d Database) error {
	st, err := sqlitestore.Open(ctx, sqlitestore.Config{Path: filepath.Join(p.Dir, "store.db")})
	if err != nil {
		return err
	}
	defer st.Close()
	br, err := p.broker(ctx)
	if err != nil {
		return err
	}
	defer br.Close(ctx)
	var inside *parts
	err = patiently(func() (err error) {
		inside, err = assemble(ctx, st, br, time.Now)
		return err
	})
	if err != nil {
		return err
	}
	defer inside.Quarantine.Close(ctx)
	fault := p.fault()
	src, err := d.Source(p.Place, fault)
	if err != nil {
		return err
	}
	who, inFlight := orders(), 0
	if p.Slow {
		who.Roots.Rate, who.Roots.Burst, inFlight = 5, 5, 64 // less than is written on the slowest machine
	}
	r, err := relay.New(relay.Config{
		Name: "orders", Source: p.Variant.of(src), Admit: inside.Door, Keep: inside.Quarantine, Fault: fault, Broker: br, Streams: []string{topology.DefaultStream},
		Principal: func(string) (*headgate.Principal, error) { return who, nil }, InFlight: inFlight, Done: rows(fault),
	})
	if err != nil {
		return err
	}
	if p.Tell {
		go tell(r)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	if err := r.Run(ctx); err != nil {
		return err
	}
	if p.Tell {
		fmt.Fprintln(os.Stdout, toldOf(r))
	}
	return nil
}

// Told is what a node tells of its relay on its output, whenever it changes and
// in the end.
type Told struct {
	Leads             bool
	Confirmed         relay.Position
	Stored, Duplicate uint64
}

// String is the line that a node writes.
func (t Told) String() string { return fmt.Sprint(t.Leads, uint64(t.Confirmed), t.Stored, t.Duplicate) }

// ReadTold reads a line of the node's output; false when it is none.
func ReadTold(line string) (t Told, ok bool) {
	_, err := fmt.Sscan(line, &t.Leads, (*uint64)(&t.Confirmed), &t.Stored, &t.Duplicate)
	return t, err == nil
}

func toldOf(r *relay.Relay) Told {
	s := r.Status()
	return Told{s.Leads, s.Confirmed, s.Stored, s.Duplicate}
}

func tell(r *relay.Relay) {
	var last Told
	for range time.Tick(5 * time.Millisecond) {
		if now := toldOf(r); now != last {
			last = now
			fmt.Fprintln(os.Stdout, now)
		}
	}
}

func (v Variant) of(src relay.Source) relay.Source {
	wrap := map[Variant]func(relay.Session) relay.Session{
		Early:     func(s relay.Session) relay.Session { return early{s} },
		Muted:     func(s relay.Session) relay.Session { return mute{hasty{s}} },
		Hasty:     func(s relay.Session) relay.Session { return hasty{s} },
		Forgetful: func(s relay.Session) relay.Session { return forgetful{s, s.(relay.Aside)} },
	}[v]
	if wrap == nil {
		return src
	}
	return Wrapped{src, wrap}
}

// fault dies when it comes to the named point for the nth time.
func (p process) fault() func(string) {
	point, text, ok := strings.Cut(p.At, ":")
	n, err := strconv.Atoi(text)
	if !ok || err != nil {
		return nil
	}
	seen := make(chan struct{}, n)
	return func(at string) {
		if at != point {
			return
		}
		select {
		case seen <- struct{}{}:
		default:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

// rows makes the end of each row a named point.
func rows(fault func(string)) func(relay.Done) {
	if fault == nil {
		return nil
	}
	return func(relay.Done) { fault(AtRow) }
}

// broker opens the driver: of a server in this process, or of the one named.
func (p process) broker(ctx context.Context) (broker.Broker, error) {
	cfg := natsbroker.Config{Dir: filepath.Join(p.Dir, "broker"), Durability: p.Durability}
	if p.NATS != "" {
		cfg = natsbroker.Config{URL: p.NATS, Prefix: p.Prefix, Durability: p.Durability}
	}
	var br *natsbroker.Broker
	err := patiently(func() (err error) {
		br, err = natsbroker.Open(ctx, cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = patiently(func() error {
		_, err := br.Ensure(ctx, []broker.StreamSpec{{Name: topology.DefaultStream, Partitions: Partitions}})
		return err
	})
	return br, err
}

// patiently tries until the server answers, as what starts nodes anew in earnest
// does.
func patiently(try func() error) error {
	err := try()
	for late := time.After(time.Minute); headgate.CodeOf(err) == headgate.CodeUnavailable; err = try() {
		select {
		case <-late:
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
	return err
}

// writer writes business rows and their events, one key for each of its
// workers, until it is killed. One transaction in five is rolled back, the events
// of one in forty are poison. Outside of campaigns they pause after each: a backlog
// of minutes proves no more than one of seconds.
func (p process) writer(ctx context.Context, d Database) error {
	failed := make(chan error)
	pause := 10 * time.Millisecond
	if Campaign() {
		pause = 0
	}
	for k := range Keys {
		go func() {
			tick := time.NewTicker(20 * time.Millisecond) // between attempts, while the server is down
			for range tick.C {
				write, end, err := d.Writer(ctx, p.Place)
				if err != nil {
					continue
				}
				for ; err == nil; rest(pause) {
					err = write(Transaction{Key: k, Rows: 1 + rand.N(4), Poison: rand.N(40) == 0, Rollback: rand.N(5) == 0})
				}
				end()
			}
		}()
	}
	return <-failed
}

func rest(d time.Duration) {
	if d > 0 {
		<-time.NewTimer(d).C
	}
}

// Keys is how many keys the writer has: 0 to Keys - 1.
const Keys = 6

// server is a broker in a process of its own.
func (p process) server() error {
	port, err := strconv.Atoi(p.NATS[strings.LastIndexByte(p.NATS, ':')+1:])
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: filepath.Join(p.Dir, "nats"), SyncAlways: true, MaxPayload: 8 << 20,
	})
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}
