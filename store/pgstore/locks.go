package pgstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
)

// Advisory locks are the database's, not the schema's: their second number is
// made from the schema's name. The first sets ours apart from others' ("HGAT",
// and one more for the owner's).
const (
	lockClass  = 0x48474154
	ownerClass = lockClass + 1
)

func lockNumber(schema string) int32 {
	h := fnv.New32a()
	fmt.Fprint(h, schema)
	return int32(h.Sum32())
}

// lockStatement takes the lock that all writers of a schema take. It ends with
// the transaction.
func lockStatement(schema string) string {
	return fmt.Sprintf("SELECT pg_catalog.pg_advisory_xact_lock(%d, %d)", lockClass, lockNumber(schema))
}

// session names one session of the server, also when its process id was given
// again.
type session struct{ pid, began string }

// own takes the schema for this store alone. The lock is the session's, so
// that it ends with the process or the host, whatever became of them. When the
// connection broke, the session before may live on for as long as the server
// believes in it; it is ours, and is ended.
func (s *Store) own(ctx context.Context, c *conn) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.LockTimeout+grace)
	defer cancel()
	m := migrator{pg: c.pg, schema: s.cfg.Schema}
	const self = "SELECT pid::text, backend_start::text FROM pg_catalog.pg_stat_activity WHERE pid = "
	if s.owner.pid != "" {
		end := "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE pid = " + s.owner.pid +
			" AND backend_start = '" + s.owner.began + "'"
		if _, err := m.query(ctx, end); err != nil {
			return connectError(s.where(), err)
		}
	}
	_, err := m.query(ctx, fmt.Sprintf("SELECT pg_catalog.pg_advisory_lock(%d, %d)", ownerClass, lockNumber(s.cfg.Schema)))
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "55P03" {
		return &headgate.Error{
			Code: headgate.CodeUnavailable, Detail: fmt.Sprintf("another node has the schema %q open", s.cfg.Schema),
			Fix: "Stop the other node, or give this one a database of its own.",
		}
	}
	if err != nil {
		return connectError(s.where(), err)
	}
	rows, err := m.query(ctx, self+"pg_catalog.pg_backend_pid()")
	if err != nil || len(rows) != 1 {
		return connectError(s.where(), errors.Join(err, errors.New("the server does not know its own session")))
	}
	s.owner = session{pid: string(rows[0][0]), began: string(rows[0][1])}
	return nil
}
