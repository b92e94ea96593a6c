package admin_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/topology"
)

const sensorAvro = `{"type":"record","name":"Sensor","fields":[{"name":"id","type":"string"},{"name":"n","type":"long"},{"name":"note","type":["null","string"],"default":null}]}`

// An Avro contract from end to end: registered, checked, published in every
// form, matched by conditions and keys, and read in either encoding.
func TestAvroEndToEnd(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Types: []topology.Type{{Pattern: "sensor.read", Key: "data.id"}}})
	c, ctx := n.Client(t, "admin"), context.Background()
	put, created, err := c.PutAvroContract(ctx, "sensor.read", []byte(sensorAvro))
	if err != nil || !created || put.Type != "avro" || put.Engine != headgate.EngineFast {
		t.Fatalf("%+v, %v", put, err)
	}
	whole, err := c.Contract(ctx, "sensor.read", 0)
	if err != nil || whole.Type != "avro" || !bytes.Equal(whole.Schema, []byte(sensorAvro)) {
		t.Errorf("%+v, %v", whole, err)
	}
	datum := "\x02s" + "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + "\x02\x02x" // n is the largest long
	if checked, err := c.CheckContract(ctx, "sensor.read", "avro/binary", []byte(datum)); err != nil || checked.Contract.Version != 1 {
		t.Errorf("%+v, %v", checked, err)
	}
	_, err = c.CheckContract(ctx, "sensor.read", "avro/binary", []byte(datum+"\x00"))
	if e := headgate.AsError(err); e == nil || e.Verdict == nil || e.Verdict.Violations[0].Offset != len(datum) {
		t.Errorf("a byte too many: %v", err)
	}
	if _, _, err := c.PutSubscription(ctx, "large", api.SubscriptionSpec{Types: []string{"sensor.read"}, When: "data.n > 5 && data.id == 's'"}); err != nil {
		t.Fatal(err)
	}
	publishSensors(t, n, c, datum)

	want := `{"id":"s","n":9223372036854775807,"note":"x"}`
	got := pullSensors(t, c.Reading("json"), "large", 3)
	for i, e := range got {
		if e.DataContentType != "" && e.DataContentType != "application/json" || string(e.Data) != want && i != 2 || e.PartitionKey != "s" {
			t.Errorf("as JSON %d: %+v %s", i, e, e.Data)
		}
	}
	if string(got[2].Data) != `{"id":"s","n":6}` {
		t.Errorf("JSON as it was sent: %s", got[2].Data)
	}
	events, err := c.Event(ctx, "e1", true)
	if err != nil || !strings.Contains(string(events.Events[0].Event), `"data_base64":"`+base64.StdEncoding.EncodeToString([]byte(datum))+`"`) {
		t.Errorf("as it was sent: %s, %v", events.Events[0].Event, err)
	}
	if events, err = c.Reading("json").Event(ctx, "e1", true); err != nil || !strings.Contains(string(events.Events[0].Event), `"data":`+want) {
		t.Errorf("as JSON: %s, %v", events.Events[0].Event, err)
	}
	if events, err = c.Reading("avro").Event(ctx, "e3", true); err != nil || !strings.Contains(string(events.Events[0].Event), `"data_base64":"`+base64.StdEncoding.EncodeToString([]byte("\x02s\x0c\x00"))+`"`) {
		t.Errorf("as Avro: %s, %v", events.Events[0].Event, err)
	}
	tailSensor(t, c, want)
	if _, err := c.Reading("xml").Event(ctx, "e1", false); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
		t.Errorf("an unknown encoding: %v", err)
	}
}

// publishSensors publishes a datum as it is and framed, JSON, one that the
// condition does not match, and bad ones.
func publishSensors(t *testing.T, n *nodetest.Node, c *client.Client, datum string) {
	t.Helper()
	entry, err := n.Registry.Entry(t.Context(), "sensor.read", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	send := func(id, media, data string) int {
		status, body := ask(t, n, "admin", http.MethodPost, "/v1/events", data, "Content-Type", media,
			"ce-specversion", "1.0", "ce-type", "sensor.read", "ce-source", "/t", "ce-id", id)
		if status >= 500 {
			t.Fatalf("%s: %d %s", id, status, body)
		}
		return status
	}
	framed := "\x00\x00\x00\x00" + string(rune(entry.ID)) + datum
	for id, got := range map[string]int{
		"e1": send("e1", "application/avro", datum), "e2": send("e2", "avro/binary", framed), "e3": send("e3", "application/json", `{"id":"s","n":6}`),
		"e4": send("e4", "avro/binary", "\x02s\x02\x00"),
	} {
		if got != http.StatusAccepted {
			t.Errorf("%s: %d", id, got)
		}
	}
	for id, got := range map[string]int{
		"b1": send("b1", "avro/binary", datum[:5]), "b2": send("b2", "avro/binary", "\x00\x00\x00\x00\x77"+datum), "b3": send("b3", "application/json", `{"id":"s"}`),
	} {
		if got != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", id, got)
		}
	}
}

type read struct {
	ID              string          `json:"id"`
	DataContentType string          `json:"datacontenttype"`
	PartitionKey    string          `json:"partitionkey"`
	Data            json.RawMessage `json:"data"`
}

