package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/headgate/headgate"
)

// MaxEvents bounds the events of one call.
const MaxEvents = 10_000

// MaxData is the largest payload that an outbox takes, in bytes. The type's own
// limit may be smaller.
const MaxData = 6 << 20

// Row is one event as an outbox stores it.
type Row struct {
	ID, Type, Source, Subject, Key string
	// Attributes is a JSON object of all other attributes; nil when there are
	// none.
	Attributes []byte
	// Data is the payload, byte for byte; nil when there is none.
	Data []byte
}

// Tx is a transaction of the caller. Adapters make one.
type Tx interface {
	// InsertEvents inserts rows in order, all or none.
	InsertEvents(ctx context.Context, rows []Row) error
	// SetCause marks the transaction with a causal token; an empty one unmarks
	// it.
	SetCause(ctx context.Context, token string) error
}

// Checker says whether an event keeps its contract. It must not change it.
type Checker interface {
	Check(e *headgate.Event) error
}

// Writer writes events. The zero value checks the envelope and [MaxData] alone.
type Writer struct {
	// Checker checks each event before anything is inserted; may be nil.
	Checker Checker
	// NewID mints the ids of events without one; default UUIDv7.
	NewID func() string
}

// Emit inserts events into the caller's transaction without a local check of
// contracts. See [Writer.Emit].
func Emit(ctx context.Context, tx Tx, events ...*headgate.Event) error {
	return (&Writer{}).Emit(ctx, tx, events...)
}

// SetCause marks the transaction with the causal token of the delivery that it
// reacts to: events inserted after it, by whatever means, are children of that
// delivery. Without it they are roots, which needs the right to start them.
func SetCause(ctx context.Context, tx Tx, token string) error {
	return tx.SetCause(ctx, token)
}

// Emit checks the events and inserts them in order. Events without an id get
// one. Errors: those of the checker and of the envelope, before anything was
// inserted, of one event with its place among the events; else those of the
// database.
func (w *Writer) Emit(ctx context.Context, tx Tx, events ...*headgate.Event) error {
	if len(events) == 0 {
		return nil
	}
	if len(events) > MaxEvents {
		return headgate.NewError(headgate.CodeTooLarge, "there are %d events; one call takes %d", len(events), MaxEvents)
	}
	rows := make([]Row, len(events))
	for i, e := range events {
		var err error
		if rows[i], err = w.row(e); err != nil {
			return placed(err, i, len(events))
		}
	}
	return tx.InsertEvents(ctx, rows)
}

// placed says which event a refusal is about.
func placed(err error, i, n int) error {
	e := headgate.AsError(err)
	if e == nil || n == 1 {
		return err
	}
	other := *e
	other.Detail = fmt.Sprintf("event %d of %d: %s", i+1, n, e.Detail)
	return &other
}

func (w *Writer) row(e *headgate.Event) (Row, error) {
	if e == nil {
		return Row{}, headgate.NewError(headgate.CodeBadEnvelope, "there is no event")
	}
	if e.ID == "" {
		if w.NewID != nil {
			e.ID = w.NewID()
		} else {
			e.ID = uuid.Must(uuid.NewV7()).String() // fails only with the system's randomness
		}
	}
	if err := e.Validate(); err != nil {
		return Row{}, err
	}
	if len(e.Data) > MaxData {
		return Row{}, headgate.NewError(headgate.CodeTooLarge, "the payload has %d bytes; an outbox takes %d", len(e.Data), MaxData)
	}
	if w.Checker != nil {
		if err := w.Checker.Check(e); err != nil {
			return Row{}, err
		}
	}
	attributes, err := attributesOf(e)
	if err != nil {
		return Row{}, err
	}
	return Row{ID: e.ID, Type: e.Type, Source: e.Source, Subject: e.Subject, Key: e.Key, Attributes: attributes, Data: e.Data}, nil
}

// attributesOf writes what has no column of its own.
func attributesOf(e *headgate.Event) ([]byte, error) {
	all := map[string]any{}
	for name, value := range map[string]string{
		"datacontenttype": e.DataContentType, "dataschema": e.DataSchema, "traceparent": e.TraceParent, "tracestate": e.TraceState,
	} {
		if value != "" {
			all[name] = value
		}
	}
	for name, at := range map[string]time.Time{"time": e.Time, "expirytime": e.ExpiryTime} {
		if !at.IsZero() {
			all[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	for _, x := range e.Extensions {
		switch x.Kind {
		case headgate.ExtensionBool:
			all[x.Name] = x.Value == "true"
		case headgate.ExtensionInteger:
			n, err := strconv.ParseInt(x.Value, 10, 32)
			if err != nil {
				return nil, headgate.NewError(headgate.CodeBadEnvelope, "attribute %s is no integer", x.Name)
			}
			all[x.Name] = n
		default:
			all[x.Name] = x.Value
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}
