package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/store"
)

// Registered is the answer to a registration.
type Registered struct {
	headgate.ContractRef
	// Created is false when this very schema was in use already.
	Created  bool               `json:"created"`
	Warnings []contract.Warning `json:"warnings,omitempty"`
}

// checkSubject refuses names that no event type can have.
func checkSubject(subject string) error {
	if !headgate.ValidType(subject) {
		return headgate.NewError(headgate.CodeInvalidArgument,
			"subject: want the name of an event type: 1 to 200 letters, digits, '.', '_', '-' and '/', without a dot at either end or two in a row")
	}
	return nil
}

// Register adds a version of a subject, unless the very schema is in use
// already. An empty kind means JSON Schema. A draft in use is replaced, also by its own schema. The name by is
// kept as who registered it.
//
// The error has code invalid_argument for a bad subject, contract_invalid for
// a schema that is refused, contract_incompatible for a change that the
// subject's level of compatibility does not allow, forbidden where the
// subject's mode is read-only, else what the store says.
func (r *Registry) Register(ctx context.Context, subject string, kind contract.Type, schema []byte, by string) (Registered, error) {
	if err := checkSubject(subject); err != nil {
		return Registered{}, err
	}
	c := r.same(subject, kind, schema)
	if c == nil {
		var err error
		if c, _, err = contract.Compile(subject, 0, schema, &contract.CompileOpts{Policy: r.policy, Type: kind}); err != nil {
			return Registered{}, err
		}
	}
	a := &addition{
		name: name{DefaultContext, subject}, sub: Submission{Type: kindOf(string(kind)), Schema: schema}, by: by,
		compiled: c, unchanged: func(s *state, _ *content) *store.RegistryVersion {
			if s.latest == nil || s.latest.Draft || s.latest.Digest != c.Ref().Digest {
				return nil
			}
			return &store.RegistryVersion{Version: s.latest.Version}
		},
	}
	done, err := r.add(ctx, a)
	if err != nil {
		return Registered{}, ownError(err)
	}
	c = c.WithVersion(done.version.Version)
	if err := r.publish(context.WithoutCancel(ctx), subject, c); err != nil {
		return Registered{}, err
	}
	return Registered{ContractRef: c.Ref(), Created: done.created, Warnings: c.Warnings()}, nil
}

// same returns the contract in use of a subject if it is compiled from the very
// schema and policy, as it is for the files of a folder at every start but the
// first; else nil.
func (r *Registry) same(subject string, kind contract.Type, schema []byte) *contract.Contract {
	c := r.Lookup(subject)
	if c == nil || c.Ref().Draft || c.Type() != cmp.Or(kind, contract.TypeJSON) || !bytes.Equal(c.Schema(), schema) ||
		!bytes.Equal(contract.MarshalPolicy(c.Policy()), contract.MarshalPolicy(r.policy)) {
		return nil
	}
	return c
}

// ownError says what a fault means in our own vocabulary.
func ownError(err error) error {
	var f *Fault
	if !errors.As(err, &f) {
		return err
	}
	code := headgate.CodeInvalidArgument
	switch f.Code {
	case FaultIncompatible:
		code = headgate.CodeContractIncompatible
	case FaultInvalidSchema, FaultTooLarge:
		code = headgate.CodeContractInvalid
	case FaultNotPermitted:
		code = headgate.CodeForbidden
	case FaultReferenceExists, FaultVersionSoftDeleted, FaultSubjectSoftDeleted:
		code = headgate.CodeConflict
	}
	return headgate.NewError(code, "%s", f.Detail)
}

// row makes the stored form of a new version.
func (r *Registry) row(c *contract.Contract, by string) store.Contract {
	ref := c.Ref()
	return store.Contract{
		Subject: ref.Subject, Type: string(c.Type()), Digest: ref.Digest, Schema: c.Schema(), Draft: ref.Draft,
		Policy: contract.MarshalPolicy(c.Policy()), Created: r.now().UTC(), By: by,
	}
}

// versions returns the highest version ever used of a subject, and the one in
// use or nil.
func versions(ctx context.Context, tx *store.Tx, subject string) (highest int, latest *store.Contract, err error) {
	all, err := tx.Contracts.Versions(ctx, subject)
	if err != nil {
		return 0, nil, err
	}
	for i := range all {
		highest = max(highest, all[i].Version)
		if !all[i].Deleted {
			latest = &all[i]
		}
	}
	return highest, latest, nil
}

