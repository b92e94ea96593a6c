package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/buildinfo"
	"github.com/headgate/headgate/telemetry"
)

// Check returns why a node would not start, as far as its configuration alone
// says so: it assembles one over a store and a broker that keep nothing, by the
// steps of [Open]. It reaches no server and writes nothing. What the
// configuration refers to and is not here is left out, and named in unchecked.
func Check(ctx context.Context, cfg *Loaded, opts Options) (unchecked []string, err error) {
	if problems := cfg.Validate(); len(problems) > 0 {
		return nil, configError(problems)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	unchecked, err = cfg.checkDrivers(opts)
	if err != nil {
		return nil, err
	}
	trial, left := cfg.trial()
	n := &Node{cfg: trial, log: slog.New(slog.DiscardHandler), metrics: telemetry.New(telemetry.Config{Version: buildinfo.String()})}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	open, err := pick(opts.Drivers.Stores, "", "sqlite", "store.driver")
	if err != nil {
		return nil, err
	}
	st, err := open(ctx, StoreOptions{Memory: true, Log: n.log})
	if err != nil {
		return nil, err // as in openStore
	}
	n.Store = st
	for _, step := range []func(context.Context, Options) error{
		n.openPrincipals, n.openContracts, n.openBroker, n.openGuards, n.openRouter, n.openOutbox, n.openHTTP,
	} {
		if err := step(ctx, opts); err != nil {
			return nil, err
		}
	}
	return append(unchecked, left...), nil
}

// checkDrivers asks the drivers of store and broker whether they take their
// settings.
func (l *Loaded) checkDrivers(opts Options) (unchecked []string, err error) {
	if _, err := pick(opts.Drivers.Stores, l.Store.Driver, "sqlite", "store.driver"); err != nil {
		return nil, err
	}
	if check := opts.Drivers.CheckStore[l.Store.Driver]; check != nil {
		o, err := l.storeOptions(opts)
		switch {
		case err != nil:
			unchecked = append(unchecked, reason(err))
		default:
			if err := check(o); err != nil {
				return nil, l.refusedAt(urlOf("store", l.Store.URL), err)
			}
		}
	}
	name, _, err := l.brokerDriver(opts)
	if err != nil {
		return nil, err
	}
	if check := opts.Drivers.CheckBroker[name]; check != nil {
		o, err := l.brokerOptions(opts)
		switch {
		case err != nil:
			unchecked = append(unchecked, reason(err))
		default:
			if err := check(o); err != nil {
				return nil, l.refusedAt(urlOf("broker", l.Broker.URL), err)
			}
		}
	}
	return unchecked, nil
}

// reason is why something could not be looked at.
func reason(err error) string { return detail(err) + "; what it holds was not checked" }

// trial is a copy for a node that keeps nothing, without what refers to things
// that are not here: secrets of another host, and principals that only the
// store knows.
func (l *Loaded) trial() (t *Loaded, left []string) {
	c := *l
	c.Dev, c.Memory, c.Store, c.Broker, c.Durability = false, true, StoreConfig{}, BrokerConfig{}, ""
	absent := func(where string, s Secret) bool {
		_, err := s.Resolve()
		if err == nil {
			return false
		}
		left = append(left, where+": "+reason(err))
		return true
	}
	declared := map[string]bool{}
	c.Principals = slices.Clone(l.Principals)
	for i := range c.Principals {
		declared[c.Principals[i].Name] = true
		if absent("token of principal "+c.Principals[i].Name, c.Principals[i].Token) {
			c.Principals[i].Token = ""
		}
	}
	c.Leases.Seal = maps.Clone(l.Leases.Seal)
	for _, name := range slices.Sorted(maps.Keys(l.Leases.Seal)) {
		if absent("leases.seal."+name+".url", l.Leases.Seal[name].URL) {
			delete(c.Leases.Seal, name)
		}
	}
	c.Outbox = slices.DeleteFunc(slices.Clone(l.Outbox), func(o Outbox) bool { return absent("outbox "+o.Name+": url", o.URL) })
	unknown := func(where, name string) {
		left = append(left, fmt.Sprintf("%s: the principal %s is not declared here; whether the store has it was not checked", where, name))
	}
	for i, o := range l.Outbox {
		at := fmt.Sprintf("outbox[%d]", i)
		if o.Principal != "" && !declared[o.Principal] {
			unknown(at+".principal", o.Principal)
		}
		for _, role := range slices.Sorted(maps.Keys(o.Roles)) {
			if !declared[o.Roles[role]] {
				unknown(joinPath(at+".roles", role), o.Roles[role])
			}
		}
	}
	c.Subscriptions = maps.Clone(l.Subscriptions)
	for _, name := range slices.Sorted(maps.Keys(l.Subscriptions)) {
		if as := l.subscriptionSpec(name).As; !declared[as] {
			left = append(left, fmt.Sprintf("subscriptions.%s: the principal %s is not declared here; whether the store has it, and it may listen, was not checked", name, as))
			delete(c.Subscriptions, name)
			continue
		}
		s := c.Subscriptions[name]
		if i := strings.LastIndexByte(s.From, '/'); i > 0 {
			if partition, _, found := strings.Cut(s.From[i:], ":"); found { // how far the partition goes is the broker's to say
				s.From = s.From[:i] + partition + ":0"
			}
		}
		c.Subscriptions[name] = s
	}
	return &c, left
}
