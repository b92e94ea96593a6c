// Package outboxcheck checks events against their contracts in the writer's own
// process, before they are inserted into an outbox.
//
// # Model
//
// [Contracts] holds compiled contracts by event type. [Fetch] asks a node for
// them once; a program that knows its schemas uses [Compile]. The perimeter
// checks again, against the contract that is in force then: this check makes
// most refusals fail the transaction that caused them.
//
// # Invariants
//
//  1. A payload passes exactly when the compiled contract says so; the error is
//     the one that the perimeter would give, with the whole report.
//  2. A type without a contract is refused, unless [Contracts.Unchecked] names it.
//
// # Concurrency
//
// A Contracts is immutable after it was made, and safe for concurrent use.
package outboxcheck

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/contract"
)

// DefaultMaxData is the largest payload when none is set: that of a type which
// declares none.
const DefaultMaxData = 512 << 10

// Contracts checks events. It implements outbox.Checker.
type Contracts struct {
	// MaxData is the largest payload in bytes; default [DefaultMaxData].
	MaxData int
	// Unchecked are types that pass without a contract here.
	Unchecked []string

	byType map[string]*contract.Contract
}

// Getter is the node's HTTP API, as package client offers it.
type Getter interface {
	Contract(ctx context.Context, subject string, version int) (api.Contract, error)
}

// Fetch gets the latest contract of each type from a node. subjects maps types
// to subjects where they differ; it may be nil. closed is whether the node
// closes every object (contracts.unknown_fields: refuse).
func Fetch(ctx context.Context, node Getter, types []string, subjects map[string]string, closed bool) (*Contracts, error) {
	c := &Contracts{byType: make(map[string]*contract.Contract, len(types))}
	for _, t := range types {
		subject := t
		if s := subjects[t]; s != "" {
			subject = s
		}
		got, err := node.Contract(ctx, subject, 0)
		if err != nil {
			return nil, err
		}
		if err := c.add(t, subject, got.Version, contract.Type(got.Type), got.Schema, closed); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Compile compiles the JSON Schema of each type.
func Compile(schemas map[string][]byte, closed bool) (*Contracts, error) {
	c := &Contracts{byType: make(map[string]*contract.Contract, len(schemas))}
	for t, schema := range schemas {
		if err := c.add(t, t, 1, contract.TypeJSON, schema, closed); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Contracts) add(eventType, subject string, version int, kind contract.Type, schema []byte, closed bool) error {
	compiled, _, err := contract.Compile(subject, version, schema, &contract.CompileOpts{Type: kind, Policy: contract.Policy{CloseObjects: closed}})
	if err != nil {
		return err
	}
	c.byType[eventType] = compiled
	return nil
}

// Check implements outbox.Checker. Errors: too_large, unsupported_media_type,
// contract_unknown, and contract_violation with the report.
func (c *Contracts) Check(e *headgate.Event) error {
	limit := c.MaxData
	if limit <= 0 {
		limit = DefaultMaxData
	}
	if len(e.Data) > limit {
		return headgate.NewError(headgate.CodeTooLarge, "the payload has %d bytes; type %s allows %d", len(e.Data), e.Type, limit)
	}
	isAvro := headgate.IsAvro(e.DataContentType)
	if !isAvro && !headgate.IsJSON(e.DataContentType) {
		return headgate.NewError(headgate.CodeUnsupportedMediaType, "no contract engine reads this media type; send JSON in UTF-8, or Avro as %s", headgate.MediaTypeAvro)
	}
	k := c.byType[e.Type]
	if k == nil {
		for _, t := range c.Unchecked {
			if t == e.Type {
				return nil
			}
		}
		return headgate.NewError(headgate.CodeContractUnknown, "there is no contract for type %s here", e.Type)
	}
	payload := e.Data
	if payload == nil && !isAvro {
		payload = []byte("null")
	}
	// A frame names a version by what the registry knows, which is not here: in
	// the outbox, Avro is bare.
	j, err := k.Judge(e.DataContentType, payload, func(contract.Frame) (*contract.Contract, error) { return nil, nil })
	if err != nil {
		return err
	}
	if v := j.Verdict; v != nil && !v.Valid {
		return broken(v)
	}
	return nil
}

func broken(v *headgate.Verdict) error {
	err := headgate.NewError(headgate.CodeContractViolation, "the payload breaks %s", v.Contract)
	err.Verdict = v
	return err
}
