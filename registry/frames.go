package registry

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/store"
)

// maxPrints bounds the versions of a subject that single-object encoding can
// name: the newest.
const maxPrints = 256

// Named returns the live version of a subject that a frame names, or nil when
// it names none: an unknown id, one of another subject, or one that was
// deleted. For the version in use it takes no lock.
func (r *Registry) Named(ctx context.Context, subject string, f contract.Frame) (*contract.Contract, error) {
	u := (*r.inUse.Load())[subject]
	if u == nil {
		return nil, nil
	}
	version := 0
	switch f.Kind {
	case contract.FrameConfluent:
		version = u.ids[f.ID]
	case contract.FrameSingleObject:
		if u.current.Type() == contract.TypeAvro && u.current.AvroFingerprint() == f.Fingerprint {
			return u.current, nil
		}
		var err error
		u.once.Do(func() { u.prints, err = r.fingerprints(ctx, subject) })
		if err != nil {
			return nil, err
		}
		version = u.prints[f.Fingerprint]
	}
	switch version {
	case 0:
		return nil, nil
	case u.current.Ref().Version:
		return u.current, nil
	}
	return r.Compiled(ctx, subject, version)
}

// fingerprints maps the fingerprints of a subject's live Avro versions to
// their numbers.
func (r *Registry) fingerprints(ctx context.Context, subject string) (map[uint64]int, error) {
	// The map is shared: whoever asked for it first may go away.
	rows, err := r.Versions(context.WithoutCancel(ctx), subject)
	if err != nil {
		return nil, err
	}
	if len(rows) > maxPrints {
		rows = rows[len(rows)-maxPrints:]
	}
	prints := map[uint64]int{}
	for _, row := range rows {
		if row.Deleted || row.Type != string(contract.TypeAvro) {
			continue
		}
		if print, err := contract.FingerprintAvro(row.Schema); err == nil {
			prints[print] = row.Version
		}
	}
	return prints, nil
}

// JSON returns the data of an event as JSON: as it is, or converted from the
// Avro of the version that its dataschema names. The code is not_found when
// there is no such version, and contract_violation when the data is not of it.
func (r *Registry) JSON(ctx context.Context, e *headgate.Event) ([]byte, error) {
	if !headgate.IsAvro(e.DataContentType) {
		return e.Data, nil
	}
	c, err := r.writtenWith(ctx, e)
	if err != nil {
		return nil, err
	}
	return c.AvroToJSON(e.Data)
}

// Submitted returns an event that was not admitted yet with data in Avro turned
// to JSON, by the contract of a subject or the version that the data's frame
// names; as it is if it is not Avro, or the perimeter would refuse it.
func (r *Registry) Submitted(ctx context.Context, subject string, e *headgate.Event) *headgate.Event {
	if !headgate.IsAvro(e.DataContentType) {
		return e
	}
	c := r.Lookup(subject)
	if c == nil {
		return e
	}
	j, err := c.Judge(e.DataContentType, e.Data, func(f contract.Frame) (*contract.Contract, error) { return r.Named(ctx, subject, f) })
	if err != nil || j.Verdict != nil {
		return e
	}
	view := *e
	view.DataContentType = headgate.MediaTypeJSON
	if view.Data, err = j.Contract.AvroToJSON(j.Data); err != nil {
		return e
	}
	return &view
}

