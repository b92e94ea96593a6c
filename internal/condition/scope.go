package condition

import (
	"sync"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"

	"github.com/headgate/headgate"
)

// Scope is one event, and what expressions over it have parsed so far. It must
// not outlive the event's being unmodified.
type Scope struct {
	event   *headgate.Event
	decode  func(*headgate.Event) ([]byte, error)
	once    sync.Once
	data    any
	dataErr error
}

// Over returns the scope of an event. Nothing is parsed yet.
func Over(e *headgate.Event) *Scope { return &Scope{event: e} }

// OverDecoded returns the scope of an event whose data, if it is Avro, decode
// turns into JSON when an expression first reads it. decode may be nil.
func OverDecoded(e *headgate.Event, decode func(*headgate.Event) ([]byte, error)) *Scope {
	return &Scope{event: e, decode: decode}
}

// Event returns the event.
func (s *Scope) Event() *headgate.Event { return s.event }

// activation resolves the variables of an expression.
type activation struct{ *Scope }

// Parent returns nil: there is no scope around an event.
func (activation) Parent() interpreter.Activation { return nil }

// ResolveName returns the value of a variable; false means that the event does
// not have it, which ends the evaluation with an error.
func (a activation) ResolveName(name string) (any, bool) {
	e := a.event
	switch name {
	case "data":
		return a.parsed()
	case "id":
		return e.ID, true
	case "source":
		return e.Source, true
	case "type":
		return e.Type, true
	case "subject":
		return e.Subject, true
	case "time":
		return types.Timestamp{Time: e.Time}, !e.Time.IsZero()
	case "key":
		return e.Key, true
	case "origin":
		return string(e.Header.Origin), true
	case "principal":
		return e.Header.Principal, true
	case "actor":
		return string(e.Header.Actor), true
	case "rootid":
		return e.Header.RootID, true
	case "ttl":
		return types.Int(e.Header.TTL), true
	case "hop":
		return types.Int(e.Header.Hop), true
	case "ext":
		return extensions(e), true
	}
	return nil, false
}

func extensions(e *headgate.Event) map[string]any {
	m := make(map[string]any, len(e.Extensions))
	for _, x := range e.Extensions {
		switch x.Kind {
		case headgate.ExtensionBool:
			m[x.Name] = x.Value == "true"
		case headgate.ExtensionInteger:
			m[x.Name] = number([]byte(x.Value))
		default:
			m[x.Name] = x.Value
		}
	}
	return m
}

// parsed returns the data: a JSON value, a string or bytes, null if none.
func (s *Scope) parsed() (any, bool) {
	s.once.Do(func() {
		switch e := s.event; {
		case e.Data == nil:
			s.data = types.NullValue
		case headgate.IsJSON(e.DataContentType):
			s.data, s.dataErr = parse(e.Data)
		case s.decode != nil && headgate.IsAvro(e.DataContentType):
			var text []byte
			if text, s.dataErr = s.decode(e); s.dataErr == nil {
				s.data, s.dataErr = parse(text)
			}
		case utf8.Valid(e.Data):
			s.data = string(e.Data)
		default:
			s.data = e.Data
		}
	})
	return s.data, s.dataErr == nil
}
