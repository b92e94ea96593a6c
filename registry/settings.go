package registry

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/registry/compat"
	"github.com/headgate/headgate/store"
)

// Keys of what the registry keeps among the store's settings.
const (
	keyConfig = "registry/config/"
	keyMode   = "registry/mode/"
	keyLastID = "registry/last-id/"
)

// Mode says what may be done to a subject.
type Mode string

// The modes. FORWARD, which sends registrations on to another registry, does
// not exist here.
const (
	ReadWrite        Mode = "READWRITE"
	ReadOnly         Mode = "READONLY"
	ReadOnlyOverride Mode = "READONLY_OVERRIDE" // of the whole registry, whatever subjects say
	Import           Mode = "IMPORT"            // ids and versions are the importer's; nothing is compared
)

// Compatibility is the configuration of a subject, a context or the registry.
// Empty parts are not configured.
type Compatibility struct {
	Level     compat.Level  `json:"level,omitempty"`
	Policy    compat.Policy `json:"policy,omitempty"`
	Normalize *bool         `json:"normalize,omitempty"`
}

// scopes returns where a setting of a subject is looked for: the subject, its
// context, the registry. The empty subject is the registry itself.
func scopes(n name) []string {
	all := []string{n.String()}
	if n.plain != "" && n.context != DefaultContext {
		all = append(all, name{n.context, ""}.String())
	}
	if all[len(all)-1] != "" {
		all = append(all, "")
	}
	return all
}

func setting(ctx context.Context, tx *store.Tx, key string, into any) (bool, error) {
	b, err := tx.Settings.Get(ctx, key)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal(b, into)
}

// effective returns what holds for a subject.
func (r *Registry) effective(ctx context.Context, tx *store.Tx, n name) (Compatibility, error) {
	var all Compatibility
	for _, scope := range scopes(n) {
		var c Compatibility
		if _, err := setting(ctx, tx, keyConfig+scope, &c); err != nil {
			return all, err
		}
		if all.Level == "" {
			all.Level = c.Level
		}
		if all.Policy == "" {
			all.Policy = c.Policy
		}
		if all.Normalize == nil {
			all.Normalize = c.Normalize
		}
	}
	if all.Level == "" {
		all.Level = r.level
	}
	if all.Policy == "" {
		all.Policy = compat.Lenient
	}
	return all, nil
}

func (r *Registry) effectiveMode(ctx context.Context, tx *store.Tx, n name) (Mode, error) {
	var global Mode
	if _, err := setting(ctx, tx, keyMode, &global); err != nil || global == ReadOnlyOverride {
		return global, err
	}
	for _, scope := range scopes(n) {
		var m Mode
		if found, err := setting(ctx, tx, keyMode+scope, &m); err != nil || found {
			return m, err
		}
	}
	return ReadWrite, nil
}

// Config returns the configuration of a subject, of a context (:.NAME:) or, for
// "", of the registry. With inherit it is what holds, else what was set, and
// the fault says when nothing was.
func (r *Registry) Config(ctx context.Context, subject string, inherit bool) (Compatibility, error) {
	n, err := parseName(subject)
	if err != nil {
		return Compatibility{}, err
	}
	var c Compatibility
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if inherit || n.String() == "" {
			c, err = r.effective(ctx, tx, n)
			return err
		}
		found, err := setting(ctx, tx, keyConfig+n.String(), &c)
		if err == nil && !found {
			err = fault(FaultLevelNotConfigured, "Subject '%s' does not have subject-level compatibility configured", show(subject))
		}
		return err
	})
	return c, err
}

// SetConfig changes the parts that are given, and returns the whole.
func (r *Registry) SetConfig(ctx context.Context, subject string, change Compatibility) (Compatibility, error) {
	n, err := parseName(subject)
	if err != nil {
		return Compatibility{}, err
	}
	var c Compatibility
	err = r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		c = Compatibility{}
		if err := r.writable(ctx, tx, n); err != nil {
			return err
		}
		if _, err := setting(ctx, tx, keyConfig+n.String(), &c); err != nil {
			return err
		}
		if change.Level != "" {
			c.Level = change.Level
		}
		if change.Policy != "" {
			c.Policy = change.Policy
		}
		if change.Normalize != nil {
			c.Normalize = change.Normalize
		}
		return put(ctx, tx, keyConfig+n.String(), c)
	})
	return c, err
}

