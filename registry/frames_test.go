package registry

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/registry/compat"
	"github.com/headgate/headgate/store"
)

const (
	avroA = `{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}`
	avroB = `{"type":"record","name":"R","fields":[{"name":"a","type":"string"},{"name":"b","type":["null","long"],"default":null}]}`
	avroC = `{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`
)

func registerAvro(t *testing.T, r *Registry, subject, schema string) Registered {
	t.Helper()
	reg, err := r.Register(t.Context(), subject, contract.TypeAvro, []byte(schema), "ada")
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

func idOf(t *testing.T, r *Registry, subject string, version int) uint32 {
	t.Helper()
	e, err := r.Entry(t.Context(), subject, version, WithDeleted)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(e.ID)
}

// namedVersion returns the version that a frame names, 0 for none.
func namedVersion(t *testing.T, r *Registry, subject string, f contract.Frame) int {
	t.Helper()
	c, err := r.Named(t.Context(), subject, f)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return 0
	}
	return c.Ref().Version
}

// TestAvroContracts: an Avro schema is a contract like any other, however it
// is registered, and across a restart.
func TestAvroContracts(t *testing.T) {
	s := openStore(t)
	r := openLevel(t, s, compat.Backward)
	first := registerAvro(t, r, "a", avroA)
	if !first.Created || first.Version != 1 || first.Engine != headgate.EngineFast {
		t.Errorf("%+v", first)
	}
	if again := registerAvro(t, r, "a", strings.ReplaceAll(avroA, ",", " , ")); again.Created || again.Digest != first.Digest {
		t.Errorf("the same schema: %+v", again)
	}
	_, err := r.Register(t.Context(), "a", contract.TypeAvro, []byte(avroC), "ada")
	wantCode(t, err, headgate.CodeContractIncompatible)
	_, err = r.Register(t.Context(), "a", "", []byte(schemaA), "ada")
	wantCode(t, err, headgate.CodeContractIncompatible) // of another type
	_, err = r.Register(t.Context(), "a", contract.TypeAvro, []byte(`{"type":"nope"}`), "ada")
	wantCode(t, err, headgate.CodeContractInvalid)
	if e, err := r.Submit(t.Context(), "a", Submission{Type: compat.Avro, Schema: []byte(avroB)}, "ada"); err != nil || e.Version != 2 {
		t.Fatalf("%+v, %v", e, err)
	}
	for range 2 {
		c := r.Lookup("a")
		if c == nil || c.Type() != contract.TypeAvro || c.Ref().Version != 2 || c.CheckAvro([]byte("\x02x\x00")) != nil || c.CheckAvro([]byte("\x02x")) == nil {
			t.Fatalf("in use: %v", c)
		}
		old, err := r.Compiled(t.Context(), "a", 1)
		if err != nil || old.Ref().Digest != first.Digest || old.CheckAvro([]byte("\x02x")) != nil {
			t.Errorf("version 1: %v, %v", old, err)
		}
		row, err := r.Get(t.Context(), "a", 1)
		if err != nil || row.Type != "avro" || string(row.Schema) != avroA {
			t.Errorf("stored: %+v, %v", row, err)
		}
		r = openLevel(t, s, compat.Backward)
	}
	if n, err := r.Delete(t.Context(), "a", 0); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	if reg := register(t, r, "a", schemaA); reg.Version != 3 { // nothing is in use: it may become JSON
		t.Errorf("%+v", reg)
	}
}

// TestNames: a frame names live versions of its subject, and nothing else.
func TestNames(t *testing.T) {
	s := openStore(t)
	r := open(t, s)
	registerAvro(t, r, "a", avroA)
	registerAvro(t, r, "a", avroB)
	registerAvro(t, r, "other", avroC)
	register(t, r, "json", schemaA)
	id := func(subject string, version int) contract.Frame {
		return contract.Frame{Kind: contract.FrameConfluent, ID: idOf(t, r, subject, version)}
	}
	print := func(schema string) contract.Frame {
		c, _, err := contract.Compile("x", 1, []byte(schema), &contract.CompileOpts{Type: contract.TypeAvro})
		if err != nil {
			t.Fatal(err)
		}
		return contract.Frame{Kind: contract.FrameSingleObject, Fingerprint: c.AvroFingerprint()}
	}
	check := func(deleted bool) {
		t.Helper()
		one := 1
		if deleted {
			one = 0
		}
		for _, c := range []struct {
			subject string
			f       contract.Frame
			want    int
		}{
			{"a", id("a", 1), one},
			{"a", id("a", 2), 2},
			{"a", id("other", 1), 0},
			{"other", id("a", 1), 0},
			{"other", id("other", 1), 1},
			{"a", print(avroA), one},
			{"a", print(avroB), 2},
			{"a", print(avroC), 0},
			{"other", print(avroC), 1},
			{"json", id("json", 1), 1},
			{"a", id("json", 1), 0},
			{"json", print(avroA), 0},
			{"nobody", id("a", 1), 0},
			{"a", contract.Frame{Kind: contract.FrameConfluent}, 0},
			{"a", contract.Frame{Kind: contract.FrameConfluent, ID: 1 << 31}, 0},
			{"a", contract.Frame{}, 0},
		} {
			if got := namedVersion(t, r, c.subject, c.f); got != c.want {
				t.Errorf("deleted %t: %s %+v names version %d, want %d", deleted, c.subject, c.f, got, c.want)
			}
		}
	}
	check(false)
	r = open(t, s)
	check(false)
	if _, err := r.Delete(t.Context(), "a", 1); err != nil {
		t.Fatal(err)
	}
	check(true)
	r = open(t, s)
	check(true)
}

