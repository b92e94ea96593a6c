package sqlstore

import "github.com/headgate/headgate/store"

// Dialect is what the databases say differently.
type Dialect struct {
	NewestQID string // the greatest qid of a group
	LeaseLock string // after a SELECT of a lease: holds it until the transaction ends
}

// tx is one transaction. The roles are views of it.
type tx struct {
	session Session
	dialect *Dialect
}

// Each role holds nothing but the transaction.
type (
	settings      struct{ tx }
	contracts     struct{ tx }
	principals    struct{ tx }
	subscriptions struct{ tx }
	deliveries    struct{ tx }
	outbox        struct{ tx }
	quarantine    struct{ tx }
	gas           struct{ tx }
	index         struct{ tx }
	leases        struct{ tx }
	registry      struct{ tx }
)

// New returns the roles over one transaction of a driver.
func New(s Session, d *Dialect) store.Tx {
	t := tx{session: s, dialect: d}
	return store.Tx{
		Settings: settings{t}, Contracts: contracts{t}, Principals: principals{t}, Subscriptions: subscriptions{t},
		Deliveries: deliveries{t}, Outbox: outbox{t}, Quarantine: quarantine{t}, Gas: gas{t}, Index: index{t},
		Leases: leases{t}, Registry: registry{t},
	}
}

func (t tx) query(sql string) query { return query{t.session.Query(sql)} }
