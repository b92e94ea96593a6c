package pgrelay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
)

// Rows are the same whether they come from the log in binary form, from the log
// as text, or from the table; a column whose type is known as text only costs one
// session, and never another.
func TestRowsAreTheSameInEveryForm(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`SELECT headgate.emit_event('full', 'order.placed', '/s', 'a subject', 'k1',
		'{"time":"2026-01-31T12:00:00Z","datacontenttype":"application/json","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","extra":"ä \" \\"}', convert_to('{"n":1}', 'UTF8'))`)
	r.exec(`SELECT headgate.emit_event('bare', 'order.placed', NULL, NULL, NULL, NULL, NULL)`)
	r.exec(`SELECT headgate.emit_event('empty', 'order.placed', NULL, NULL, NULL, NULL, '')`)
	r.exec(`SELECT headgate.emit_event('bytes', 'order.placed', NULL, NULL, NULL, NULL, '\x00ff5c78')`)
	r.exec(`INSERT INTO headgate.outbox (id, role, type, origin, data, created) VALUES ('change', 'headgate', 'order.placed', 'change', '{}', '1999-12-31 23:59:59.000001+00')`)
	r.exec(`INSERT INTO headgate.outbox (id, role, type, attributes, data) VALUES ('odd', 'headgate', 'order.placed', '[1]', '\xff')`)
	r.exec(`INSERT INTO headgate.outbox (id, role, type, attributes, data, created) VALUES ('round', 'headgate', 'order.placed', '[1]', '\xff', '2026-01-31 12:00:00.25+00')`)
	const rows = 7
	last := func(all []relay.Done) map[int64]relay.Row {
		m := map[int64]relay.Row{}
		for _, d := range all {
			if row := *d.Row; row.Seq <= rows {
				row.Committed = time.Time{} // of the table it is when the row was written
				m[row.Seq] = row
			}
		}
		return m
	}
	x := r.run(r.mute)
	inBinary := last(x.Wait(t, rows))
	if s := x.Status(); s.Sessions != 1 || len(inBinary) != rows {
		t.Errorf("%d sessions read %d rows", s.Sessions, len(inBinary))
	}
	r.exec(`CREATE DOMAIN public.label AS text`)
	r.exec(`ALTER TABLE headgate.outbox ALTER COLUMN subject TYPE public.label`)
	r.exec(`SELECT headgate.emit_event('labelled', 'order.placed', NULL, 'another', NULL, NULL, '{"n":2}')`)
	r.exec(`ALTER TABLE headgate.outbox ALTER COLUMN subject TYPE text`) // so that the next session cannot know
	asText := last(x.Wait(t, rows+rows+1))
	if s := x.Status(); s.Sessions != 2 {
		t.Errorf("%d sessions were needed", s.Sessions)
	}
	x.Stop()
	r.exec(`UPDATE headgate.relay_state SET repair = 'a test', proven_snapshot = NULL`)
	x = r.run(nil)
	fromTable := last(x.Wait(t, rows+1))
	x.Stop()
	for form, have := range map[string]map[int64]relay.Row{"as text": asText, "from the table": fromTable} {
		if d := cmp.Diff(inBinary, have, cmp.Comparer(func(a, b *headgate.Error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })); d != "" {
			t.Errorf("%s (-in binary +%s):\n%s", form, form, d)
		}
	}
	e := inBinary[1].Event
	if e == nil || e.Subject != "a subject" || string(e.Data) != `{"n":1}` || !e.Time.Equal(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("the first row holds %+v", e)
	}
	if got := inBinary[5].Written; !got.Equal(time.Date(1999, 12, 31, 23, 59, 59, 1000, time.UTC)) {
		t.Errorf("the fifth row was written at %v", got)
	}
}

// A type without a binary form, in the outbox or in another table that somebody
// added to the publication, costs one session.
func TestTypesWithoutBinaryForm(t *testing.T) {
	for name, ddl := range map[string]string{
		"array":            `ALTER TABLE headgate.outbox ADD COLUMN extra aclitem[] DEFAULT '{=r/headgate}'`,
		"composite":        `CREATE TYPE public.pair AS (a aclitem, b int); ALTER TABLE headgate.outbox ADD COLUMN extra public.pair DEFAULT '(=r/headgate,1)'`,
		"of another table": `CREATE TABLE public.other (a aclitem[]); ALTER PUBLICATION headgate_outbox ADD TABLE public.other; INSERT INTO public.other VALUES ('{=r/headgate}')`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			x := r.run(nil)
			r.emit(1, 10)
			x.Wait(t, 10)
			pgtest.Exec(t, r.db, ddl)
			r.emit(11, 20)
			r.until("all are stored", func() bool { return len(r.Stored()) >= 20 })
			r.Verify(20)
			if s := x.Status(); s.Sessions != 2 {
				t.Errorf("%d sessions were needed", s.Sessions)
			}
			x.Stop()
		})
	}
}

