package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/registry/compat"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/pgstore"
)

func openLevel(t *testing.T, s store.Store, level compat.Level) *Registry {
	t.Helper()
	r, err := Open(t.Context(), Config{Store: s, Compatibility: string(level)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantFault(t *testing.T, err error, code int) {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("got %v, want fault %d", err, code)
	}
}

// A level of compatibility holds for contracts as for everything else.
func TestCompatibilityHoldsForContracts(t *testing.T) {
	const narrower = `{"type":"object","properties":{"a":{"type":"string","maxLength":3}},"required":["a"],"additionalProperties":false}`
	s := openStore(t)
	r := openLevel(t, s, compat.Backward)
	register(t, r, "a", schemaA)
	if reg := register(t, r, "a", schemaB); reg.Version != 2 {
		t.Errorf("a compatible change: %+v", reg)
	}
	_, err := r.Register(t.Context(), "a", "", []byte(narrower), "ada")
	wantCode(t, err, headgate.CodeContractIncompatible)
	if c := r.Lookup("a"); c.Ref().Version != 2 {
		t.Errorf("%v is in use after the refusal", c.Ref())
	}
	for _, same := range []string{schemaB} {
		if reg := register(t, r, "a", same); reg.Created {
			t.Errorf("the same schema made version %d", reg.Version)
		}
	}
	_, err = r.LoadDir(t.Context(), fstest.MapFS{"a.json": {Data: []byte(narrower)}, "b.json": {Data: []byte(schemaB)}})
	wantCode(t, err, headgate.CodeContractInvalid)
	if r.Lookup("b") == nil {
		t.Error("the other files of the folder were not loaded")
	}
	if _, err := r.Draft(t.Context(), "drafted", []byte(`{"x":1}`), "ada"); err != nil {
		t.Fatal(err)
	}
	if reg := register(t, r, "drafted", narrower); !reg.Created || reg.Version != 2 {
		t.Errorf("a draft was not replaced: %+v", reg)
	}
	if _, err := r.SetConfig(t.Context(), "a", Compatibility{Level: compat.None}); err != nil {
		t.Fatal(err)
	}
	if reg := register(t, r, "a", narrower); reg.Version != 3 {
		t.Errorf("with the subject's own level: %+v", reg)
	}
	if _, err := r.SetConfig(t.Context(), "a", Compatibility{Level: compat.BackwardTransitive, Policy: compat.Logical}); err != nil {
		t.Fatal(err)
	}
	_, err = r.Register(t.Context(), "a", "", []byte(schemaA), "ada")
	wantCode(t, err, headgate.CodeContractIncompatible) // version 2 has b
	if err := r.SetMode(t.Context(), "a", ReadOnly, false); err != nil {
		t.Fatal(err)
	}
	_, err = r.Register(t.Context(), "a", "", []byte(`{}`), "ada")
	wantCode(t, err, headgate.CodeForbidden)
	_, err = r.Delete(t.Context(), "a", 0)
	wantCode(t, err, headgate.CodeForbidden)
	_, err = Open(t.Context(), Config{Store: s, Compatibility: "sideways"})
	wantCode(t, err, headgate.CodeInvalidConfig)
}

// Contracts that were registered before the registry had ids get them once,
// and keep them.
func TestAdoption(t *testing.T) {
	s := openStore(t)
	r := open(t, s)
	register(t, r, "a", schemaA)
	register(t, r, "a", schemaB)
	register(t, r, "b", schemaA)
	// As an earlier version left it.
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		for _, v := range []store.RegistryVersion{{Subject: "a", Version: 1}, {Subject: "a", Version: 2}, {Subject: "b", Version: 1}} {
			if err := tx.Registry.RemoveVersion(ctx, v.Subject, v.Version); err != nil {
				return err
			}
		}
		if _, err := tx.Contracts.Delete(ctx, "a", 1); err != nil {
			return err
		}
		if err := tx.Settings.Delete(ctx, keyLastID+DefaultContext); err != nil {
			return err
		}
		return tx.Settings.Delete(ctx, "registry/adopted")
	})
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for i := range 2 {
		r = open(t, s)
		all, err := r.Entries(t.Context(), "", WithDeleted, false, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range all {
			got += fmt.Sprintf("%s@%d id %d %v; ", e.Subject, e.Version, e.ID, e.Deleted)
		}
		if i == 0 {
			want = "a@1 id 1 true; a@2 id 2 false; b@1 id 1 false; "
		}
		if got != want {
			t.Errorf("start %d: %s, want %s", i, got, want)
		}
	}
	if e, err := r.Find(t.Context(), "b", Submission{Type: compat.JSON, Schema: []byte(schemaASpelt)}, Live); err != nil || e.ID != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}

// However many register at once, over two registries of one store: one id and
// one version for one schema, and no version lost.
func TestConcurrentSubmissions(t *testing.T) {
	s := openStore(t)
	concurrentSubmissions(t, s, s)
}

// The same on PostgreSQL.
func TestOutsideConcurrentSubmissions(t *testing.T) {
	url := pgtest.URL(t)
	s, err := pgstore.Open(t.Context(), pgstore.Config{URL: url, Schema: pgtest.Schema(t, url, t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	concurrentSubmissions(t, s, s)
}

func concurrentSubmissions(t *testing.T, first, second store.Store) {
	t.Helper()
	all := []*Registry{openLevel(t, first, compat.Backward), openLevel(t, second, compat.Backward)}
	const writers = 12
	same, own := make([]Entry, writers), make([]Entry, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			var err error
			if same[i], err = all[i%2].Submit(t.Context(), "same", Submission{Type: compat.JSON, Schema: []byte(schemaA)}, "ada"); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			schema := fmt.Sprintf(`{"type":"object","properties":{"p%d":{"type":"integer"}}}`, i)
			var err error
			if own[i], err = all[i%2].Submit(t.Context(), "own", Submission{Type: compat.JSON, Schema: []byte(schema)}, "ada"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ids, versions := map[int]bool{}, map[int]bool{}
	for i := range writers {
		if same[i].ID != same[0].ID || same[i].Version != 1 {
			t.Errorf("one schema, two entries: %+v and %+v", same[0], same[i])
		}
		ids[own[i].ID], versions[own[i].Version] = true, true
	}
	if len(ids) != writers || len(versions) != writers || !versions[1] || !versions[writers] {
		t.Errorf("ids %v, versions %v", ids, versions)
	}
}

func TestSubmissionsThatAreRefused(t *testing.T) {
	r := open(t, openStore(t))
	for name, c := range map[string]struct {
		subject string
		sub     Submission
		code    int
	}{
		"a pattern that RE2 does not know": {"x", Submission{Type: compat.JSON, Schema: []byte(`{"type":"string","pattern":"(?=a)"}`)}, FaultInvalidSchema},
		"a name twice":                     {"x", Submission{Type: compat.JSON, Schema: []byte(`{"type":"string","type":"object"}`)}, FaultInvalidSchema},
		"a remote reference":               {"x", Submission{Type: compat.JSON, Schema: []byte(`{"$ref":"http://localhost:1/x.json"}`)}, FaultInvalidSchema},
		"defaults beyond measure":          {":.other:x", Submission{Schema: []byte(nestedDefaults(40))}, FaultInvalidSchema},
		"the same in an event type":        {"x", Submission{Schema: []byte(nestedDefaults(40))}, FaultInvalidSchema},
		"a cycle":                          {"x", Submission{Type: compat.JSON, Schema: []byte(`{"$ref":"#"}`)}, FaultInvalidSchema},
		"too large":                        {"x", Submission{Schema: make([]byte, 300<<10)}, FaultTooLarge},
		"no type of ours":                  {"x", Submission{Type: "XML", Schema: []byte(`{}`)}, FaultInvalidSchema},
		"an empty subject":                 {"", Submission{Type: compat.JSON, Schema: []byte(`{}`)}, FaultInvalidSubject},
		"a control character":              {"a\nb", Submission{Type: compat.JSON, Schema: []byte(`{}`)}, FaultInvalidSubject},
		"metadata that is none":            {"x", Submission{Type: compat.JSON, Schema: []byte(`{}`), Metadata: []byte(`{`)}, FaultInvalidSchema},
		"a reference to itself": {"x", Submission{
			Type: compat.JSON, Schema: []byte(`{"$ref":"self"}`), References: []Reference{{Name: "self", Subject: "x", Version: 1}},
		}, FaultInvalidSchema},
	} {
		_, err := r.Submit(t.Context(), c.subject, c.sub, "ada")
		var f *Fault
		if !errors.As(err, &f) || f.Code != c.code {
			t.Errorf("%s: got %v, want fault %d", name, err, c.code)
		}
	}
	_, err := r.Entry(t.Context(), "x", Latest, WithDeleted)
	wantFault(t, err, FaultSubjectNotFound)
}

// Of a schema that is deleted for good and one that is registered with a
// reference to it at the same time, one is refused.
func TestReferenceToWhatIsBeingDeleted(t *testing.T) {
	r := openLevel(t, openStore(t), compat.None)
	for i := range 40 {
		base, user := fmt.Sprintf("base%d", i), fmt.Sprintf("user%d", i)
		if _, err := r.Submit(t.Context(), base, Submission{Type: compat.JSON, Schema: fmt.Appendf(nil, `{"title":%q}`, base)}, "ada"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.RemoveSubject(t.Context(), base, false); err != nil {
			t.Fatal(err)
		}
		var removed, added error
		var wait sync.WaitGroup
		wait.Go(func() { _, removed = r.RemoveSubject(t.Context(), base, true) })
		wait.Go(func() {
			_, added = r.Submit(t.Context(), user, Submission{
				Type: compat.JSON, Schema: []byte(`{"$ref":"b"}`), References: []Reference{{Name: "b", Subject: base, Version: 1}},
			}, "ada")
		})
		wait.Wait()
		if (removed == nil) == (added == nil) {
			t.Fatalf("%d: removed: %v, added: %v", i, removed, added)
		}
	}
}

// nestedDefaults returns an Avro schema whose defaults hold two to the power of n
// parts, if they are written out.
func nestedDefaults(n int) string {
	s := `{"type":"record","name":"R0","fields":[{"name":"a","type":"int","default":7},{"name":"b","type":"int","default":7}]}`
	for i := 1; i < n; i++ {
		s = fmt.Sprintf(`{"type":"record","name":"R%d","fields":[{"name":"a","type":%s,"default":{}},{"name":"b","type":"R%d","default":{}}]}`, i, s, i-1)
	}
	return s
}
