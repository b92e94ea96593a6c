package sqlitestore

import (
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// tx is one run of a function. The roles are views of it.
type tx struct {
	conn  *conn
	over  atomic.Bool
	roles store.Tx
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

func newTx(c *conn) *tx {
	t := &tx{conn: c}
	t.roles = store.Tx{
		Settings: settings{t}, Contracts: contracts{t}, Principals: principals{t}, Subscriptions: subscriptions{t},
		Deliveries: deliveries{t}, Outbox: outbox{t}, Quarantine: quarantine{t}, Gas: gas{t}, Index: index{t},
		Leases: leases{t}, Registry: registry{t},
	}
	return t
}

// query begins an execution of a statement.
func (t *tx) query(sql string) query {
	if t.over.Load() {
		return query{err: headgate.NewError(headgate.CodeInternal, "a transaction was used after its function returned")}
	}
	s, err := t.conn.stmt(sql)
	return query{s: s, err: err}
}

// changes returns how many rows the last statement changed.
func (t *tx) changes() int { return int(t.conn.db.Changes()) }
