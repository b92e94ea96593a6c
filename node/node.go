package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/index"
	"github.com/headgate/headgate/internal/buildinfo"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/principal"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/telemetry"
	"github.com/headgate/headgate/topology"
)

// Node is one assembled node. Its parts are open for a program that embeds
// it: handlers are attached to Router before Run.
type Node struct {
	Store      store.Store
	Broker     broker.Broker
	Principals *principal.Directory
	Registry   *registry.Registry
	Topology   *topology.Table
	Quarantine *quarantine.Quarantine
	Causal     *causal.Engine
	Leases     *lease.Service
	Perimeter  *perimeter.Perimeter
	Router     *router.Router
	Index      *index.Index
	Relays     []*relay.Relay

	cfg      *Loaded
	log      *slog.Logger
	metrics  *telemetry.Metrics
	gateway  *gateway.Gateway
	admin    string // dev's admin token
	warnings []string
	ready    readiness
	look     storeLook
	owned    owned
	guesses  contract.Guesses
	closers  []func()
}

// Options are what a node is opened with beside its configuration.
type Options struct {
	Drivers Drivers
	Log     *slog.Logger // default: discards
	// Observer sees single events, beside the node's own metrics.
	Observer *headgate.Observer
}

// Open assembles a node. On an error everything that was opened is closed.
func Open(ctx context.Context, cfg *Loaded, opts Options) (*Node, error) {
	if problems := cfg.Validate(); len(problems) > 0 {
		return nil, configError(problems)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	n := &Node{cfg: cfg, log: opts.Log, metrics: telemetry.New(telemetry.Config{Version: buildinfo.String()})}
	for _, step := range []func(context.Context, Options) error{
		n.openStore, n.openPrincipals, n.openContracts, n.openBroker, n.openGuards, n.openRouter, n.openOutbox, n.openHTTP,
	} {
		if err := step(ctx, opts); err != nil {
			return nil, errors.Join(err, n.Close(context.WithoutCancel(ctx)))
		}
	}
	return n, nil
}

func configError(problems []Problem) error {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return headgate.NewError(headgate.CodeInvalidConfig, "%s", strings.Join(lines, "; "))
}

func (n *Node) openStore(ctx context.Context, opts Options) error {
	dir := n.cfg.dataDir()
	if err := os.MkdirAll(dir, 0o700); err != nil { // in memory mode for the token alone
		return err
	}
	open, err := pick(opts.Drivers.Stores, n.cfg.Store.Driver, "sqlite", "store.driver")
	if err != nil {
		return err
	}
	o, err := n.cfg.storeOptions(opts)
	if err != nil {
		return err
	}
	opened, err := open(ctx, o)
	if err != nil {
		return n.cfg.refusedAt(urlOf("store", n.cfg.Store.URL), err) // what came with it may be a nil pointer in the interface, which Close must not find
	}
	n.Store = opened
	return nil
}

func (l *Loaded) storeOptions(opts Options) (StoreOptions, error) {
	url, err := l.Store.URL.Resolve()
	if err != nil {
		return StoreOptions{}, l.at("store.url", err)
	}
	return StoreOptions{Dir: filepath.Join(l.dataDir(), "store"), URL: url, Memory: l.Memory, Relaxed: l.Durability == "relaxed", Log: opts.Log}, nil
}

// pick returns the named driver, or the default one.
func pick[T any](drivers map[string]T, name, otherwise, what string) (T, error) {
	if name == "" {
		name = otherwise
	}
	d, ok := drivers[name]
	if !ok {
		return d, headgate.NewError(headgate.CodeInvalidConfig, "%s: this build has %s, not %q",
			what, strings.Join(slices.Sorted(maps.Keys(drivers)), ", "), name)
	}
	return d, nil
}

// pickScheme returns the driver of the scheme that a URL begins with. It repeats
// nothing of the URL, which may stand behind a reference.
func pickScheme[T any](drivers map[string]T, url, what string) (T, error) {
	scheme, _, _ := strings.Cut(url, ":")
	d, ok := drivers[scheme]
	if !ok {
		return d, headgate.NewError(headgate.CodeInvalidConfig, "%s: the URL is of none of the kinds that this build has: %s",
			what, strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
	}
	return d, nil
}

func (n *Node) openPrincipals(ctx context.Context, _ Options) error {
	var err error
	if n.Principals, err = principal.Open(ctx, principal.Config{Store: n.Store}); err != nil {
		return err
	}
	if err := n.cfg.declarePrincipals(ctx, n.Principals); err != nil {
		return err
	}
	if err := n.undeclarePrincipals(ctx); err != nil {
		return err
	}
	if n.cfg.Dev {
		n.admin, err = n.cfg.devAdmin(ctx, n.Principals)
	}
	return err
}

// undeclarePrincipals takes the access of principals that the file named once.
// Dev mode names none, and takes no one's access.
func (n *Node) undeclarePrincipals(ctx context.Context) error {
	if n.cfg.Dev {
		return nil
	}
	declared := make([]string, len(n.cfg.Principals))
	for i, p := range n.cfg.Principals {
		declared[i] = p.Name
	}
	removed, err := n.Principals.Undeclare(ctx, declared)
	if len(removed) > 0 {
		n.log.Info("principals that the configuration no longer names were removed", "principals", removed)
	}
	return err
}

func (n *Node) openContracts(ctx context.Context, _ Options) error {
	var err error
	var loaded []registry.Registered
	if n.Registry, loaded, err = n.cfg.contracts(ctx, n.Store); err != nil {
		return err
	}
	for _, c := range loaded {
		for _, w := range c.Warnings {
			n.warnings = append(n.warnings, fmt.Sprintf("contract %s: %s at %q: %s", c.Subject, w.Code, w.At, w.Detail))
		}
	}
	broken := n.Registry.AllBroken()
	for _, subject := range slices.Sorted(maps.Keys(broken)) {
		n.log.Error("a stored contract no longer compiles; its events are refused", "subject", subject, "error", broken[subject])
	}
	return n.Registry.LoadGuesses(ctx, &n.guesses)
}

// contracts opens the registry over a store and registers what contracts.dir
// holds. Like every path in the configuration it is relative to the folder that
// the command runs in.
func (l *Loaded) contracts(ctx context.Context, st store.Store) (*registry.Registry, []registry.Registered, error) {
	r, err := registry.Open(ctx, registry.Config{Store: st, Policy: l.policy(), Compatibility: l.compatibility()})
	if err != nil || l.Contracts.Dir == "" {
		return r, nil, err
	}
	loaded, err := r.LoadDir(ctx, os.DirFS(l.Contracts.Dir))
	if err != nil {
		return nil, nil, l.refusedAt("contracts.dir", fmt.Errorf("%s: %w", l.Contracts.Dir, err))
	}
	return r, loaded, nil
}

func (n *Node) openBroker(ctx context.Context, opts Options) error {
	var err error
	if n.Topology, err = n.cfg.Topology(); err != nil {
		return err
	}
	if n.Broker, err = n.cfg.openBroker(ctx, opts); err != nil {
		return err
	}
	if err := n.ownStreams(ctx); err != nil {
		return err
	}
	return n.ensureStreams(ctx)
}

func (n *Node) ensureStreams(ctx context.Context) error {
	var specs []broker.StreamSpec
	for _, s := range n.Topology.Streams() {
		specs = append(specs, broker.StreamSpec{Name: s.Name, Partitions: s.Partitions})
	}
	drifts, err := n.Broker.Ensure(ctx, specs)
	if err != nil {
		return err
	}
	var unsafe []string
	for _, d := range drifts {
		line := fmt.Sprintf("stream %s: %s is %s, configured %s", d.Stream, d.Setting, d.Have, d.Want)
		if d.Unsafe {
			unsafe = append(unsafe, line)
		} else {
			n.warnings = append(n.warnings, line)
		}
	}
	if len(unsafe) > 0 {
		return headgate.NewError(headgate.CodeInvalidConfig, "%s", strings.Join(unsafe, "; "))
	}
	return nil
}

func (n *Node) openGuards(ctx context.Context, opts Options) error {
	var err error
	n.Quarantine, err = quarantine.Open(ctx, quarantine.Config{
		Store: n.Store, Retain: time.Duration(n.cfg.Quarantine.Retain), RefusalQuota: n.cfg.Quarantine.RefusalQuota,
		Log: n.log, Version: buildinfo.String(),
	})
	if err != nil {
		return err
	}
	n.Causal, err = causal.Open(ctx, causal.Config{
		Store: n.Store, RootRate: headgate.RootRight{Allowed: true, Rate: float64(n.cfg.Defaults.Roots)},
		RootLife: n.cfg.rootLife(), Log: n.log,
	})
	if err != nil {
		return err
	}
	if err := n.openLeases(ctx, opts); err != nil {
		return err
	}
	var drafter perimeter.Drafter
	if n.cfg.Dev {
		drafter = n.Registry
	}
	n.Perimeter, err = perimeter.New(perimeter.Config{
		Broker: n.Broker, Contracts: n.Registry, Drafter: drafter, Causal: n.Causal, Quarantine: n.Quarantine,
		Topology: n.Topology, Observer: n.observer(opts), Log: n.log, Guesses: &n.guesses,
	})
	return err
}

func (n *Node) openRouter(ctx context.Context, opts Options) error {
	var err error
	n.Router, err = router.New(router.Config{
		Store: n.Store, Broker: n.Broker, Perimeter: n.Perimeter, Causal: n.Causal, Quarantine: n.Quarantine,
		Topology: n.Topology, Principals: n.Principals, Leases: n.Leases, Observer: n.observer(opts), Log: n.log,
		Defaults: n.cfg.subscriptionDefaults(),
		JSON:     func(e *headgate.Event) ([]byte, error) { return n.Registry.JSON(context.Background(), e) },
	})
	if err != nil {
		return err
	}
	n.Causal.SetClaims(n.Router)
	n.Perimeter.SetFencing(perimeter.Fencing{Leases: n.Leases, Store: n.Store, Outbox: n.Router})
	n.Index = index.New(index.Config{
		Store: n.Store, Broker: n.Broker, Topology: n.Topology, Router: n.Router, Causal: n.Causal, Quarantine: n.Quarantine, Log: n.log,
	})
	return n.declareSubscriptions(ctx)
}

// declareSubscriptions puts the declared subscriptions, as the principal that
// each names, or as the node itself.
func (n *Node) declareSubscriptions(ctx context.Context) error {
	operator := &headgate.Principal{Name: "config", Kind: headgate.KindSystem, Roles: []headgate.Role{headgate.RoleAdmin}, Listen: []string{"*"}}
	for _, name := range slices.Sorted(maps.Keys(n.cfg.Subscriptions)) {
		if _, err := n.Router.Put(ctx, operator, name, n.cfg.subscriptionSpec(name), "config"); err != nil {
			return n.cfg.subscriptionError(name, err)
		}
	}
	return n.undeclaredSubscriptions(ctx)
}

// subscriptionError puts an error at the setting of a declared subscription that
// it begins with, else at the subscription.
func (l *Loaded) subscriptionError(name string, err error) error {
	path := joinPath("subscriptions", name)
	e := headgate.AsError(err)
	if e == nil {
		return l.refusedAt(path, err)
	}
	said := *e
	said.Detail = strings.TrimPrefix(e.Detail, "subscription "+name+": ")
	if setting, what, _ := strings.Cut(said.Detail, ": "); l.IsSet(path + "." + setting) {
		path, said.Detail = path+"."+setting, what
	}
	return l.refusedAt(path, &said)
}

// undeclaredSubscriptions warns of subscriptions that the file named once: they
// hold progress and events, so that removing them is the operator's decision.
func (n *Node) undeclaredSubscriptions(ctx context.Context) error {
	if n.cfg.Dev {
		return nil
	}
	all, err := n.Router.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if _, declared := n.cfg.Subscriptions[s.Name]; s.Managed == "config" && !declared {
			n.warnings = append(n.warnings, fmt.Sprintf("subscription %s is no longer in the configuration, and still holds events back from retention; "+
				"headgate subscription rm %s ends it", s.Name, s.Name))
		}
	}
	return nil
}

// AdminToken returns dev's admin token; empty outside dev mode.
func (n *Node) AdminToken() string { return n.admin }

// Warnings returns what an operator should know although the node runs.
func (n *Node) Warnings() []string { return n.warnings }

// Handler returns the HTTP API.
func (n *Node) Handler() http.Handler { return n.gateway }

// Loopback reports whether an address is reachable from this host only.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// Close releases what Open took. A node that Run drained is closed already;
// closing it again does nothing.
func (n *Node) Close(ctx context.Context) error {
	var errs []error
	n.look.wait()
	if n.Quarantine != nil && n.Store != nil {
		errs = append(errs, n.Quarantine.Close(ctx))
	}
	if n.Broker != nil {
		errs = append(errs, n.Broker.Close(ctx))
	}
	if n.Store != nil {
		errs = append(errs, n.Store.Close())
	}
	for _, done := range n.closers {
		done()
	}
	n.Broker, n.Store, n.closers = nil, nil, nil
	return errors.Join(errs...)
}
