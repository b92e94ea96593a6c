// Package worker is a loop that pulls deliveries of a subscription from a node,
// hands each to a function, and settles it by what came of it.
//
// # Model
//
//	db := unitpgx.New(pool)
//	err := worker.Run(ctx, worker.Config{Client: node, Subscription: "billing", Maintain: db.Maintain, Remembers: db.Remembers},
//		func(ctx context.Context, d *worker.Delivery) error {
//			_, err := unit.Do(ctx, db, d.Delivery, func(ctx context.Context, tx pgx.Tx, out outbox.Tx) error {
//				…
//			})
//			return err
//		})
//
// # Invariants
//
//  1. A delivery is acknowledged only after the function returned nil.
//  2. At most Config.Concurrency functions run at once, and nothing is pulled
//     that cannot begin at once.
//  3. What unit.Settle calls drop is not settled: another worker has it.
//
// # Failure
//
// A worker that dies, and a settlement that is lost, leave the claim to run out;
// the event is delivered again, and the inbox finds it. A panic is an error of
// its delivery. A node that is away is asked again, at most every five seconds.
//
// # Concurrency
//
// Run waits for everything that it started.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/unit"
)

// Config configures a worker. Client and Subscription are required.
type Config struct {
	Client       *client.Client
	Subscription string
	// Consumer is what the effects belong to; default Subscription.
	Consumer string
	// Concurrency bounds the functions at work; default 4, at most 1000.
	Concurrency int
	// Wait is how long the node holds a pull open for a delivery; default 30 s.
	Wait time.Duration
	// Drain is how long functions may go on after the context ended; default
	// 10 s.
	Drain time.Duration
	// Maintain, if set, is called at the start and every Every (default an
	// hour): that of the inbox's database.
	Maintain func(context.Context) error
	Every    time.Duration
	// Remembers, if set, tells how long the inbox's database remembers events: that
	// of unitpgx, unitsql or unitsqlite. It is compared at the start with how long
	// the subscription's streams keep them, and a shorter memory is warned of: an
	// event that comes again later than that is refused as too_old.
	Remembers func(context.Context) (time.Duration, error)
	Log       *slog.Logger // default slog.Default()
}

// Delivery is one event with what a unit of work needs.
type Delivery struct {
	unit.Delivery
	Event    *headgate.Event
	Stream   string
	Position string
	Attempt  int // from 1
}

// Func handles one delivery. Nil acknowledges it; see unit.Settle for errors.
type Func func(ctx context.Context, d *Delivery) error

// Run works until ctx ends, which is no error, or the node refuses the
// subscription: not_found, forbidden, unauthenticated, invalid_argument.
func Run(ctx context.Context, cfg Config, fn Func) error {
	if cfg.Client == nil || cfg.Subscription == "" || fn == nil {
		return headgate.NewError(headgate.CodeInvalidArgument, "a worker needs a client, a subscription and a function")
	}
	cfg.Consumer = cmp.Or(cfg.Consumer, cfg.Subscription)
	cfg.Concurrency = min(max(cmp.Or(cfg.Concurrency, 4), 1), 1000)
	cfg.Wait, cfg.Drain, cfg.Every = cmp.Or(cfg.Wait, 30*time.Second), cmp.Or(cfg.Drain, 10*time.Second), cmp.Or(cfg.Every, time.Hour)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	w := &worker{Config: cfg, fn: fn, settle: make(chan api.Settlement, cfg.Concurrency), free: make(chan struct{}, cfg.Concurrency)}
	return w.run(ctx)
}

type worker struct {
	Config
	fn     Func
	settle chan api.Settlement
	free   chan struct{} // holds what is at work
}

func (w *worker) run(ctx context.Context) error {
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	pulling, stop := context.WithCancel(ctx)
	defer stop()
	finished, finish := context.WithCancel(context.WithoutCancel(ctx))
	defer finish()
	var side, work sync.WaitGroup
	side.Go(func() {
		<-pulling.Done()
		if sleep(finished, w.Drain) {
			cancel()
		}
	})
	settled := make(chan struct{})
	go func() { defer close(settled); w.settleAll(context.WithoutCancel(ctx)) }()
	if w.Maintain != nil {
		side.Go(func() { w.maintain(pulling) })
	}
	if w.Remembers != nil {
		side.Go(func() { w.compare(calls) })
	}
	err := w.pull(pulling, calls, &work)
	stop()
	work.Wait()
	finish()
	close(w.settle)
	<-settled
	side.Wait()
	return err
}