// Settings of the database change nothing of what is read: neither from the log,
// in binary form or as text, nor from the table.
func TestSettingsOfTheDatabaseChangeNoValue(t *testing.T) {
	for _, setting := range []string{`client_encoding = 'LATIN1'`, `bytea_output = 'escape'`, `default_transaction_read_only = on`, `DateStyle = 'German'`} {
		t.Run(setting, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			name := r.connect().Config().Database
			emit := `SELECT headgate.emit('order.placed', jsonb_build_object('n', 1, 'c', chr(28450)), chr(233), 'a' || chr(195) || chr(169))`
			r.exec(emit)
			r.exec(`CREATE DOMAIN public.label AS text`)
			r.exec(`ALTER TABLE headgate.outbox ALTER COLUMN subject TYPE public.label`)
			r.exec(emit) // as text
			pgtest.Exec(t, pgtest.URL(t), `ALTER DATABASE `+name+` SET `+setting)
			x := r.run(nil)
			r.until("both are stored", func() bool { return len(r.Stored()) >= 2 })
			x.Stop()
			for _, s := range r.Stored() {
				if e := s.Event; e.Key != "\u00e9" || e.Subject != "a\u00c3\u00a9" || string(e.Data) != "{\"c\": \"\u6f22\", \"n\": 1}" {
					t.Errorf("stored is %q %q %q", e.Key, e.Subject, e.Data)
				}
			}
		})
	}
}

// encoded is a database in an encoding.
func encoded(t testing.TB, encoding string) string {
	return databaseWith(t, pgtest.URL(t), ` ENCODING '`+encoding+`' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
}

// Text of a database in another encoding is published in UTF-8, from the log, in
// binary form or as text, and from the table; and that of watched rows.
func TestEncodingsOfTheDatabase(t *testing.T) {
	for encoding, text := range map[string]string{"LATIN1": "caf\u00e9 \u00a3 \u00ff", "EUC_JP": "\u6f22\u5b57 \u30ab"} {
		t.Run(encoding, func(t *testing.T) {
			r := newRigOn(t, encoded(t, encoding), membroker.New(membroker.Config{}))
			plain, tickets := r.db, `public."tickets `+text+`"`
			r.db += "&client_encoding=UTF8" // what writers of the test send
			r.exec(`CREATE TABLE ` + tickets + ` (id int PRIMARY KEY, title text)`)
			must(t, pgrelay.Watch(context.Background(), plain, tickets, "orders"))
			n := 0
			write := func() {
				r.exec(`SELECT headgate.emit('order.placed', jsonb_build_object('n', $1::int, 'c', $2::text), $2, $2)`, n, text)
				r.exec(`INSERT INTO headgate.outbox (id, role, type, key, subject, data) VALUES ('own'||$1::int, session_user, 'order.placed', $2::text, $2::text, convert_to(json_build_object('n', $1::int, 'c', $2::text)::text, 'UTF8'))`, n, text)
				r.exec(`INSERT INTO `+tickets+` VALUES ($1, $2)`, n, text)
				n++
			}
			all := func() bool { return len(r.Stored()) >= 3*n }
			write()
			x := r.run(nil)
			r.until("what came from the log is stored", all)
			r.exec(`CREATE DOMAIN public.label AS text`)
			r.exec(`ALTER TABLE headgate.outbox ALTER COLUMN subject TYPE public.label`)
			write()
			r.until("what came as text is stored", all)
			x.Stop()
			write()
			r.exec(gaveUp)
			x = r.run(nil)
			r.until("what came from the table is stored", all)
			x.Stop()
			rows := 0
			for _, s := range r.Stored() {
				var data struct{ C string }
				must(t, json.Unmarshal(s.Event.Data, &data))
				if s.Event.Type == "order.placed" {
					if s.Event.Key != text || s.Event.Subject != text || data.C != text {
						t.Errorf("stored is %q %q %s", s.Event.Key, s.Event.Subject, s.Event.Data)
					}
					continue
				}
				if rows++; !strings.Contains(string(s.Event.Data), text) {
					t.Errorf("a watched row is %s", s.Event.Data)
				}
			}
			if rows != n {
				t.Errorf("%d rows, want %d", rows, n)
			}
			if err := r.connect().QueryRow(context.Background(), `SELECT headgate.emit('order.placed', '"\u0e01"')`).Scan(new(string)); err == nil {
				t.Error("what the database has no sign for was written")
			}
		})
	}
	err := pgrelay.Install(context.Background(), encoded(t, "SQL_ASCII"), pgrelay.InstallOptions{})
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeInvalidArgument || !strings.Contains(e.Fix, "UTF8") {
		t.Errorf("a database in SQL_ASCII: %v", err)
	}
}
