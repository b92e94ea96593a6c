package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/registry/compat"
	"github.com/headgate/headgate/store"
)

// Config configures a registry.
type Config struct {
	// Store keeps the contracts. Required.
	Store store.Store
	// Policy is that of new versions. Stored versions keep the one that they
	// were registered under.
	Policy contract.Policy
	// Compatibility that a changed version must have with earlier ones: none
	// (default), backward, backward_transitive, forward, forward_transitive,
	// full or full_transitive. It holds where neither the subject nor the
	// registry itself was configured otherwise. Drafts are always replaced.
	Compatibility string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Registry holds the contracts in use.
type Registry struct {
	store  store.Store
	policy contract.Policy
	level  compat.Level
	now    func() time.Time

	inUse atomic.Pointer[map[string]*inUse]
	// broken are the subjects whose latest version does not compile.
	broken atomic.Pointer[map[string]error]

	// turn serialises registrations that met another one.
	turn sync.Mutex

	// mu serialises the publication of a changed set, never its readers.
	mu sync.Mutex
	// compiled keeps compiled versions that are not in use, by subject@version.
	compiled map[string]*contract.Contract
}

// inUse is what the perimeter knows of one subject. It is replaced whole.
type inUse struct {
	current *contract.Contract
	// ids are the live versions by the ids that Confluent frames name them by.
	ids map[uint32]int
	// prints are the live Avro versions by their fingerprints, made when a
	// frame first names one that is not the current version's.
	once   sync.Once
	prints map[uint64]int
}

// maxCompiled bounds the compiled versions that are kept beside those in use.
const maxCompiled = 128

// Open loads and compiles all contracts that are in use. Older versions are
// compiled when they are asked for.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	if cfg.Store == nil {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "registry: Store is missing")
	}
	if err := cfg.Policy.Validate(); err != nil {
		return nil, err
	}
	level, ok := compat.ParseLevel(cmp.Or(cfg.Compatibility, string(compat.None)))
	if !ok {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "registry: Compatibility: want one of %v", compat.Levels())
	}
	r := &Registry{
		store: cfg.Store, policy: cfg.Policy, level: level, now: cfg.Now,
		compiled: map[string]*contract.Contract{},
	}
	if r.now == nil {
		r.now = time.Now
	}
	if err := r.adopt(ctx); err != nil {
		return nil, err
	}
	var rows []store.Contract
	ids := map[string]map[uint32]int{}
	err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if rows, err = tx.Contracts.Latest(ctx); err != nil {
			return err
		}
		all, err := tx.Registry.Versions(ctx, store.RegistryFilter{})
		for _, v := range all {
			if n, err := parseName(v.Subject); err == nil && n.gated() && !v.Deleted {
				if ids[n.plain] == nil {
					ids[n.plain] = map[uint32]int{}
				}
				ids[n.plain][uint32(v.ID)] = v.Version
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	set, broken := make(map[string]*inUse, len(rows)), map[string]error{}
	for _, row := range rows {
		c, err := compileRow(row)
		if err != nil {
			broken[row.Subject] = noLonger(row, err)
			continue
		}
		set[row.Subject] = &inUse{current: c, ids: ids[row.Subject]}
	}
	r.inUse.Store(&set)
	r.broken.Store(&broken)
	return r, nil
}

// compileRow compiles a stored version under its own policy.
func compileRow(row store.Contract) (*contract.Contract, error) {
	pol, err := contract.UnmarshalPolicy(row.Policy)
	if err != nil {
		return nil, err
	}
	kind, ok := contract.ParseType(row.Type)
	if !ok {
		return nil, headgate.NewError(headgate.CodeContractInvalid, "the stored contract is of the type %q, which this version does not know", show(row.Type))
	}
	c, _, err := contract.Compile(row.Subject, row.Version, row.Schema, &contract.CompileOpts{Policy: pol, Type: kind, Draft: row.Draft})
	return c, err
}

// Lookup returns the contract in use of a subject, or nil. It takes no lock.
func (r *Registry) Lookup(subject string) *contract.Contract {
	if u := (*r.inUse.Load())[subject]; u != nil {
		return u.current
	}
	return nil
}

// Policy returns the policy that new versions are compiled under.
func (r *Registry) Policy() contract.Policy { return r.policy }

// Len returns how many subjects have a contract in use.
func (r *Registry) Len() int { return len(*r.inUse.Load()) }

// Broken returns why a subject that has a contract has none in use: its latest
// version, stored by an earlier Headgate, does not compile. Otherwise it returns
// nil. It takes no lock.
func (r *Registry) Broken(subject string) error { return (*r.broken.Load())[subject] }

// AllBroken returns the subjects whose stored contract does not compile, with
// the reasons. Their events are refused until a new version is registered.
func (r *Registry) AllBroken() map[string]error { return maps.Clone(*r.broken.Load()) }

// noLonger is why a stored version is not in use.
func noLonger(row store.Contract, err error) error {
	why := err.Error()
	if e := headgate.AsError(err); e != nil && e.Detail != "" {
		why = e.Detail
	}
	return &headgate.Error{
		Code: headgate.CodeContractInvalid, Err: err,
		Detail: fmt.Sprintf("version %d of %s no longer compiles: %s", row.Version, row.Subject, why),
		Fix:    "Register a new version of the contract, or ask an administrator to; until then its events are refused.",
	}
}

// publish brings what Lookup sees of a subject up to the store. The candidate
// is a compiled version that is likely the latest; it may be nil.
func (r *Registry) publish(ctx context.Context, subject string, candidate *contract.Contract) error {
	for {
		row, _, found, err := r.latest(ctx, subject)
		if err != nil {
			return err
		}
		var c *contract.Contract
		var broken error
		if found {
			if candidate != nil && candidate.Ref().Version == row.Version {
				c = candidate
			} else {
				c, broken = r.compile(row)
			}
		}
		done, err := r.swap(ctx, subject, row, found, c, broken)
		if err != nil || done {
			return err
		}
	}
}

// swap puts a compiled version in use, unless the store changed meanwhile.
func (r *Registry) swap(ctx context.Context, subject string, row store.Contract, found bool, c *contract.Contract, broken error) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, ids, stillFound, err := r.latest(ctx, subject)
	if err != nil {
		return false, err
	}
	if stillFound != found || now.Version != row.Version {
		return false, nil
	}
	set := maps.Clone(*r.inUse.Load())
	if c != nil {
		set[subject] = &inUse{current: c, ids: ids}
	} else {
		delete(set, subject)
	}
	r.inUse.Store(&set)
	faults := r.AllBroken()
	delete(faults, subject)
	if broken != nil {
		faults[subject] = noLonger(row, broken)
	}
	r.broken.Store(&faults)
	return true, nil
}

// latest reads the version in use, the ids of all live versions, and whether
// there is one.
func (r *Registry) latest(ctx context.Context, subject string) (row store.Contract, ids map[uint32]int, found bool, err error) {
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		ids = map[uint32]int{}
		all, err := tx.Registry.Versions(ctx, store.RegistryFilter{Subject: name{DefaultContext, subject}.String()})
		if err != nil {
			return err
		}
		for _, v := range live(all) {
			ids[uint32(v.ID)] = v.Version
		}
		row, err = tx.Contracts.Get(ctx, subject, 0)
		return err
	})
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return store.Contract{}, nil, false, nil
	}
	return row, ids, err == nil, err
}

// compile compiles a stored version, or returns it from the cache.
func (r *Registry) compile(row store.Contract) (*contract.Contract, error) {
	key := headgate.ContractRef{Subject: row.Subject, Version: row.Version}.String()
	r.mu.Lock()
	c := r.compiled[key]
	r.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := compileRow(row)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.compiled) >= maxCompiled {
		clear(r.compiled)
	}
	r.compiled[key] = c
	return c, nil
}