// pull takes deliveries for as many functions as may begin.
func (w *worker) pull(ctx, calls context.Context, work *sync.WaitGroup) error {
	for trouble := 0; ; {
		select {
		case w.free <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		n := 1
		for n < w.Concurrency {
			select {
			case w.free <- struct{}{}:
				n++
				continue
			default:
			}
			break
		}
		got, err := w.Client.Pull(ctx, w.Subscription, n, w.Wait)
		for range n - len(got) {
			<-w.free
		}
		for i := range got {
			work.Go(func() { w.handle(calls, &got[i]); <-w.free })
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			trouble = 0
			continue
		}
		switch headgate.CodeOf(err) {
		case headgate.CodeNotFound, headgate.CodeForbidden, headgate.CodeUnauthenticated, headgate.CodeInvalidArgument:
			return err
		}
		trouble++
		w.Log.Warn("pull failed", "subscription", w.Subscription, "err", err)
		if !sleep(ctx, min(50*time.Millisecond<<min(trouble, 10), 5*time.Second)) {
			return nil
		}
	}
}

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

// handle runs the function for one delivery and says what came of it.
func (w *worker) handle(ctx context.Context, in *api.Delivery) {
	d, err := w.read(in)
	if err == nil {
		err = guard(ctx, w.fn, d)
	}
	outcome, delay := unit.Settle(err)
	if outcome == unit.Drop {
		w.Log.Warn("delivery left to another worker", "subscription", w.Subscription, "position", in.Position, "err", err)
		return
	}
	s := api.Settlement{Claim: in.Claim, Outcome: string(outcome), Delay: api.Duration(delay)}
	if err != nil {
		s.Reason = clip(err.Error())
	}
	w.settle <- s
}

func (w *worker) read(in *api.Delivery) (*Delivery, error) {
	dec := headgate.Decoder{Trusted: true, MaxEvent: 64 << 20}
	got, err := dec.Structured(in.Event)
	if err != nil {
		return nil, unit.Rejected(err)
	}
	lease := ""
	if in.Lease != nil {
		lease = in.Lease.Token
	}
	d, err := unit.Of(w.Consumer, got.Event, in.Cause, lease)
	if err != nil {
		return nil, err
	}
	return &Delivery{Delivery: d, Event: got.Event, Stream: in.Stream, Position: in.Position, Attempt: in.Attempt}, nil
}

func guard(ctx context.Context, fn Func, d *Delivery) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return fn(ctx, d)
}

func clip(s string) string {
	if len(s) > 1000 {
		s = s[:1000]
	}
	return strings.ToValidUTF8(s, "?")
}

// settleAll sends settlements, as many at once as are ready.
func (w *worker) settleAll(ctx context.Context) {
	for first := range w.settle {
		batch := []api.Settlement{first}
	more:
		for len(batch) < 1000 {
			select {
			case s, ok := <-w.settle:
				if !ok {
					break more
				}
				batch = append(batch, s)
			default:
				break more
			}
		}
		w.send(ctx, batch)
	}
}

// send repeats while the node is away for a moment. What is lost after all is
// delivered again when its claim ends.
func (w *worker) send(ctx context.Context, batch []api.Settlement) {
	for try := 1; ; try++ {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		out, err := w.Client.Settle(call, w.Subscription, batch...)
		cancel()
		for _, r := range out.Results {
			if !r.Settled {
				w.Log.Warn("delivery not settled", "subscription", w.Subscription, "code", r.Code, "detail", r.Detail)
			}
		}
		if err == nil || len(out.Results) > 0 {
			return
		}
		if e := headgate.AsError(err); try == 4 || e == nil || e.Info().Retry != headgate.RetryLater {
			w.Log.Warn("settle failed", "subscription", w.Subscription, "deliveries", len(batch), "err", err)
			return
		}
		if !sleep(ctx, 50*time.Millisecond<<try) {
			return
		}
	}
}

// compare warns of an inbox that forgets what its streams may deliver again.
func (w *worker) compare(ctx context.Context) {
	inbox, err := w.Remembers(ctx)
	if err == nil {
		var s api.Subscription
		if s, err = w.Client.Subscription(ctx, w.Subscription); err == nil && inbox <= time.Duration(s.Retain) {
			w.Log.Warn("inbox forgets events that the streams still keep; make it remember longer: headgate inbox init --retain",
				"subscription", w.Subscription, "inbox", inbox, "streams", time.Duration(s.Retain))
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		w.Log.Warn("inbox not compared with the streams", "subscription", w.Subscription, "err", err)
	}
}

func (w *worker) maintain(ctx context.Context) {
	for {
		if err := w.Maintain(ctx); err != nil && !errors.Is(err, context.Canceled) {
			w.Log.Warn("inbox not maintained", "err", err)
		}
		if !sleep(ctx, w.Every) {
			return
		}
	}
}
