package pgrelay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5"
)

// The process is killed at each named point in turn, and between the submission
// and the broker's answer.
func TestTrap01KilledAtEachPoint(t *testing.T) {
	t.Parallel() // it has servers of its own
	times := 2
	if relaytest.Campaign() {
		times = 20
	}
	h := newKilling(t)
	h.Apart()
	h.StartWriter()
	for i := range times {
		for _, point := range relaytest.Points() {
			h.StartNode(fmt.Sprint(point, ":", 3+7*i))
			h.AwaitEnd(time.Minute)
			if !h.Killed() {
				t.Fatalf("the process did not come to its point %s", point)
			}
		}
		h.StartNode("")
		before := pgtest.Exec(t, h.Place, `SELECT coalesce(proven_beat, 0) FROM headgate.relay_state`)[0][0]
		relaytest.Until(t, "it relays", func() bool {
			return pgtest.Exec(t, h.Place, `SELECT proven_beat > `+before+` FROM headgate.relay_state`)[0][0] == "t"
		})
		h.StallBroker()
		at := pgtest.Exec(t, h.Place, `SELECT coalesce(max(write_lsn), '0/0') FROM pg_stat_replication`)[0][0]
		relaytest.Until(t, "it read what is written now", func() bool {
			rows := pgtest.Exec(t, h.Place, `SELECT write_lsn > '`+at+`'::pg_lsn FROM pg_stat_replication`)
			return len(rows) == 1 && rows[0][0] == "t"
		})
		h.KillNode()
		h.ResumeBroker() // what was sent is stored now, and nobody is told
	}
	h.StartNode("")
	v := h.Finish()
	t.Logf("%d times each: %+v", times, v)
	if v.Stored == 0 || v.Faults() > 0 {
		t.Errorf("%+v", v)
	}
}

