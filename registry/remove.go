package registry

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// markDeleted deletes one version (0: all) of a subject softly, here and among
// the contracts, and returns how many were not deleted before.
func (r *Registry) markDeleted(ctx context.Context, tx *store.Tx, n name, version int) (int, error) {
	if err := r.writable(ctx, tx, n); err != nil {
		return 0, err
	}
	rows, err := tx.Registry.Versions(ctx, store.RegistryFilter{Subject: n.String()})
	if err != nil {
		return 0, err
	}
	marked := 0
	for _, v := range live(rows) {
		if version != 0 && v.Version != version {
			continue
		}
		if err := unreferenced(ctx, tx, v, Live); err != nil {
			return 0, err
		}
		v.Deleted = true
		if err := replace(ctx, tx, v); err != nil {
			return 0, err
		}
		marked++
	}
	if !n.gated() {
		return marked, nil
	}
	contracts, err := tx.Contracts.Delete(ctx, n.plain, version) // drafts are contracts alone
	return max(marked, contracts), err
}

// replace writes a version again, with its references.
func replace(ctx context.Context, tx *store.Tx, v store.RegistryVersion) error {
	s, err := tx.Registry.Schema(ctx, v.Context, v.ID)
	if err != nil {
		return err
	}
	var refs []store.RegistryReference
	for _, ref := range readRefs(s.Refs) {
		refs = append(refs, store.RegistryReference{Subject: ref.Subject, Version: ref.Version})
	}
	return tx.Registry.PutVersion(ctx, v, refs)
}

// unreferenced refuses a version that another schema refers to.
func unreferenced(ctx context.Context, tx *store.Tx, v store.RegistryVersion, seen Seen) error {
	users, err := tx.Registry.Versions(ctx, store.RegistryFilter{RefersTo: store.RegistryReference{Subject: v.Subject, Version: v.Version}})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(users, seen.sees) {
		return fault(FaultReferenceExists, "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=%s,version=%d}.", show(v.Subject), v.Version)
	}
	return nil
}

// Remove deletes a version ([Latest]), softly or, when it is so already, for
// good, and returns its number.
func (r *Registry) Remove(ctx context.Context, subject string, version int, permanent bool) (int, error) {
	n, err := parseSubject(subject)
	if err != nil {
		return 0, err
	}
	err = r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := r.writable(ctx, tx, n); err != nil {
			return err
		}
		rows, err := tx.Registry.Versions(ctx, store.RegistryFilter{Subject: n.String()})
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return noSubject(subject)
		}
		if version == Latest {
			if in := live(rows); len(in) > 0 {
				version = in[len(in)-1].Version
			}
		}
		i := slices.IndexFunc(rows, func(v store.RegistryVersion) bool { return v.Version == version })
		switch {
		case i < 0:
			return fault(FaultVersionNotFound, "Version %d not found.", version)
		case rows[i].Deleted && !permanent:
			return fault(FaultVersionSoftDeleted, "Subject '%s' Version %d was soft deleted. Set permanent=true to delete permanently", show(subject), version)
		case !rows[i].Deleted && permanent:
			return fault(FaultVersionNotSoftDeleted, "Subject '%s' Version %d was not deleted first before being permanently deleted", show(subject), version)
		case permanent:
			return r.purge(ctx, tx, rows[i:i+1])
		}
		_, err = r.markDeleted(ctx, tx, n, version)
		return err
	})
	if err != nil {
		return 0, err
	}
	return version, r.republish(ctx, n)
}

// RemoveSubject deletes all versions of a subject, as [Registry.Remove] does,
// with its configuration and mode, and returns their numbers.
func (r *Registry) RemoveSubject(ctx context.Context, subject string, permanent bool) ([]int, error) {
	n, err := parseSubject(subject)
	if err != nil {
		return nil, err
	}
	var gone []int
	err = r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		gone = nil
		if err := r.writable(ctx, tx, n); err != nil {
			return err
		}
		rows, err := tx.Registry.Versions(ctx, store.RegistryFilter{Subject: n.String()})
		if err != nil {
			return err
		}
		in := live(rows)
		switch {
		case len(rows) == 0:
			return noSubject(subject)
		case len(in) == 0 && !permanent:
			return fault(FaultSubjectSoftDeleted, "Subject '%s' was soft deleted. Set permanent=true to delete permanently", show(subject))
		case len(in) > 0 && permanent:
			return fault(FaultSubjectNotSoftDeleted, "Subject '%s' was not deleted first before being permanently deleted", show(subject))
		case permanent:
			in = rows
			err = r.purge(ctx, tx, rows)
		default:
			_, err = r.markDeleted(ctx, tx, n, 0)
		}
		if err != nil {
			return err
		}
		for _, v := range in {
			gone = append(gone, v.Version)
		}
		for _, key := range []string{keyConfig, keyMode} {
			if err := tx.Settings.Delete(ctx, key+n.String()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return gone, r.republish(ctx, n)
}

// purge removes versions for good. Contracts stay, softly deleted: verdicts
// name them.
func (r *Registry) purge(ctx context.Context, tx *store.Tx, rows []store.RegistryVersion) error {
	for _, v := range rows {
		if err := unreferenced(ctx, tx, v, WithDeleted); err != nil {
			return err
		}
		if err := tx.Registry.RemoveVersion(ctx, v.Subject, v.Version); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registry) republish(ctx context.Context, n name) error {
	if !n.gated() {
		return nil
	}
	return r.publish(context.WithoutCancel(ctx), n.plain, nil)
}

// RemoveContext removes an empty context with what is configured for it.
func (r *Registry) RemoveContext(ctx context.Context, context string) error {
	n, err := parseName(":" + context + ":")
	if err != nil || n.context == DefaultContext {
		return fault(FaultNotPermitted, "The context '%s' cannot be deleted.", show(context))
	}
	return r.removeContext(ctx, n)
}

func (r *Registry) removeContext(ctx context.Context, n name) error {
	return r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Registry.Versions(ctx, store.RegistryFilter{Prefix: n.String()})
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			return fault(FaultContextNotEmpty, "The specified context '%s' is not empty.", show(n.context))
		}
		for _, key := range []string{keyConfig + n.String(), keyMode + n.String()} {
			if err := tx.Settings.Delete(ctx, key); err != nil {
				return err
			}
		}
		return nil
	})
}

// adopt gives the contracts that were registered before the registry had ids
// their ids, once.
func (r *Registry) adopt(ctx context.Context) error {
	const key = "registry/adopted"
	return r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := r.backfill(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Settings.Get(ctx, key); headgate.CodeOf(err) != headgate.CodeNotFound {
			return err
		}
		latest, err := tx.Contracts.Latest(ctx)
		if err != nil {
			return err
		}
		for _, l := range latest {
			if err := r.adoptSubject(ctx, tx, l.Subject); err != nil {
				return err
			}
		}
		return tx.Settings.Put(ctx, key, []byte("true"))
	})
}

func (r *Registry) adoptSubject(ctx context.Context, tx *store.Tx, subject string) error {
	n := name{DefaultContext, subject}
	rows, err := tx.Contracts.Versions(ctx, subject)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Draft {
			continue
		}
		c, err := r.read(ctx, tx, n, Submission{Type: kindOf(row.Type), Schema: row.Schema})
		if err != nil {
			continue // Broken says why its subject has no contract
		}
		v, err := r.link(ctx, tx, n, row.Version, c, 0)
		if err == nil && row.Deleted {
			v.Deleted = true
			err = replace(ctx, tx, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