func pullSensors(t *testing.T, c *client.Client, name string, want int) (out []read) {
	t.Helper()
	for len(out) < want {
		ds, err := c.Pull(t.Context(), name, want, 10*time.Second)
		if err != nil || len(ds) == 0 {
			t.Fatalf("%d of %d, %v", len(out), want, err)
		}
		for _, d := range ds {
			var e read
			if err := json.Unmarshal(d.Event, &e); err != nil {
				t.Fatal(err)
			}
			out = append(out, e)
			if _, err := c.Settle(t.Context(), name, api.Settlement{Claim: d.Claim, Outcome: "ack"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ids := ""
	for _, e := range out {
		ids += e.ID + " "
	}
	if ids != "e1 e2 e3 " {
		t.Fatalf("deliveries %s", ids)
	}
	return out
}

func tailSensor(t *testing.T, c *client.Client, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tail, err := c.Reading("json").Tail(ctx, client.TailOpts{Types: []string{"sensor.read"}, From: "beginning"})
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	m, err := tail.Next()
	if err != nil || !strings.Contains(string(m.Event.Event), `"data":`+want) {
		t.Errorf("tail: %+v, %v", m, err)
	}
}

// A kept payload in Avro is shown as JSON where a version of its contract reads
// it: of an event that was admitted, by the version that it names, and of one
// that was refused before or behind the contract, by its frame or the latest.
// What no version reads is shown as it is.
func TestKeptAvroIsShownAsJSON(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Types: []topology.Type{{Pattern: "sensor.read", Key: "data.id"}}})
	c, ctx := n.Client(t, "admin"), t.Context()
	if _, _, err := c.PutAvroContract(ctx, "sensor.read", []byte(sensorAvro)); err != nil {
		t.Fatal(err)
	}
	send := func(id, cause, data string) {
		t.Helper()
		header := []string{"Content-Type", "application/avro", "ce-specversion", "1.0", "ce-type", "sensor.read", "ce-source", "/t", "ce-id", id}
		if cause != "" {
			header = append(header, "Headgate-Cause", cause)
		}
		if status, body := ask(t, n, "admin", http.MethodPost, "/v1/events", data, header...); status >= 500 {
			t.Fatalf("%s: %d %s", id, status, body)
		}
	}
	const datum, whole = "\x02s\x02\x00", `{"id":"s","n":1,"note":null}`
	entry, err := n.Registry.Entry(ctx, "sensor.read", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	framed := "\x00\x00\x00\x00" + string(rune(entry.ID)) + datum
	send("x1", "none", datum) // no such cause: refused before the contract
	send("x2", "none", framed)
	send("x3", "", "\x02s")
	send("x4", "none", "\x02\x20\x02\x00 long "+strings.Repeat("x", 100))
	for id, want := range map[string]string{"x1": whole, "x2": whole, "x3": "", "x4": ""} {
		page, err := c.Quarantine(ctx, client.QuarantineFilter{ID: id}, client.Page{})
		if err != nil || len(page.Records) != 1 {
			t.Fatalf("%s: %+v, %v", id, page, err)
		}
		r, err := c.Quarantined(ctx, page.Records[0].QID)
		if err != nil || r.BodyJSON != want || r.Body != "" || len(r.BodyBase64) == 0 || (want != "") != (r.BodyContract == "sensor.read@1") {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
	send("ok", "", datum)
	x, err := c.Reading("json").Explain(ctx, "ok", true)
	if err != nil || !strings.Contains(string(x.Event.Event), `"data":`+whole) {
		t.Errorf("%s, %v", x.Event.Event, err)
	}
	if x, err = c.Explain(ctx, "ok", true); err != nil || !strings.Contains(string(x.Event.Event), `"data_base64"`) {
		t.Errorf("as it was sent: %s, %v", x.Event.Event, err)
	}
	if _, err := c.Reading("xml").Explain(ctx, "ok", true); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
		t.Errorf("an unknown encoding: %v", err)
	}
}

// A long payload is cut where its JSON is longer than what is shown.
func TestLongKeptAvroIsCut(t *testing.T) {
	n := nodetest.Start(t, nil)
	c, ctx := n.Client(t, "admin"), t.Context()
	if _, _, err := c.PutAvroContract(ctx, "blob.kept", []byte(`{"type":"record","name":"Blob","fields":[{"name":"b","type":"bytes"}]}`)); err != nil {
		t.Fatal(err)
	}
	blob := "\x80\xf1\x04" + strings.Repeat("\xff", 40_000)
	ask(t, n, "admin", http.MethodPost, "/v1/events", blob, "Content-Type", "avro/binary",
		"ce-specversion", "1.0", "ce-type", "blob.kept", "ce-source", "/t", "ce-id", "b1", "Headgate-Cause", "none")
	page, err := c.Quarantine(ctx, client.QuarantineFilter{ID: "b1"}, client.Page{})
	if err != nil || len(page.Records) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	r, err := c.Quarantined(ctx, page.Records[0].QID)
	if err != nil || !r.BodyJSONClipped || len(r.BodyJSON) > 64<<10 || !strings.HasPrefix(r.BodyJSON, `{"b":"ÿ`) || len(r.BodyBase64) != len(blob) {
		t.Errorf("%d bytes of JSON, clipped %v, %d bytes, %v", len(r.BodyJSON), r.BodyJSONClipped, len(r.BodyBase64), err)
	}
}