// Recorded returns data in Avro that was recorded apart from its event, such as
// a quarantined payload, as JSON, and the version that it was read by: of a
// subject the one that a dataschema names, else the one that the data's frame
// names, else the one in use. A dataschema of another subject counts for
// nothing, as senders write it. The code is not_found when the subject has no
// contract, and contract_violation when the data is not of it.
func (r *Registry) Recorded(ctx context.Context, dataschema, subject string, data []byte) ([]byte, headgate.ContractRef, error) {
	if ref := headgate.ParseContractRef(dataschema); ref.Subject == subject {
		if c, err := r.Compiled(ctx, ref.Subject, ref.Version); err == nil {
			if text, err := c.AvroToJSON(data); err == nil {
				return text, c.Ref(), nil
			}
		}
	}
	c := r.Lookup(subject)
	if c == nil {
		return nil, headgate.ContractRef{}, notFound(subject, 0)
	}
	j, err := c.Judge(headgate.MediaTypeAvro, data, func(f contract.Frame) (*contract.Contract, error) { return r.Named(ctx, subject, f) })
	if err != nil {
		return nil, headgate.ContractRef{}, err
	}
	if j.Verdict != nil {
		return nil, headgate.ContractRef{}, headgate.NewError(headgate.CodeContractViolation, "the data is no Avro value of %s", j.Contract.Ref())
	}
	text, err := j.Contract.AvroToJSON(j.Data)
	return text, j.Contract.Ref(), err
}

// writtenWith returns the version that an event's data passed.
func (r *Registry) writtenWith(ctx context.Context, e *headgate.Event) (*contract.Contract, error) {
	ref := headgate.ParseContractRef(e.DataSchema)
	if ref.Subject == "" {
		return nil, headgate.NewError(headgate.CodeNotFound, "the event names no version of a contract")
	}
	return r.Compiled(ctx, ref.Subject, ref.Version)
}

// The encodings that a reader may ask for.
const (
	AsJSON = "json"
	AsAvro = "avro"
)

// View returns an event as a reader asked for it: with the data of an Avro
// contract as JSON or as Avro binary. Events of JSON Schema contracts, events
// that are so already, and events that cannot be converted are returned as
// they are. The event itself is never modified.
func (r *Registry) View(ctx context.Context, e *headgate.Event, as string) *headgate.Event {
	isAvro := headgate.IsAvro(e.DataContentType)
	if e.Data == nil || as == "" || isAvro == (as == AsAvro) {
		return e
	}
	c, err := r.writtenWith(ctx, e)
	if err != nil || c.Type() != contract.TypeAvro {
		return e
	}
	view := *e
	if isAvro {
		view.DataContentType = headgate.MediaTypeJSON
		view.Data, err = c.AvroToJSON(e.Data)
	} else {
		view.DataContentType = headgate.MediaTypeAvro
		view.Data, err = c.AvroFromJSON(e.Data)
	}
	if err != nil {
		return e
	}
	return &view
}

// backfill gives Avro versions of before their contracts, once: they were
// registered when the perimeter had no engine for them. Numbers that have no
// version any more are kept as deleted ones, since those of contracts have no
// gaps.
func (r *Registry) backfill(ctx context.Context, tx *store.Tx) error {
	const key = "registry/backfilled"
	if _, err := tx.Settings.Get(ctx, key); headgate.CodeOf(err) != headgate.CodeNotFound {
		return err
	}
	all, err := tx.Registry.Versions(ctx, store.RegistryFilter{})
	if err != nil {
		return err
	}
	for _, v := range all { // by subject and version
		if n, err := parseName(v.Subject); err != nil || !n.gated() {
			continue
		}
		if err := r.backfillVersion(ctx, tx, v); err != nil {
			return err
		}
	}
	return tx.Settings.Put(ctx, key, []byte("true"))
}

func (r *Registry) backfillVersion(ctx context.Context, tx *store.Tx, v store.RegistryVersion) error {
	n := name{DefaultContext, v.Subject}
	highest, _, err := versions(ctx, tx, n.plain)
	if err != nil || v.Version <= highest {
		return err
	}
	s, err := readSchema(ctx, tx, v)
	if err != nil {
		return err
	}
	compiled, err := r.compileContent(n, &content{Submission: Submission{Type: s.Kind, Schema: s.Text}, documents: s.References})
	if err != nil {
		return nil // as before: no contract, and its events are refused
	}
	for row := r.row(compiled, "registry"); highest < v.Version; {
		highest++
		row.Version, row.Deleted = highest, highest < v.Version || v.Deleted
		if err := tx.Contracts.Put(ctx, row); err != nil {
			return err
		}
	}
	return nil
}
