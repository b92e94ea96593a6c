package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

const (
	schemaA = `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`
	// schemaASpelt is schemaA in another spelling.
	schemaASpelt = "{ \"required\": [\"\\u0061\"],\n \"type\":\"object\", \"additionalProperties\":false,\"properties\":{\"a\":{\"type\":\"string\"}}}"
	schemaB      = `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a"],"additionalProperties":false}`
)

func openStore(t *testing.T) store.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func open(t *testing.T, s store.Store) *Registry {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, err := Open(t.Context(), Config{Store: s, Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func register(t *testing.T, r *Registry, subject, schema string) Registered {
	t.Helper()
	reg, err := r.Register(t.Context(), subject, "", []byte(schema), "ada")
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

func wantCode(t *testing.T, err error, code headgate.Code) {
	t.Helper()
	if headgate.CodeOf(err) != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

func TestRegisterVersions(t *testing.T) {
	s := openStore(t)
	r := open(t, s)
	if r.Lookup("ticket.opened") != nil {
		t.Error("an empty registry has a contract")
	}
	first := register(t, r, "ticket.opened", schemaA)
	if !first.Created || first.Version != 1 || !strings.HasPrefix(first.Digest, "sha256:") {
		t.Errorf("first: %+v", first)
	}
	same := register(t, r, "ticket.opened", schemaASpelt)
	if same.Created || same.Version != 1 || same.Digest != first.Digest {
		t.Errorf("the same schema in another spelling: %+v", same)
	}
	second := register(t, r, "ticket.opened", schemaB)
	if !second.Created || second.Version != 2 {
		t.Errorf("second: %+v", second)
	}
	if c := r.Lookup("ticket.opened"); c.Ref() != second.ContractRef || c.Check([]byte(`{"a":"x","b":1}`)) != nil {
		t.Errorf("in use: %+v", c.Ref())
	}
	back := register(t, r, "ticket.opened", schemaA)
	if !back.Created || back.Version != 3 {
		t.Errorf("an earlier schema again is a new version: %+v", back)
	}
	row, err := r.Get(t.Context(), "ticket.opened", 1)
	if err != nil || string(row.Schema) != schemaA || row.By != "ada" || row.Created.IsZero() {
		t.Errorf("version 1: %+v %v", row, err)
	}
	old, err := r.Compiled(t.Context(), "ticket.opened", 2)
	if err != nil || old.Ref() != second.ContractRef {
		t.Errorf("version 2 compiled: %v %v", old, err)
	}
	reopened := open(t, s)
	if got := reopened.Lookup("ticket.opened").Ref(); got != back.ContractRef {
		t.Errorf("reopened: %+v, want %+v", got, back.ContractRef)
	}
}

func TestRegisterRefuses(t *testing.T) {
	r := open(t, openStore(t))
	for _, subject := range []string{"", ".a", "a.", "a..b", "a b", "é", strings.Repeat("a", 201), "a\x00b", "../a"} {
		_, err := r.Register(t.Context(), subject, "", []byte(schemaA), "ada")
		wantCode(t, err, headgate.CodeInvalidArgument)
		_, err = r.Draft(t.Context(), subject, []byte(`{}`), "ada")
		wantCode(t, err, headgate.CodeInvalidArgument)
	}
	_, err := r.Register(t.Context(), "a", "", []byte(`{"type":"strin"}`), "ada")
	wantCode(t, err, headgate.CodeContractInvalid)
	if rows, err := r.List(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("a refused registration left %v %v", rows, err)
	}
	for _, err := range []error{
		func() error { _, err := r.Get(t.Context(), "a", 0); return err }(),
		func() error { _, err := r.Get(t.Context(), "a", 7); return err }(),
		func() error { _, err := r.Versions(t.Context(), "a"); return err }(),
		func() error { _, err := r.Delete(t.Context(), "a", 0); return err }(),
		func() error { _, err := r.Compiled(t.Context(), "a", 0); return err }(),
	} {
		wantCode(t, err, headgate.CodeNotFound)
	}
}

func TestDeleteIsSoft(t *testing.T) {
	r := open(t, openStore(t))
	first := register(t, r, "a", schemaA)
	register(t, r, "a", schemaB)
	if n, err := r.Delete(t.Context(), "a", 2); n != 1 || err != nil {
		t.Fatalf("%d %v", n, err)
	}
	if c := r.Lookup("a"); c == nil || c.Ref() != first.ContractRef {
		t.Errorf("after deleting the latest, the one before is in use; got %v", c)
	}
	_, err := r.Delete(t.Context(), "a", 2)
	wantCode(t, err, headgate.CodeNotFound)
	if row, err := r.Get(t.Context(), "a", 2); err != nil || !row.Deleted {
		t.Errorf("a deleted version stays readable: %+v %v", row, err)
	}
	if c, err := r.Compiled(t.Context(), "a", 2); err != nil || c.Check([]byte(`{"a":"","b":"x"}`)) == nil {
		t.Errorf("a deleted version still explains: %v", err)
	}
	if n, err := r.Delete(t.Context(), "a", 0); n != 1 || err != nil {
		t.Fatalf("%d %v", n, err)
	}
	if r.Lookup("a") != nil || r.Len() != 0 {
		t.Error("a deleted subject still has a contract")
	}
	again := register(t, r, "a", schemaB)
	if !again.Created || again.Version != 3 {
		t.Errorf("numbers go on after deletion: %+v", again)
	}
	if rows, err := r.Versions(t.Context(), "a"); err != nil || len(rows) != 3 {
		t.Errorf("%v %v", rows, err)
	}
}

func TestDraft(t *testing.T) {
	s := openStore(t)
	r := open(t, s)
	c, err := r.Draft(t.Context(), "a", []byte(`{"id":"T-1","n":3}`), "bot")
	if err != nil || !c.Ref().Draft || c.Ref().Version != 1 {
		t.Fatalf("%+v %v", c, err)
	}
	if again, err := r.Draft(t.Context(), "a", []byte(`{"other":true}`), "bot"); err != nil || again != c {
		t.Errorf("a second draft replaced the first: %v", err)
	}
	if got := open(t, s).Lookup("a").Ref(); !got.Draft {
		t.Errorf("a draft is one after a restart too: %+v", got)
	}
	_, err = r.Draft(t.Context(), "b", []byte(`{"a":1,"a":2}`), "bot")
	wantCode(t, err, headgate.CodeSyntax)
	reg := register(t, r, "a", string(c.Schema()))
	if !reg.Created || reg.Version != 2 || reg.Draft {
		t.Errorf("a draft's own schema, registered: %+v", reg)
	}
	if row, err := r.Get(t.Context(), "a", 1); err != nil || !row.Deleted || !row.Draft {
		t.Errorf("the draft that was replaced: %+v %v", row, err)
	}
	if in := r.Lookup("a"); in.Ref() != reg.ContractRef {
		t.Errorf("in use: %+v", in.Ref())
	}
}

func TestLoadDir(t *testing.T) {
	r := open(t, openStore(t))
	dir := fstest.MapFS{
		"ticket.opened.json": {Data: []byte(schemaA)},
		"ticket.closed.json": {Data: []byte(schemaB)},
		"README.md":          {Data: []byte("no contract")},
		"sub/x.json":         {Data: []byte(schemaA)},
	}
	got, err := r.LoadDir(t.Context(), dir)
	if err != nil || len(got) != 2 || !got[0].Created || got[0].Subject != "ticket.closed" {
		t.Fatalf("%+v %v", got, err)
	}
	got, err = r.LoadDir(t.Context(), dir)
	if err != nil || len(got) != 2 || got[0].Created || got[1].Created {
		t.Fatalf("a second load changed something: %+v %v", got, err)
	}
	dir["bad one.json"] = &fstest.MapFile{Data: []byte(schemaA)}
	dir["huge.json"] = &fstest.MapFile{Data: append([]byte(schemaA), make([]byte, contract.MaxSchemaBytes)...)}
	dir["loop.json"] = &fstest.MapFile{Data: []byte(`{"$ref":"#"}`)}
	dir["z.json"] = &fstest.MapFile{Data: []byte(schemaA)}
	got, err = r.LoadDir(t.Context(), dir)
	wantCode(t, err, headgate.CodeContractInvalid)
	if len(got) != 3 {
		t.Errorf("good files beside bad ones: %+v", got)
	}
	for _, name := range []string{"bad one.json", "huge.json", "loop.json"} {
		if !strings.Contains(err.Error(), name+": ") {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

// At a restart a folder whose files are in use is not compiled a second time, and
// warns as ever; what is another schema, or under another policy, is.
func TestLoadDirTakesWhatIsCompiled(t *testing.T) {
	s := openStore(t)
	dir := fstest.MapFS{
		"ticket.opened.json": {Data: []byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}},"reqired":["a"]}`)},
		"ticket.closed.avsc": {Data: []byte(`{"type":"record","name":"C","fields":[{"name":"id","type":"string","logicalType":"uuid"}]}`)},
	}
	first, err := open(t, s).LoadDir(t.Context(), dir)
	if err != nil || len(first) != 2 || len(first[0].Warnings) == 0 || len(first[1].Warnings) == 0 {
		t.Fatalf("%+v %v", first, err)
	}
	again := open(t, s)
	for _, at := range []string{"a restart", "a second load"} {
		before := []*contract.Contract{again.Lookup("ticket.closed"), again.Lookup("ticket.opened")}
		got, err := again.LoadDir(t.Context(), dir)
		if err != nil || len(got) != 2 {
			t.Fatalf("%s: %+v %v", at, got, err)
		}
		for i := range got {
			if got[i].Created || got[i].ContractRef != first[i].ContractRef || !slices.Equal(got[i].Warnings, first[i].Warnings) {
				t.Errorf("%s: %+v, want %+v", at, got[i], first[i])
			}
			if again.Lookup(got[i].Subject) != before[i] {
				t.Errorf("%s: %s was compiled again", at, got[i].Subject)
			}
		}
	}
	dir["ticket.opened.json"] = &fstest.MapFile{Data: append([]byte(" "), dir["ticket.opened.json"].Data...)}
	before := again.Lookup("ticket.opened")
	if got, err := again.LoadDir(t.Context(), dir); err != nil || got[1].Created || got[1].Digest != first[1].Digest || again.Lookup("ticket.opened") == before {
		t.Errorf("a file of other bytes: %+v %v", got, err)
	}
	strict, err := Open(t.Context(), Config{Store: s, Policy: contract.Policy{CloseObjects: true}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := strict.LoadDir(t.Context(), dir); err != nil || !got[0].Created || !got[1].Created || got[0].Version != 2 || !strict.Lookup("ticket.opened").Policy().CloseObjects {
		t.Errorf("another policy: %+v %v", got, err)
	}
}

// Many writers of one subject make one version of each schema that was never
// in use before, and Lookup never steps back.
func TestConcurrentRegistration(t *testing.T) {
	s := openStore(t)
	r := open(t, s)
	const writers = 16
	var wg sync.WaitGroup
	created := make([]bool, writers)
	for i := range writers {
		wg.Go(func() {
			reg, err := r.Register(t.Context(), "same", "", []byte(schemaA), fmt.Sprint(i))
			if err != nil || reg.Version != 1 {
				t.Errorf("%+v %v", reg, err)
			}
			created[i] = reg.Created
		})
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		last := 0
		for {
			select {
			case <-stop:
				return
			default:
			}
			if c := r.Lookup("many"); c != nil {
				if v := c.Ref().Version; v < last {
					t.Errorf("Lookup went from version %d to %d", last, v)
					return
				} else {
					last = v
				}
			}
		}
	})
	for i := range writers {
		wg.Go(func() {
			schema := fmt.Sprintf(`{"type":"object","maxProperties":%d}`, i)
			if _, err := r.Register(t.Context(), "many", "", []byte(schema), "x"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(stop)
	readers.Wait()
	n := 0
	for _, c := range created {
		if c {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d registrations of one schema say that they created it", n)
	}
	rows, err := r.Versions(t.Context(), "many")
	if err != nil || len(rows) != writers {
		t.Fatalf("%d versions, %v", len(rows), err)
	}
	if in := r.Lookup("many").Ref(); in.Version != writers || in.Digest != rows[writers-1].Digest {
		t.Errorf("in use %+v, want version %d", in, writers)
	}
}

// A stored contract that does not compile leaves its subject without one, and
// the others alone.
func TestBrokenContract(t *testing.T) {
	s := openStore(t)
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return tx.Contracts.Put(ctx, store.Contract{Subject: "old", Version: 1, Digest: "d", Schema: []byte(`{"format":"no-longer"}`), Created: time.Unix(0, 0)})
	})
	if err != nil {
		t.Fatal(err)
	}
	register(t, open(t, s), "good", schemaA)
	r := open(t, s)
	if r.Lookup("old") != nil || r.Lookup("good") == nil {
		t.Error("the broken contract is in use, or the good one is not")
	}
	for _, err := range []error{r.Broken("old"), r.AllBroken()["old"]} {
		wantCode(t, err, headgate.CodeContractInvalid)
		if detail := headgate.AsError(err).Detail; !strings.HasPrefix(detail, "version 1 of old no longer compiles: ") {
			t.Error(detail)
		}
	}
	if err := r.Broken("good"); err != nil {
		t.Error(err)
	}
	register(t, r, "old", schemaA)
	if r.Lookup("old") == nil || r.Broken("old") != nil || len(r.AllBroken()) != 0 {
		t.Error("a new version does not mend the subject")
	}
}

// A stored version keeps the policy of its registration.
func TestPolicyIsKept(t *testing.T) {
	s := openStore(t)
	loose := register(t, open(t, s), "a", `{"type":"object"}`)
	strict, err := Open(t.Context(), Config{Store: s, Policy: contract.Policy{CloseObjects: true}})
	if err != nil {
		t.Fatal(err)
	}
	if strict.Lookup("a").Check([]byte(`{"x":1}`)) != nil {
		t.Error("an old version changed its policy")
	}
	reg := register(t, strict, "a", `{"type":"object"}`)
	if !reg.Created || reg.Digest == loose.Digest {
		t.Errorf("another policy is another contract: %+v", reg)
	}
	if strict.Lookup("a").Check([]byte(`{"x":1}`)) == nil {
		t.Error("the new policy is not applied")
	}
}

func TestOpenValidates(t *testing.T) {
	_, err := Open(t.Context(), Config{})
	wantCode(t, err, headgate.CodeInvalidConfig)
	_, err = Open(t.Context(), Config{Store: openStore(t), Policy: contract.Policy{Depth: -1}})
	wantCode(t, err, headgate.CodeInvalidArgument)
}
