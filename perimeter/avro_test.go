package perimeter_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/headgate/headgate"
)

func avroEvent(id, data string) *headgate.Event {
	e := event("note.avro", id, data)
	e.DataContentType = "application/avro"
	return e
}

// Avro payloads pass bare, in both frames, and as JSON. Frames are taken off,
// keys are read from either encoding, and a refused payload is recorded as it
// was sent.
func TestAvroPayloads(t *testing.T) {
	g := open(t, setup{})
	print := binary.LittleEndian.AppendUint64([]byte("\xc3\x01"), g.contracts["note.avro"].AvroFingerprint())
	asJSON := event("note.avro", "a4", `{"key":"k","n":1}`)
	bad := avroEvent("a5", "\x02k")
	foreign := avroEvent("a6", "\x00\x00\x00\x00\x07\x02k\x02")
	framedBad := avroEvent("a7", "\x00\x00\x00\x00\x01\x02\xff\x02")
	res := g.admit(helpdesk(), avroEvent("a1", "\x02k\x02"), avroEvent("a2", "\x00\x00\x00\x00\x01\x02k\x02"), avroEvent("a3", string(print)+"\x02k\x02"),
		asJSON, bad, foreign, framedBad)
	wantCodes(t, res, "ok", "ok", "ok", "ok", "contract_violation@contract", "contract_violation@contract", "contract_violation@contract")
	for i, want := range []string{"\x02k\x02", "\x02k\x02", "\x02k\x02", `{"key":"k","n":1}`} {
		if e := res[i].Event; string(e.Data) != want || e.Key != "k" || e.DataSchema != "note.avro@1" {
			t.Errorf("%d: data %q, key %q, schema %q", i, e.Data, e.Key, e.DataSchema)
		}
	}
	for i, want := range map[int]string{4: "\x02k", 5: "\x00\x00\x00\x00\x07\x02k\x02", 6: "\x00\x00\x00\x00\x01\x02\xff\x02"} {
		if rec := g.record(res[i].QID); string(rec.Body) != want {
			t.Errorf("%d: recorded %q, want %q", i, rec.Body, want)
		}
	}
	if v := res[6].Err.Verdict.Violations[0]; v.At != "/key" || v.Offset != 5 {
		t.Errorf("%+v", v)
	}
	if n := g.checkStored(); n != 4 {
		t.Errorf("%d events are stored", n)
	}
}

// A frame before JSON is taken off where the contract is a JSON Schema; Avro
// is refused there, and so is Avro for a type without a contract.
func TestFramedJSON(t *testing.T) {
	g := open(t, setup{drafter: &drafter{}})
	wrong := avroEvent("f3", "\x02k\x02")
	wrong.Type = "ticket.opened"
	unknown := avroEvent("f4", "\x02k\x02")
	unknown.Type = "note.none"
	keyless := event("order.placed", "f5", "\x00\x00\x00\x00\x01{}") // refused at the stamp, behind the contract
	res := g.admit(helpdesk(), event("ticket.opened", "f1", "\x00\x00\x00\x00\x01{\"n\":1}"), event("ticket.opened", "f2", "\x00\x00\x00\x00\x09{\"n\":1}"), wrong, unknown, keyless)
	wantCodes(t, res, "ok", "contract_violation@contract", "unsupported_media_type@contract", "contract_unknown@contract", "ok")
	if string(res[0].Event.Data) != `{"n":1}` || string(res[4].Event.Data) != `{}` {
		t.Errorf("data %q and %q", res[0].Event.Data, res[4].Event.Data)
	}
	g.checkStored()
}

// The template of a fence reads Avro, framed or not; what it cannot read is
// told as what it is, a payload against its contract.
func TestFencesReadAvro(t *testing.T) {
	g := openFenced(t)
	one := g.lease("ticket/1")
	ticket := func(id, data string) *headgate.Event {
		e := avroEvent(id, data)
		e.Type = "ticket.avro"
		return e
	}
	res := g.publish(t.Context(), []string{one.Token}, ticket("a", "\x02"), ticket("b", "\x00\x00\x00\x00\x01\x02"), ticket("c", "\x04"), ticket("d", ""))
	wantCodes(t, res, "ok", "ok", "fence_foreign@fence", "contract_violation@contract")
	if string(res[1].Event.Data) != "\x02" || res[1].Event.Header.Fence != fmt.Sprintf("ticket/1@%d", one.Epoch) {
		t.Errorf("%q, %+v", res[1].Event.Data, res[1].Event.Header)
	}
	if rec := g.record(res[2].QID); string(rec.Body) != "\x04" {
		t.Errorf("recorded %q", rec.Body)
	}
}