// Draft registers a contract inferred from a payload, if the subject has none
// in use, and returns the contract in use. The code is syntax for a payload
// that breaks the policy.
func (r *Registry) Draft(ctx context.Context, subject string, payload []byte, by string) (*contract.Contract, error) {
	if c := r.Lookup(subject); c != nil {
		return c, nil
	}
	if err := checkSubject(subject); err != nil {
		return nil, err
	}
	schema, err := contract.Infer(payload)
	if err != nil {
		return nil, err
	}
	c, _, err := contract.Compile(subject, 0, schema, &contract.CompileOpts{Policy: r.policy, Draft: true})
	if err != nil {
		return nil, err
	}
	row := r.row(c, by)
	created := false
	err = r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		created = false
		highest, latest, err := versions(ctx, tx, subject)
		if err != nil || latest != nil {
			return err
		}
		row.Version, created = highest+1, true
		return tx.Contracts.Put(ctx, row)
	})
	if err != nil {
		return nil, err
	}
	var candidate *contract.Contract
	if created {
		candidate = c.WithVersion(row.Version)
	}
	if err := r.publish(context.WithoutCancel(ctx), subject, candidate); err != nil {
		return nil, err
	}
	if c := r.Lookup(subject); c != nil {
		return c, nil
	}
	return nil, headgate.NewError(headgate.CodeConflict, "the contract of %s was deleted at the same time", subject)
}

// Delete marks one version (0: all) of a subject as deleted, and returns how
// many it marked. The highest version that is left is in use from then on;
// without one, events of the type are refused. The code is not_found when
// there was nothing to mark, conflict when another schema refers to a version,
// and forbidden where the subject's mode is read-only.
func (r *Registry) Delete(ctx context.Context, subject string, version int) (int, error) {
	if version < 0 {
		return 0, headgate.NewError(headgate.CodeInvalidArgument, "version: want 0 for all, or a version")
	}
	marked := 0
	err := r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		marked, err = r.markDeleted(ctx, tx, name{DefaultContext, subject}, version)
		return err
	})
	if err != nil {
		return 0, ownError(err)
	}
	if marked == 0 {
		return 0, notFound(subject, version)
	}
	return marked, r.publish(context.WithoutCancel(ctx), subject, nil)
}

func notFound(subject string, version int) error {
	if version == 0 {
		return headgate.NewError(headgate.CodeNotFound, "there is no contract of this subject: %q", subject)
	}
	return headgate.NewError(headgate.CodeNotFound, "there is no version %d of this subject: %q", version, subject)
}

// LoadDir registers every *.json (JSON Schema) and *.avsc (Avro) file of a
// folder, in the order of their names; the subject is the file's name without
// the ending. Unchanged files
// change nothing, and nothing is deleted. Every file is tried: the error, with
// code contract_invalid, lists the files that were refused and why.
func (r *Registry) LoadDir(ctx context.Context, dir fs.FS) ([]Registered, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		if fault := new(fs.PathError); errors.As(err, &fault) {
			err = fault.Err // the path is that of the folder within itself
		}
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "the folder of contracts cannot be read: %v", err)
	}
	var out []Registered
	var refused []string
	for _, e := range entries {
		kind := contract.TypeJSON
		subject, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			kind = contract.TypeAvro
			subject, ok = strings.CutSuffix(e.Name(), ".avsc")
		}
		if !ok || e.IsDir() {
			continue
		}
		schema, err := readFile(dir, e.Name())
		var reg Registered
		if err == nil {
			reg, err = r.Register(ctx, subject, kind, schema, "config")
		}
		switch code := headgate.CodeOf(err); code {
		case "":
			out = append(out, reg)
		case headgate.CodeContractInvalid, headgate.CodeContractIncompatible, headgate.CodeInvalidArgument, headgate.CodeInvalidConfig:
			refused = append(refused, path.Clean(e.Name())+": "+headgate.AsError(err).Detail)
		default:
			return out, err
		}
	}
	if len(refused) > 0 {
		return out, headgate.NewError(headgate.CodeContractInvalid, "%s", strings.Join(refused, "\n"))
	}
	return out, nil
}

// readFile reads a schema, and no more than one byte beyond what is allowed.
func readFile(dir fs.FS, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "%v", err)
	}
	buf := make([]byte, contract.MaxSchemaBytes+1)
	n, err := io.ReadFull(f, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the file ended, as it should
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "%v", err)
	}
	return buf[:n], nil
}