// COPY gives rows one position in the log. The process is killed in their midst,
// and each of them is stored once, in order.
func TestTrap09KilledAmongRowsOfOnePosition(t *testing.T) {
	t.Parallel() // it has a server of its own
	const rows, end = 10_000, 3_777
	h := newKilling(t)
	h.Apart() // what it stored before the kill is there to be counted
	h.StartNode(fmt.Sprint(relaytest.AtRow, ":", end-1))
	var csv strings.Builder
	for i := range rows {
		fmt.Fprintf(&csv, "c%d,headgate,order.placed,k%d,\"{\"\"n\"\":%d}\",%s\n", i, i%relaytest.Keys, i, time.Now().UTC().Format(time.RFC3339))
	}
	c, err := pgx.Connect(t.Context(), h.Place)
	must(t, err)
	defer c.Close(t.Context())
	_, err = c.Exec(t.Context(), `SELECT pg_create_logical_replication_slot('positions', 'pgoutput', true)`)
	must(t, err)
	_, err = c.PgConn().CopyFrom(t.Context(), strings.NewReader(csv.String()), `COPY headgate.outbox (id, role, type, key, data, created) FROM STDIN WITH (FORMAT csv)`)
	must(t, err)
	pgtest.Exec(t, h.Place, fmt.Sprintf(`INSERT INTO public.orders SELECT i %% %d, i FROM generate_series(0, %d) i`, relaytest.Keys, rows-1))
	var inserts, positions int
	must(t, c.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT lsn)
		FROM pg_logical_slot_peek_binary_changes('positions', NULL, NULL, 'proto_version', '1', 'publication_names', '`+pgrelay.Publication+`')
		WHERE get_byte(data, 0) = ascii('I')`).Scan(&inserts, &positions))
	if inserts != rows || positions > rows/10 {
		t.Fatalf("%d rows have %d positions: too many for this test", inserts, positions)
	}
	h.AwaitEnd(time.Minute)
	if !h.Killed() {
		t.Fatal("the process was not killed by itself")
	}
	first := h.Verdict()
	if first.Stored < end || first.Stored == rows || first.Twice+first.Disorder+first.Uncommitted > 0 {
		t.Errorf("when it was killed: %+v", first)
	}
	h.StartNode("")
	v := h.Finish()
	t.Logf("%d rows at %d positions, of which %d were stored when the process was killed: %+v", rows, positions, first.Stored, v)
	if v.Stored != rows || v.Faults() > 0 {
		t.Errorf("in the end: %+v", v)
	}
}

// The process is killed again and again while it reads rows from the table, and
// others are written: each repair goes on where the last one was, and nothing is
// missing, doubled or out of order.
func TestRepairsThatAreKilledLoseNothing(t *testing.T) {
	t.Parallel() // it has servers of its own
	kills := 3
	if relaytest.Campaign() {
		kills = 100
	}
	h := newKilling(t)
	h.Apart()
	rows := 10_000 * (kills + 1) // more than the nodes read
	pgtest.Exec(t, h.Place, fmt.Sprintf(`INSERT INTO public.orders SELECT i %% 97 + 100, i FROM generate_series(1, %d) i;
		SELECT headgate.emit('order.placed', jsonb_build_object('n', i), 'k' || i %% 97 + 100) FROM generate_series(1, %d) i;
		UPDATE headgate.relay_state SET repair = 'a test'`, rows, rows))
	h.StartWriter()
	went := 0
	for i := range kills {
		h.StartNode(fmt.Sprint(relaytest.AtRow, ":", 8000+i*311%1000))
		h.AwaitEnd(time.Minute)
		if !h.Killed() {
			t.Fatal("the process was not killed by itself")
		}
		if at := pgtest.Exec(t, h.Place, `SELECT seq FROM headgate.relay_repair`); len(at) == 1 {
			went = max(went, atoi(at[0][0]))
		}
	}
	h.StartNode("")
	v := h.Finish()
	t.Logf("of %d rows %d were noted as done when the last one was killed: %+v", rows, went-1, v)
	if v.Stored < rows || v.Faults() > 0 {
		t.Errorf("%+v", v)
	}
	if went <= 5000 {
		t.Errorf("the repairs came to row %d", went-1)
	}
}

// A process is killed when the broker has everything and the database was told
// of nothing: the next one submits it all again, and nothing is stored twice.
func TestTrap02KilledBetweenAckAndConfirm(t *testing.T) {
	t.Parallel() // it has a server of its own
	const n = 10_000
	h := newKilling(t)
	pgtest.Exec(t, h.Place, `INSERT INTO public.orders SELECT i % 97, i FROM generate_series(1, 10000) i;
		SELECT headgate.emit('order.placed', jsonb_build_object('n', i), 'k' || i % 97) FROM generate_series(1, 10000) i`)
	h.Variant = relaytest.Muted
	l := h.Listen()
	l.Await("everything is stored", func(t relaytest.Told) bool { return t.Stored == n })
	h.KillNode()
	if v := h.Verdict(); v.Stored != n || v.Faults() > 0 {
		t.Fatalf("after the kill: %+v", v)
	}
	h.Variant = relaytest.Right
	l = h.Listen()
	l.Await("everything came again", func(t relaytest.Told) bool { return t.Duplicate+t.Stored >= n })
	if told := l.Terminate(); told.Duplicate != n || told.Stored != 0 {
		t.Errorf("the second process told %+v, want %d duplicates", told, n)
	}
	if v := h.Verdict(); v.Stored != n || v.Faults() > 0 {
		t.Errorf("in the end: %+v", v)
	}
}

// heldWhileStalled lets the broker stand still with one event in flight, writes
// log that is not ours, and returns where the event and the slot stand
// when the relay was told of all that. Then node and broker are killed, so that
// what is still on its way between them is gone, and start anew.
func heldWhileStalled(t *testing.T, variant relaytest.Variant, megabytes int) (moved bool, v relaytest.Verdict) {
	t.Helper()
	h := newKilling(t)
	h.Apart()
	h.Variant = variant
	h.StartNode("")
	value := func(sql string) string {
		if rows := pgtest.Exec(t, h.Place, sql); len(rows) == 1 {
			return rows[0][0]
		}
		return ""
	}
	until := func(what, sql string) {
		relaytest.Until(t, what, func() bool { return value(sql) == "t" })
	}
	until("the relay is at rest", `SELECT s.proven_beat > 2 AND r.active FROM headgate.relay_state s JOIN pg_replication_slots r ON r.slot_name = s.slot`)
	h.StallBroker()
	before := value(`SELECT pg_current_wal_insert_lsn()`)
	pgtest.Exec(t, h.Place, `BEGIN; INSERT INTO public.orders VALUES (1, 1); SELECT headgate.emit('order.placed', '{"n":1}', 'k1'); COMMIT`)
	after := value(`SELECT pg_current_wal_insert_lsn()`)
	pgtest.Exec(t, h.Place, fmt.Sprintf(`CREATE TABLE noise AS SELECT repeat('x', 1000) AS x FROM generate_series(1, %d)`, megabytes*1000))
	if value(fmt.Sprintf(`SELECT pg_current_wal_insert_lsn() - '%s' > %d`, after, megabytes*1_000_000)) != "t" {
		t.Fatal("there is too little log")
	}
	end := value(`SELECT pg_current_wal_insert_lsn()`)
	until("the relay was told of the log behind the event", `SELECT write_lsn >= '`+end+`' FROM pg_stat_replication`)
	beat := value(`SELECT beat FROM headgate.relay_state`)
	until("heartbeats go on", `SELECT beat > `+beat+` + 4 FROM headgate.relay_state`)
	moved = value(`SELECT confirmed_flush_lsn > '`+after+`' FROM pg_replication_slots`) == "t"
	t.Logf("the event lies between %s and %s, the log ends at %s, the slot stands at %s", before, after, end, value(`SELECT confirmed_flush_lsn FROM pg_replication_slots`))
	h.KillNode()
	h.KillBroker()
	h.Variant = relaytest.Right
	h.StartBroker()
	if n := h.Verdict().Stored; n != 0 {
		t.Fatalf("%d events were stored by a broker that stood still", n)
	}
	h.StartNode("")
	return moved, h.Finish()
}

func TestTrap05KeepaliveWhileInFlight(t *testing.T) {
	t.Parallel() // it has servers of its own
	moved, v := heldWhileStalled(t, relaytest.Right, 100)
	if moved {
		t.Error("the slot passed the event while that was in flight")
	}
	if v.Stored != 1 || v.Faults() > 0 {
		t.Errorf("in the end: %+v", v)
	}
}

// A relay that confirms what keepalives tell of is seen by that test.
func TestTrap05CatchesConfirmOfKeepalives(t *testing.T) {
	t.Parallel() // it has servers of its own
	if moved, _ := heldWhileStalled(t, relaytest.Early, 5); !moved {
		t.Error("the slot did not move: the test sees nothing")
	}
}

// stopOften ends a process by SIGTERM again and again while transactions are
// written, and returns what came twice and what is stored.
func stopOften(t *testing.T, variant relaytest.Variant, times int) (repeated uint64, v relaytest.Verdict) {
	t.Helper()
	h := newKilling(t)
	h.Variant = variant
	h.StartWriter()
	var stored uint64
	for range times {
		l := h.Listen()
		l.Await("it is in the middle of its work", func(t relaytest.Told) bool { return t.Stored > 100 })
		told := l.Terminate()
		repeated, stored = repeated+told.Duplicate, stored+told.Stored
	}
	if repair := pgtest.Exec(t, h.Place, `SELECT coalesce(repair, '') FROM headgate.relay_state`)[0][0]; repair != "" && variant == relaytest.Right {
		t.Errorf("a repair is due: %s", repair)
	}
	h.KillWriter()
	l := h.Listen()
	rest := h.Rest()
	relaytest.Until(t, "everything is confirmed", func() bool { return rest() == 0 })
	told := l.Terminate()
	repeated, stored = repeated+told.Duplicate, stored+told.Stored
	v = h.Verdict()
	t.Logf("%d stops under load: %d rows submitted, %d of them again; %+v", times, stored+repeated, repeated, v)
	return repeated, v
}

// SIGTERM under load: what was submitted is confirmed before the process ends.
func TestTrap37SIGTERMRepeatsNothing(t *testing.T) {
	t.Parallel() // it has a server of its own
	times := 8
	if relaytest.Campaign() {
		times = 200
	}
	repeated, v := stopOften(t, relaytest.Right, times)
	if repeated != 0 {
		t.Errorf("%d rows were submitted twice", repeated)
	}
	if v.Committed < 100*times || v.Faults() > 0 {
		t.Errorf("%+v", v)
	}
}

// A relay that ends without waiting for the slot is seen by that test.
func TestTrap37CatchesAHastyEnd(t *testing.T) {
	t.Parallel() // it has a server of its own
	repeated, v := stopOften(t, relaytest.Hasty, 5)
	if repeated == 0 {
		t.Error("nothing was submitted twice: the test sees nothing")
	}
	if v.Faults() > 0 {
		t.Errorf("%+v", v)
	}
}
