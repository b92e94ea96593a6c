package pgstore

import (
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// tx is one run of a function. The roles are views of it.
type tx struct {
	conn   *conn
	writes bool     // in Update
	seqs   *numbers // of the outbox
	over   atomic.Bool
	roles  store.Tx
}

// Each role holds nothing but the transaction.
type (
	settings      struct{ *tx }
	contracts     struct{ *tx }
	principals    struct{ *tx }
	subscriptions struct{ *tx }
	deliveries    struct{ *tx }
	outbox        struct{ *tx }
	quarantine    struct{ *tx }
	gas           struct{ *tx }
	index         struct{ *tx }
	leases        struct{ *tx }
	registry      struct{ *tx }
)

// newTx makes the transaction of one run. Only that of an Update has numbers
// for the outbox.
func newTx(c *conn, seqs *numbers) *tx {
	t := &tx{conn: c, writes: seqs != nil, seqs: seqs}
	t.roles = store.Tx{
		Settings: settings{t}, Contracts: contracts{t}, Principals: principals{t}, Subscriptions: subscriptions{t},
		Deliveries: deliveries{t}, Outbox: outbox{t}, Quarantine: quarantine{t}, Gas: gas{t}, Index: index{t},
		Leases: leases{t}, Registry: registry{t},
	}
	return t
}

// query begins an execution of a statement, whose text must be constant or
// from a small closed set. An @ stands for the schema, a ? for a parameter.
func (t *tx) query(sql string) query {
	q := query{request: request{sql: sql}, t: t}
	if t.over.Load() {
		q.err = headgate.NewError(headgate.CodeInternal, "a transaction was used after its function returned")
	}
	return q
}

// mayWrite refuses a write in a View, before the server would.
func (t *tx) mayWrite() error {
	if t.writes {
		return nil
	}
	return headgate.NewError(headgate.CodeInternal, "a View cannot write")
}
