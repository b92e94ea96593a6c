package outbox_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/outbox/outboxcheck"
)

type avroNode struct{}

func (avroNode) Contract(context.Context, string, int) (api.Contract, error) {
	return api.Contract{Subject: "a", Version: 3, Type: "avro", Schema: []byte(`{"type":"record","name":"R","fields":[{"name":"s","type":"string"}]}`)}, nil
}

// An Avro contract is checked in the writer's process as it is at the gate, but
// for frames, which only a registry can read.
func TestAvroIsCheckedBeforeTheOutbox(t *testing.T) {
	c, err := outboxcheck.Fetch(t.Context(), avroNode{}, []string{"a"}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		media, data string
		code        headgate.Code
	}{
		{"avro/binary", "\x02x", ""},
		{"avro/binary", "\x02\xff", headgate.CodeContractViolation},
		{"avro/binary", "\x00\x00\x00\x00\x01\x02x", headgate.CodeContractViolation},
		{"", `{"s":"x"}`, ""},
		{"", `{"s":1}`, headgate.CodeContractViolation},
		{"text/plain", "x", headgate.CodeUnsupportedMediaType},
	} {
		err := c.Check(&headgate.Event{Type: "a", DataContentType: x.media, Data: []byte(x.data)})
		if headgate.CodeOf(err) != x.code {
			t.Errorf("%s %q: %v, want %q", x.media, x.data, err, x.code)
		}
	}
}
