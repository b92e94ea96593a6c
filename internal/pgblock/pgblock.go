package pgblock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
)

// Session is one that holds the row.
type Session struct {
	headgate.BlockingSession
	xid   string // of the transaction
	super bool   // a superuser's
}

// maxText bounds the names of a session, in bytes.
const maxText = 128

// sqlLook follows the lock that the waiter waits for: that of the transaction
// that holds the row, or that of the row's queue, at whose head stands one who
// waits for that transaction.
const sqlLook = `WITH want AS (SELECT * FROM pg_catalog.pg_locks WHERE pid = $1 AND NOT granted),
head AS (SELECT t.pid FROM want w JOIN pg_catalog.pg_locks t ON w.locktype = 'tuple' AND t.locktype = 'tuple' AND t.granted
	AND t.database = w.database AND t.relation = w.relation AND t.page = w.page AND t.tuple = w.tuple),
transactions AS (SELECT transactionid AS id FROM want WHERE locktype = 'transactionid'
	UNION SELECT l.transactionid FROM head JOIN pg_catalog.pg_locks l ON l.pid = head.pid AND NOT l.granted AND l.locktype = 'transactionid')
SELECT coalesce(h.pid, 0), coalesce(p.gid, ''), coalesce(a.usename, p.owner, ''), coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''),
	coalesce(a.state, ''), coalesce((extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint, 0),
	t.id::text, coalesce(r.rolsuper, false)
FROM transactions t JOIN pg_catalog.pg_locks h ON h.locktype = 'transactionid' AND h.granted AND h.transactionid = t.id
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = h.pid
LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid
LEFT JOIN pg_catalog.pg_prepared_xacts p ON h.pid IS NULL AND p.transaction = t.id
WHERE (h.pid IS NULL OR a.pid IS NOT NULL) AND NOT EXISTS (SELECT FROM pg_catalog.pg_locks s WHERE s.pid = h.pid AND s.granted
	AND s.locktype = 'advisory' AND s.objsubid = 2 AND s.classid::bigint = $2 AND s.objid::bigint = $3)`

// Lock is an advisory lock of two numbers; its holders are never named. The
// zero value spares nobody.
type Lock struct{ Class, Number int32 }

// Look returns the sessions whose transactions hold the row that the session
// with the process id waits for: those that it can see at once, of several
// that share the row at least one. None when it does not wait for a row.
func Look(ctx context.Context, pg *pgconn.PgConn, waiter int, spare Lock) ([]Session, error) {
	class, number := int64(uint32(spare.Class)), int64(uint32(spare.Number))
	rows, err := ask(ctx, pg, sqlLook, strconv.Itoa(waiter), strconv.FormatInt(class, 10), strconv.FormatInt(number, 10))
	if err != nil {
		return nil, err
	}
	found := make([]Session, 0, len(rows))
	for _, r := range rows {
		pid, err := strconv.Atoi(string(r[0]))
		if err != nil {
			return nil, err
		}
		ms, err := strconv.ParseInt(string(r[6]), 10, 64)
		if err != nil {
			return nil, err
		}
		found = append(found, Session{
			BlockingSession: headgate.BlockingSession{
				PID: pid, Prepared: clip(r[1]), User: clip(r[2]), Application: clip(r[3]), Address: clip(r[4]), State: clip(r[5]),
				Open: max(0, time.Duration(ms)*time.Millisecond),
			},
			xid: string(r[7]), super: string(r[8]) == "t",
		})
	}
	return found, nil
}

// Same reports whether both are one transaction.
func (s *Session) Same(o *Session) bool { return s.xid == o.xid }

// PID returns the process of the connection's session, also behind a pooler.
func PID(ctx context.Context, pg *pgconn.PgConn) (int, error) {
	rows, err := ask(ctx, pg, "SELECT pg_catalog.pg_backend_pid()")
	if err != nil || len(rows) != 1 {
		return 0, errors.Join(err, errors.New("the server does not know its own session"))
	}
	return strconv.Atoi(string(rows[0][0]))
}

// End ends the session, whose Ended or Lacks then says what came of it. A
// session that is gone is left alone, and counts as neither.
func (s *Session) End(ctx context.Context, pg *pgconn.PgConn) error {
	if s.PID == 0 {
		s.Lacks = "a prepared transaction is no session: ROLLBACK PREPARED ends it, by its user or a superuser"
		return nil
	}
	rows, err := ask(ctx, pg, `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_locks
WHERE pid = $1 AND locktype = 'transactionid' AND granted AND transactionid = $2`, strconv.Itoa(s.PID), s.xid)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "42501" && s.super:
		s.Lacks = "only a superuser may end the session of a superuser"
	case errors.As(err, &refused) && refused.Code == "42501":
		s.Lacks = "membership in the session's role or in pg_signal_backend"
	case err != nil:
		return err
	default:
		s.Ended = len(rows) == 1 && string(rows[0][0]) == "t"
	}
	return nil
}

// Cancel ends the statement by which a session of the same role waits.
func Cancel(ctx context.Context, pg *pgconn.PgConn, waiter int) error {
	_, err := ask(ctx, pg, "SELECT pg_catalog.pg_cancel_backend($1)", strconv.Itoa(waiter))
	return err
}

func ask(ctx context.Context, pg *pgconn.PgConn, sql string, args ...string) ([][][]byte, error) {
	params := make([][]byte, len(args))
	for i, a := range args {
		params[i] = []byte(a)
	}
	res := pg.ExecParams(ctx, sql, params, nil, nil, nil).Read()
	return res.Rows, res.Err
}

// clip bounds what a session calls itself.
func clip(b []byte) string {
	s := string(b)
	if len(s) > maxText {
		s = s[:maxText]
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "?")
	}
	return s
}