// TestLoadDirTakesAvro: *.avsc files are Avro contracts.
func TestLoadDirTakesAvro(t *testing.T) {
	r := open(t, openStore(t))
	regs, err := r.LoadDir(t.Context(), fstest.MapFS{"a.avsc": {Data: []byte(avroA)}, "b.json": {Data: []byte(schemaA)}, "c.txt": {Data: []byte("x")}})
	if err != nil || len(regs) != 2 || r.Lookup("a").Type() != contract.TypeAvro || r.Lookup("b").Type() != contract.TypeJSON {
		t.Errorf("%+v, %v", regs, err)
	}
	if regs, err = r.LoadDir(t.Context(), fstest.MapFS{"a.avsc": {Data: []byte(avroA)}}); err != nil || regs[0].Created {
		t.Errorf("again: %+v, %v", regs, err)
	}
	_, err = r.LoadDir(t.Context(), fstest.MapFS{"bad.avsc": {Data: []byte(`{"type":"record"}`)}})
	wantCode(t, err, headgate.CodeContractInvalid)
}

// TestAvroReferencesAreBundled: a contract that refers to other subjects holds
// them, so that it stands alone when they are deleted.
func TestAvroReferencesAreBundled(t *testing.T) {
	s := openStore(t)
	r := open(t, s)
	registerAvro(t, r, "inner", avroA)
	sub := Submission{Schema: []byte(`{"type":"record","name":"O","fields":[{"name":"r","type":"R"}]}`), References: []Reference{{Name: "R", Subject: "inner", Version: 1}}}
	if _, err := r.Submit(t.Context(), "outer", sub, "ada"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c := r.Lookup("outer")
		if c == nil || c.CheckAvro([]byte("\x02x")) != nil {
			t.Fatalf("%v", c)
		}
		if v := c.CheckAvro([]byte("\x02\xff")); v == nil || v.Violations[0].At != "/r/a" {
			t.Errorf("%+v", v)
		}
		r = open(t, s)
	}
}

// TestViews: readers get Avro as JSON and JSON as Avro, by the version that the
// event passed.
func TestViews(t *testing.T) {
	r := open(t, openStore(t))
	registerAvro(t, r, "a", avroA)
	registerAvro(t, r, "a", avroB)
	register(t, r, "json", schemaA)
	event := func(media, schema, data string) *headgate.Event {
		return &headgate.Event{Type: "a", DataContentType: media, DataSchema: schema, Data: []byte(data)}
	}
	for name, c := range map[string]struct {
		e     *headgate.Event
		as    string
		media string
		data  string
	}{
		"Avro as JSON":              {event("avro/binary", "a@2", "\x02x\x02\x0e"), AsJSON, "application/json", `{"a":"x","b":7}`},
		"an older version":          {event("application/avro", "a@1", "\x02x"), AsJSON, "application/json", `{"a":"x"}`},
		"JSON as Avro":              {event("", "a@2", `{"a":"x"}`), AsAvro, "avro/binary", "\x02x\x00"},
		"Avro as Avro":              {event("application/avro", "a@1", "\x02x"), AsAvro, "application/avro", "\x02x"},
		"JSON as JSON":              {event("", "a@1", `{"a":"x"}`), AsJSON, "", `{"a":"x"}`},
		"as it is":                  {event("avro/binary", "a@1", "\x02x"), "", "avro/binary", "\x02x"},
		"of no known version":       {event("avro/binary", "a@9", "\x02x"), AsJSON, "avro/binary", "\x02x"},
		"without a version":         {event("avro/binary", "", "\x02x"), AsJSON, "avro/binary", "\x02x"},
		"not of its version":        {event("avro/binary", "a@1", "\x02x\x00"), AsJSON, "avro/binary", "\x02x\x00"},
		"of a JSON Schema, as Avro": {event("", "json@1", `{"a":"x"}`), AsAvro, "", `{"a":"x"}`},
	} {
		before := *c.e
		got := r.View(t.Context(), c.e, c.as)
		if got.DataContentType != c.media || string(got.Data) != c.data {
			t.Errorf("%s: %s %q, want %s %q", name, got.DataContentType, got.Data, c.media, c.data)
		}
		if c.e.DataContentType != before.DataContentType || string(c.e.Data) != string(before.Data) {
			t.Errorf("%s: the event itself was changed", name)
		}
	}
}

