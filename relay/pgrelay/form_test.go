package pgrelay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
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
