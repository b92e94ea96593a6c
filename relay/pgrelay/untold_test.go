package pgrelay_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// Text that is valid in the database's encoding and that UTF-8 has no sign for is
// refused to the writer, in whatever attribute it is. A row of before that has it
// is kept, from the log and from the table, and stops no other.
func TestTextThatUTF8HasNoSignFor(t *testing.T) {
	for encoding, bytes := range map[string]string{"EUC_JP": `\xa9a1`, "WIN1252": `\x81`, "EUC_KR": `\xc9a1`, "WIN1251": `\x98`} {
		t.Run(encoding, func(t *testing.T) {
			r := newRigOn(t, encoded(t, encoding), membroker.New(membroker.Config{}))
			r.db += "&client_encoding=UTF8"
			sign := fmt.Sprintf(`convert_from('%s'::bytea, '%s')`, bytes, encoding)
			for _, args := range []string{
				sign + `, 'order.placed', NULL, NULL, NULL, NULL`,
				`NULL, 'order.placed', ` + sign + `, NULL, NULL, NULL`,
				`NULL, 'order.placed', NULL, ` + sign + `, NULL, NULL`,
				`NULL, 'order.placed', NULL, NULL, ` + sign + `, NULL`,
				`NULL, 'order.placed', NULL, NULL, NULL, jsonb_build_object('comment', ` + sign + `)`,
			} {
				_, err := r.connect().Exec(context.Background(), `DO $$ BEGIN PERFORM headgate.emit_event(`+args+`, '{"n":0}'); END $$`)
				if err == nil || !strings.Contains(err.Error(), "HG113") {
					t.Errorf("a writer of %s hears %v", args, err)
				}
			}
			x := r.run(nil)
			r.emit(1, 5)
			x.Wait(t, 5)
			old := func(id string) {
				r.exec(`DO $$ BEGIN INSERT INTO headgate.outbox (id, role, type, key, data) VALUES ('` + id + `', session_user, 'order.placed', ` + sign + `, '{"n":0}'); END $$`)
			}
			old("first")
			r.emit(6, 10)
			r.until("all others are stored from the log on", func() bool { return len(r.Stored()) == 10 && len(r.Kept()) == 1 && r.quiet() })
			x.Stop()
			old("second")
			r.emit(11, 15)
			r.exec(gaveUp)
			x = r.run(nil)
			r.until("all others are stored from the table", func() bool { return len(r.Stored()) == 15 && len(r.Kept()) == 2 && r.quiet() })
			r.emit(16, 20)
			r.until("all are proven", func() bool { return len(r.Stored()) == 20 && r.allProven() })
			x.Stop()
			r.Verify(20)
		})
	}
}

// A role whose name was given in a database of another encoding is refused, and
// what it wrote before is kept.
func TestRoleOfAnotherEncoding(t *testing.T) {
	latin := encoded(t, "LATIN1") + "&client_encoding=UTF8"
	suffix := fmt.Sprintf("%x", time.Now().UnixNano())
	pgtest.Exec(t, latin, `CREATE ROLE "caf`+"\u00e9"+suffix+`" LOGIN SUPERUSER`)
	t.Cleanup(func() { pgtest.Exec(t, latin, `DROP ROLE "caf`+"\u00e9"+suffix+`"`) })
	r := newRig(t, pgtest.URL(t))
	u, err := url.Parse(r.db)
	must(t, err)
	u.User = url.User("caf\xe9" + suffix)
	c, err := pgx.Connect(context.Background(), u.String())
	must(t, err)
	defer c.Close(context.Background())
	if _, err := c.Exec(context.Background(), `SELECT headgate.emit('order.placed', '{"n":0}', 'k')`); err == nil || !strings.Contains(err.Error(), "HG113") {
		t.Errorf("the writer hears %v", err)
	}
	x := r.run(nil)
	r.emit(1, 5)
	x.Wait(t, 5)
	_, err = c.Exec(context.Background(), `INSERT INTO headgate.outbox (id, role, type, data) VALUES ('own', session_user, 'order.placed', '{"n":0}')`)
	must(t, err)
	r.emit(6, 10)
	r.until("all others are stored", func() bool { return len(r.Stored()) == 10 && len(r.Kept()) == 1 && r.quiet() })
	x.Stop()
	r.Verify(10)
}
