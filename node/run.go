package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/hold"
)

// trimEvery is how often retention looks for events to trim.
const trimEvery = time.Minute

// Listen opens the listener of the configured address. An address that other
// hosts reach is allowed: every request needs a token there as well.
func (n *Node) Listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", n.cfg.listen())
	if err != nil {
		return nil, &headgate.Error{
			Code: headgate.CodeUnavailable, Detail: fmt.Sprintf("cannot listen on %s: %v", n.cfg.listen(), err), Err: err,
			Fix: "Stop what listens there, or choose another address: listen in the file of serve, --listen of dev.",
		}
	}
	return ln, nil
}

// Run serves on the listener until ctx ends, then drains and closes the node:
// requests first, then deliveries, then what follows the streams, then broker
// and store. It returns the first failure. A node runs once.
func (n *Node) Run(ctx context.Context, ln net.Listener) error {
	url := "http://" + ln.Addr().String()
	if err := writeFile(filepath.Join(n.cfg.dataDir(), URLFile), url+"\n", 0o644); err != nil {
		// It only saves the command line a flag. A node on a full disk must
		// start all the same, so that what is stored can be worked off.
		n.log.Warn("the address could not be written down", "file", URLFile, "error", err)
		_ = os.Remove(filepath.Join(n.cfg.dataDir(), URLFile)) // of another run: worse than none
	}
	// Two rings: the door closes when ctx ends; what is behind it is told to
	// stop only when the door is closed.
	inner, behind := newGroup(context.WithoutCancel(ctx))
	behind.run(inner, "quarantine", n.Quarantine.Run)
	behind.run(inner, "router", n.Router.Run)
	behind.run(inner, "index", n.Index.Run)
	behind.run(inner, "causal", n.Causal.Run)
	behind.run(inner, "lease", n.Leases.Run)
	behind.run(inner, "retention", n.retention)
	behind.run(inner, "guesses", func(ctx context.Context) error { return n.Registry.KeepGuesses(ctx, &n.guesses, n.log) })
	outer, door := newGroup(ctx)
	for _, r := range n.Relays {
		door.run(outer, "outbox "+r.Status().Name, r.Run)
	}
	door.run(outer, "streams", n.keepStreams)
	door.run(outer, "http", func(ctx context.Context) error {
		select {
		case <-n.Router.Started():
		case <-behind.failed: // its error is the one to report
			return ln.Close()
		case <-ctx.Done():
			return ln.Close()
		}
		n.ready.on.Store(true)
		defer n.ready.on.Store(false)
		return gateway.Serve(ctx, ln, n.gateway, &gateway.ServeOpts{Connections: n.cfg.Limits.Connections, Log: n.log})
	})
	select {
	case <-door.failed:
	case <-behind.failed:
		door.stop() // a component ended by itself: close the door, then the rest
	}
	return errors.Join(door.wait(), behind.wait(), n.Close(context.WithoutCancel(ctx)))
}

// retention trims streams and the index behind them.
func (n *Node) retention(ctx context.Context) error {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := n.trimAlone(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("retention will try again", "error", err)
		}
	}
}

// trimAlone trims unless another node of the same store does.
func (n *Node) trimAlone(ctx context.Context) error {
	opts := &hold.Opts{Want: hold.Want{TTL: trimEvery, Worker: "retention"}}
	err := hold.Do(ctx, n.Leases.NodeKeeper(), lease.ReservedPrefix+"retention", opts, func(ctx context.Context, _ *hold.Lease) error {
		return n.trim(ctx)
	})
	if headgate.CodeOf(err) == headgate.CodeLeaseHeld {
		return nil
	}
	return err
}

func (n *Node) trim(ctx context.Context) error {
	// First: what nobody reads any more must not hold the trim.
	if err := n.Router.RemoveInactive(ctx); err != nil {
		return err
	}
	if err := n.Router.Trim(ctx); err != nil {
		return err
	}
	_, err := n.Index.Prune(ctx)
	return err
}

// group runs functions until one ends or its context does; then it ends all.
type group struct {
	stop   context.CancelFunc
	failed chan struct{} // closed when the first function returned
	once   sync.Once
	wg     sync.WaitGroup
	mu     sync.Mutex
	errs   []error
}

// newGroup returns a group and the context of its functions.
func newGroup(parent context.Context) (context.Context, *group) {
	ctx, stop := context.WithCancel(parent)
	return ctx, &group{stop: stop, failed: make(chan struct{})}
}

func (g *group) run(ctx context.Context, name string, fn func(context.Context) error) {
	g.wg.Go(func() {
		err := fn(ctx)
		// A node that is told to stop while it starts did not fail.
		stopped := errors.Is(err, context.Canceled) || ctx.Err() != nil && headgate.CodeOf(err) == headgate.CodeCanceled
		if err != nil && !stopped {
			g.mu.Lock()
			g.errs = append(g.errs, fmt.Errorf("%s: %w", name, err))
			g.mu.Unlock()
		}
		g.once.Do(func() { close(g.failed) })
	})
}

// wait ends what still runs and returns every failure.
func (g *group) wait() error {
	g.stop()
	g.wg.Wait()
	return errors.Join(g.errs...)
}