func put(ctx context.Context, tx *store.Tx, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Settings.Put(ctx, key, b)
}

// DeleteConfig removes a configuration and returns what holds from then on.
func (r *Registry) DeleteConfig(ctx context.Context, subject string) (Compatibility, error) {
	n, err := parseName(subject)
	if err != nil {
		return Compatibility{}, err
	}
	var c Compatibility
	err = r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if err := r.writable(ctx, tx, n); err != nil {
			return err
		}
		found, err := setting(ctx, tx, keyConfig+n.String(), &c)
		if err != nil {
			return err
		}
		if !found && n.String() != "" {
			return fault(FaultLevelNotConfigured, "Subject '%s' does not have subject-level compatibility configured", show(subject))
		}
		if err := tx.Settings.Delete(ctx, keyConfig+n.String()); err != nil {
			return err
		}
		c, err = r.effective(ctx, tx, n)
		return err
	})
	return c, err
}

// Mode returns the mode of a subject, as [Registry.Config] does.
func (r *Registry) Mode(ctx context.Context, subject string, inherit bool) (Mode, error) {
	n, err := parseName(subject)
	if err != nil {
		return "", err
	}
	var m Mode
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if inherit || n.String() == "" {
			m, err = r.effectiveMode(ctx, tx, n)
			return err
		}
		found, err := setting(ctx, tx, keyMode+n.String(), &m)
		if err == nil && !found {
			err = fault(FaultModeNotConfigured, "Subject '%s' does not have subject-level mode configured", show(subject))
		}
		return err
	})
	return m, err
}

// SetMode changes the mode. Imports begin where nothing is, unless forced.
func (r *Registry) SetMode(ctx context.Context, subject string, m Mode, force bool) error {
	n, err := parseName(subject)
	if err != nil {
		return err
	}
	if m == ReadOnlyOverride && n.String() != "" {
		return fault(FaultInvalidMode, "Invalid mode: READONLY_OVERRIDE is a mode of the whole registry.")
	}
	return r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		if m == Import && !force {
			f := store.RegistryFilter{Prefix: n.String()}
			if n.plain != "" {
				f = store.RegistryFilter{Subject: n.String()}
			}
			versions, err := tx.Registry.Versions(ctx, f)
			if err != nil {
				return err
			}
			if len(live(versions)) > 0 {
				return fault(FaultNotPermitted, "Cannot import since found existing subjects")
			}
		}
		return put(ctx, tx, keyMode+n.String(), m)
	})
}

// DeleteMode removes a mode and returns what it was. With recursive it removes
// those of all subjects of the context too, where the subject is a whole one.
func (r *Registry) DeleteMode(ctx context.Context, subject string, recursive bool) (Mode, error) {
	n, err := parseName(subject)
	if err != nil {
		return "", err
	}
	m := ReadWrite
	err = r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		found, err := setting(ctx, tx, keyMode+n.String(), &m)
		if err != nil {
			return err
		}
		if recursive && n.plain == "" {
			return deleteModes(ctx, tx, n)
		}
		if !found && n.String() != "" {
			return fault(FaultModeNotConfigured, "Subject '%s' does not have subject-level mode configured", show(subject))
		}
		return tx.Settings.Delete(ctx, keyMode+n.String())
	})
	return m, err
}

// deleteModes removes the modes of a context and of all its subjects.
func deleteModes(ctx context.Context, tx *store.Tx, n name) error {
	rows, err := tx.Settings.List(ctx, keyMode)
	if err != nil {
		return err
	}
	for key := range rows {
		if own, err := parseName(strings.TrimPrefix(key, keyMode)); err != nil || own.context != n.context {
			continue
		}
		if err := tx.Settings.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// writable refuses where the mode is read-only.
func (r *Registry) writable(ctx context.Context, tx *store.Tx, n name) error {
	m, err := r.effectiveMode(ctx, tx, n)
	if err != nil {
		return err
	}
	if m == ReadOnly || m == ReadOnlyOverride {
		return fault(FaultNotPermitted, "Subject %s is in read-only mode", show(n.String()))
	}
	return nil
}

// live returns the versions that are not deleted.
func live(versions []store.RegistryVersion) []store.RegistryVersion {
	var out []store.RegistryVersion
	for _, v := range versions {
		if !v.Deleted {
			out = append(out, v)
		}
	}
	return out
}
