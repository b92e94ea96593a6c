package index

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/store"
)

// Found is one event with where it is.
type Found struct {
	store.IndexRow
	Event *headgate.Event // nil when retention removed it
}

// catchUp is how long an answer waits for the index before it says that there
// is no such thing: people ask about what they published a moment ago.
const catchUp = time.Second

// Event returns the events with the id: one, unless several sources used the
// same id. Not found: not_found, whose detail says how far the index is behind.
func (x *Index) Event(ctx context.Context, id string) ([]Found, error) {
	rows, err := x.lookup(ctx, func(ctx context.Context, tx *store.Tx) ([]store.IndexRow, error) {
		return tx.Index.ByID(ctx, id)
	})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, x.notFound(ctx, "no event")
	}
	found := make([]Found, len(rows))
	for i, r := range rows {
		e, err := x.browse(ctx, &r)
		if err != nil {
			return nil, err
		}
		found[i] = Found{IndexRow: r, Event: e}
	}
	return found, nil
}

// lookup reads rows, and once more when there are none but the index is behind
// and can catch up within a moment.
func (x *Index) lookup(ctx context.Context, read func(context.Context, *store.Tx) ([]store.IndexRow, error)) ([]store.IndexRow, error) {
	var rows []store.IndexRow
	view := func() error {
		return x.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			rows, err = read(ctx, tx)
			return err
		})
	}
	if err := view(); err != nil || len(rows) > 0 {
		return rows, err
	}
	if lag, err := x.Lag(ctx); err != nil || lag == 0 {
		return nil, err
	}
	patience, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if err := x.Wait(patience); err != nil && patience.Err() == nil {
		return nil, err
	}
	return rows, view()
}

// notFound says that something is not there, or not yet.
func (x *Index) notFound(ctx context.Context, what string) error {
	lag, err := x.Lag(ctx)
	if err != nil {
		return err
	}
	if lag > 0 {
		e := headgate.NewError(headgate.CodeNotFound, "%s is known by that id; the index is %d events behind", what, lag)
		e.Fix = "Ask again in a moment."
		return e
	}
	return headgate.NewError(headgate.CodeNotFound, "%s is known by that id", what)
}

// browse reads the event of a row, or nil when it is gone.
func (x *Index) browse(ctx context.Context, r *store.IndexRow) (*headgate.Event, error) {
	stored, err := x.cfg.Broker.Browse(ctx, r.Stream, r.Position, 1)
	if headgate.CodeOf(err) == headgate.CodeStreamUnknown {
		return nil, nil // it was indexed when the stream was still declared
	}
	if err != nil {
		return nil, err
	}
	if len(stored) == 0 || stored[0].Position != r.Position {
		return nil, nil
	}
	return stored[0].Event, nil
}

// explainedRecords bounds the quarantine records of one explanation.
const explainedRecords = 100

// Explanation says why an event went where it went.
type Explanation struct {
	// Admitted is false when no stream took the event; then only Quarantine
	// knows of it.
	Admitted bool
	Found    Found
	// Others are further events with the same id, of other sources.
	Others        []Found
	Subscriptions []router.State
	// Quarantine holds what was recorded of the id, newest first, without
	// payloads: refused publishes and parked deliveries; at most 100.
	Quarantine []store.QuarantineRecord
}

// Explain explains an event: where it is, what each subscription made of it,
// and what the quarantine knows. An id that was only ever refused is explained
// too. Sees says which events the asker may know of; nil: all. Errors:
// not_found, and those of the store, the broker and the router.
func (x *Index) Explain(ctx context.Context, id string, sees func(*store.IndexRow) bool) (*Explanation, error) {
	ex := new(Explanation)
	var err error
	if x.cfg.Quarantine != nil {
		ex.Quarantine, err = x.cfg.Quarantine.List(ctx, store.QuarantineFilter{ID: id, Limit: explainedRecords})
		if err != nil {
			return nil, err
		}
	}
	found, err := x.Event(ctx, id)
	if sees != nil {
		found = slices.DeleteFunc(found, func(f Found) bool { return !sees(&f.IndexRow) })
		if err == nil && len(found) == 0 {
			err = x.notFound(ctx, "no event")
		}
	}
	if headgate.CodeOf(err) == headgate.CodeNotFound && len(ex.Quarantine) > 0 {
		return ex, nil
	}
	if err != nil {
		return nil, err
	}
	ex.Admitted, ex.Found, ex.Others = true, found[0], found[1:]
	if x.cfg.Router != nil && ex.Found.Event != nil {
		ex.Subscriptions, err = x.cfg.Router.Explain(ctx, ex.Found.Event, ex.Found.Stream, ex.Found.Position)
	}
	return ex, err
}