// TestSubmitted: events on their way to the gate are read as the gate will.
func TestSubmitted(t *testing.T) {
	r := open(t, openStore(t))
	registerAvro(t, r, "a", avroA)
	registerAvro(t, r, "a", avroB)
	framed := "\x00\x00\x00\x00" + string(rune(idOf(t, r, "a", 1))) + "\x02x"
	for _, c := range []struct{ subject, media, data, want string }{
		{"a", "avro/binary", "\x02x\x00", `{"a":"x","b":null}`},
		{"a", "avro/binary", framed, `{"a":"x"}`},
		{"a", "avro/binary", "\x02x", "\x02x"}, // of the older version, and without a frame
		{"nobody", "avro/binary", "\x02x\x00", "\x02x\x00"},
		{"a", "", `{"a":"x"}`, `{"a":"x"}`},
	} {
		e := &headgate.Event{Type: c.subject, DataContentType: c.media, Data: []byte(c.data)}
		got := r.Submitted(t.Context(), c.subject, e)
		if string(got.Data) != c.want || string(e.Data) != c.data || (got != e) != (c.want != c.data) {
			t.Errorf("%s %q: %q, want %q", c.subject, c.data, got.Data, c.want)
		}
	}
}

// TestAvroOfBefore: versions that were registered when there was no engine for
// them become contracts, and what is registered next goes on from there.
func TestAvroOfBefore(t *testing.T) {
	s := openStore(t)
	r := open(t, s)
	registerAvro(t, r, "a", avroA)
	registerAvro(t, r, "a", avroB)
	registerAvro(t, r, "a", avroC)
	id := idOf(t, r, "a", 3)
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		// As it was: versions 1 and 3 are live, 2 was removed for good, and
		// there is a subject of which nothing is a contract.
		if err := tx.Registry.RemoveVersion(ctx, "a", 2); err != nil {
			return err
		}
		for _, v := range []int{1, 3} {
			e, err := tx.Registry.Versions(ctx, store.RegistryFilter{Subject: "a"})
			if err != nil {
				return err
			}
			for _, row := range e {
				if row.Version == v {
					row.Subject = "old"
					if err := tx.Registry.PutVersion(ctx, row, nil); err != nil {
						return err
					}
				}
			}
		}
		return tx.Settings.Delete(ctx, "registry/backfilled")
	})
	if err != nil {
		t.Fatal(err)
	}
	r = open(t, s)
	c := r.Lookup("old")
	if c == nil || c.Ref().Version != 3 || c.CheckAvro([]byte{2}) != nil {
		t.Fatalf("in use: %v", c)
	}
	if got := namedVersion(t, r, "old", contract.Frame{Kind: contract.FrameConfluent, ID: id}); got != 3 {
		t.Errorf("the id names version %d", got)
	}
	rows, err := r.Versions(t.Context(), "old")
	if err != nil || len(rows) != 3 || rows[0].Deleted || !rows[1].Deleted || rows[2].Deleted || string(rows[0].Schema) != avroA {
		t.Errorf("%+v, %v", rows, err)
	}
	if reg := registerAvro(t, r, "old", avroB); reg.Version != 4 {
		t.Errorf("%+v", reg)
	}
}

// TestViewThatGrowsTooMuch: data whose JSON would be far longer comes as it was
// sent.
func TestViewThatGrowsTooMuch(t *testing.T) {
	r := openLevel(t, openStore(t), compat.None)
	reg := registerAvro(t, r, "grows", `{"type":"array","items":{"type":"enum","name":"E","symbols":["`+strings.Repeat("S", 1000)+`"]}}`)
	e := &headgate.Event{
		DataContentType: headgate.MediaTypeAvro, DataSchema: (&headgate.ContractRef{Subject: "grows", Version: reg.Version}).String(),
		Data: append([]byte{0x80, 0x89, 0x7a}, make([]byte, 1_000_001)...), // one million items
	}
	if _, err := r.JSON(t.Context(), e); headgate.CodeOf(err) != headgate.CodeTooLarge {
		t.Errorf("%v", err)
	}
	if view := r.View(t.Context(), e, AsJSON); view != e {
		t.Errorf("%s with %d bytes", view.DataContentType, len(view.Data))
	}
}
