package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// SetAttributes fills in an event from the JSON object in which an outbox keeps
// the attributes that have no column of their own: those of CloudEvents, and
// extensions. The error says what is wrong with the object.
func SetAttributes(e *headgate.Event, object []byte) error {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return errors.New("attributes is no JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("attributes is more than one JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := setAttribute(e, name, all[name]); err != nil {
			return err
		}
	}
	return nil
}

func setAttribute(e *headgate.Event, name string, value any) error {
	s, isText := value.(string)
	var into *string
	switch name {
	case "datacontenttype":
		into = &e.DataContentType
	case "dataschema":
		into = &e.DataSchema
	case "traceparent":
		into = &e.TraceParent
	case "tracestate":
		into = &e.TraceState
	case "time", "expirytime":
		at, err := time.Parse(time.RFC3339Nano, s)
		if !isText || err != nil {
			return fmt.Errorf("attribute %s is no time", name)
		}
		if name == "time" {
			e.Time = at
		} else {
			e.ExpiryTime = at
		}
		return nil
	case "id", "type", "source", "subject", "partitionkey", "specversion":
		return fmt.Errorf("attribute %s has a column of its own", name)
	default:
		return setExtension(e, name, value)
	}
	if !isText {
		return fmt.Errorf("attribute %s is no string", name)
	}
	*into = s
	return nil
}

func setExtension(e *headgate.Event, name string, value any) error {
	x := headgate.Extension{Name: name}
	switch v := value.(type) {
	case string:
		x.Value = v
	case bool:
		x.Value, x.Kind = strconv.FormatBool(v), headgate.ExtensionBool
	case json.Number:
		x.Value, x.Kind = v.String(), headgate.ExtensionInteger
	default:
		return fmt.Errorf("attribute %q is neither string, boolean nor integer", name)
	}
	e.SetExtension(x)
	return nil
}
