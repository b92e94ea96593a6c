package pgrelay_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay/pgrelay"
)

// revision1 is the DDL of the first version of Headgate that had outboxes.
//
//go:embed testdata/revision1.sql
var revision1 string

// oldEmit is how that version's library wrote events.
const oldEmit = `SELECT headgate.emit_event($1, $2, $3, $4, $5, $6, $7)`

// olderRig is a rig over a database as the first version prepared it, with a
// watched table.
func olderRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Rig: relaytest.New(t, membroker.New(membroker.Config{})), t: t, db: database(t, pgtest.URL(t))}
	slot := "headgate_" + r.connect().Config().Database
	pgtest.Exec(t, r.db, revision1+fmt.Sprintf(`;
		INSERT INTO headgate.installation (version, slot, system_id) SELECT 1, '%s', system_identifier::text FROM pg_control_system();
		INSERT INTO headgate.relay_state (slot) VALUES ('%[1]s'); SELECT headgate.maintain('1 day');`, slot))
	pgtest.Exec(t, r.db, fmt.Sprintf(`SELECT pg_create_logical_replication_slot('%s', 'pgoutput')`, slot))
	r.exec(`CREATE TABLE public.orders (id int PRIMARY KEY, note text)`)
	r.exec(`SELECT headgate.watch('public.orders', 'orders')`)
	return r
}

func (r *rig) revision() string {
	return pgtest.Exec(r.t, r.db, `SELECT revision FROM headgate.installation`)[0][0]
}

// A relay and writers of this version work with a database of the first one, and
// those of the first one with a database of this version. While it is brought up
// to date writers go on, the relay goes on, and no event is missing, doubled or
// out of order.
func TestUpgradeBesideWritersAndRelay(t *testing.T) {
	r := olderRig(t)
	ctx := context.Background()
	x := r.run(nil)
	r.emit(1, 20) // by the library of now, with the functions of then
	x.Wait(t, 20)
	if found := r.finding(r.db, "prepared by an older version"); found == nil || !strings.Contains(found.Fix, "headgate outbox init") {
		t.Errorf("the doctor says %+v", found)
	}

	stop, counts := make(chan struct{}), make([]int, 4)
	var writers sync.WaitGroup
	for w := range counts {
		conn := r.connect()
		writers.Go(func() {
			for n := 1; ; n++ {
				_, err := conn.Exec(ctx, oldEmit, "", "order.placed", nil, nil, fmt.Sprintf("w%d", w), nil, fmt.Appendf(nil, `{"n":%d}`, n))
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
				counts[w] = n
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	session := pgtest.Exec(t, r.db, `SELECT active_pid FROM pg_replication_slots WHERE database = current_database()`)[0][0]
	for range 3 { // the second and third find nothing to do
		must(t, pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{}))
	}
	close(stop)
	writers.Wait()
	total := 20
	for _, n := range counts {
		total += n
	}
	r.until("all are stored", func() bool { return len(r.Stored()) >= total })
	if got := r.revision(); got != fmt.Sprint(pgrelay.Revision) {
		t.Errorf("revision %s is recorded", got)
	}
	if now := pgtest.Exec(t, r.db, `SELECT active_pid FROM pg_replication_slots WHERE database = current_database()`)[0][0]; now != session {
		t.Error("the relay's session did not outlast it")
	}
	next := map[string]int{}
	for _, s := range r.Stored() {
		if key := s.Event.Key; strings.HasPrefix(key, "w") {
			next[key]++
			if want := fmt.Sprintf(`{"n":%d}`, next[key]); string(s.Event.Data) != want {
				t.Fatalf("event %d of key %s is %s", next[key], key, s.Event.Data)
			}
		}
	}
	for w, n := range counts {
		if got := next[fmt.Sprintf("w%d", w)]; got != n {
			t.Errorf("writer %d wrote %d, and %d are stored", w, n, got)
		}
	}

	// What is new holds, in tables that were watched before as well.
	for sql, want := range map[string]string{
		`INSERT INTO public.orders VALUES (1, repeat('x', 7000000))`:                                                          "HG102",
		`INSERT INTO headgate.outbox (id, role, type, data) VALUES ('x', 'x', 'x', convert_to(repeat('x', 7000000), 'UTF8'))`: "23514",
		`INSERT INTO public.orders VALUES (2, 'small')`:                                                                       "",
	} {
		if got := r.sqlState(sql); got != want {
			t.Errorf("%.60s: SQLSTATE %q, want %q", sql, got, want)
		}
	}
	r.until("the change is stored", func() bool { return len(r.Stored()) == total+1 })
	if found := r.finding(r.db, "prepared by an older version"); found != nil {
		t.Errorf("the doctor still says %+v", found)
	}
	x.Stop()
}

// Rows that lie in the table when it is brought up to date are relayed after it,
// too large ones as before; the slot may be gone meanwhile.
func TestUpgradeKeepsWhatIsNotRelayed(t *testing.T) {
	r := olderRig(t)
	r.emit(1, 10)
	r.exec(`INSERT INTO public.orders VALUES (1, repeat('x', 7000000))`)
	must(t, pgrelay.Install(context.Background(), r.db, pgrelay.InstallOptions{}))
	r.emit(11, 20)
	r.exec(`SELECT pg_drop_replication_slot(slot) FROM headgate.installation`)
	x := r.run(nil)
	r.until("all are stored", func() bool { return len(r.Stored()) >= 20 })
	r.until("the large one is kept", func() bool { return len(r.Kept()) == 1 })
	r.Verify(20)
	x.Stop()
}

// The statements can be seen before; seeing changes nothing, and running what
// was seen is the upgrade.
func TestPreviewIsWhatIsRun(t *testing.T) {
	r := olderRig(t)
	ctx := context.Background()
	script, err := pgrelay.Preview(ctx, r.db, pgrelay.InstallOptions{})
	must(t, err)
	if found := r.finding(r.db, "prepared by an older version"); found == nil {
		t.Error("the preview changed the database")
	}
	pgtest.Exec(t, r.db, script)
	if got := r.revision(); got != fmt.Sprint(pgrelay.Revision) {
		t.Errorf("revision %s is recorded", got)
	}
	if script, err = pgrelay.Preview(ctx, r.db, pgrelay.InstallOptions{}); script != "" || err != nil {
		t.Errorf("then there is still %q to do, %v", script, err)
	}
	fresh := database(t, pgtest.URL(t))
	script, err = pgrelay.Preview(ctx, fresh, pgrelay.InstallOptions{})
	must(t, err)
	if (pgtest.Version(t, fresh) >= 17) != strings.Contains(script, "failover => true") {
		t.Error("standbys keep the slot where the server can have it so, and else not")
	}
	main, slot, _ := strings.Cut(script, "COMMIT;")
	pgtest.Exec(t, fresh, main+"COMMIT;")
	pgtest.Exec(t, fresh, slot)
	if script, err = pgrelay.Preview(ctx, fresh, pgrelay.InstallOptions{}); script != "" || err != nil {
		t.Errorf("then there is still %q to do, %v", script, err)
	}
}

// Older functions are never put in place of newer ones, also when the newer
// installer was quicker; a relay goes on, and says what it cannot read.
func TestDowngradeIsRefused(t *testing.T) {
	r := olderRig(t)
	ctx := context.Background()
	script, err := pgrelay.Preview(ctx, r.db, pgrelay.InstallOptions{})
	must(t, err)
	must(t, pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{}))
	r.exec(`UPDATE headgate.installation SET revision = revision + 1`)
	r.exec(`CREATE OR REPLACE FUNCTION headgate.new_id() RETURNS text LANGUAGE sql AS 'SELECT ''newer-'' || random()'`)
	err = pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{})
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeConflict || !strings.Contains(e.Detail, "newer version") || e.Fix == "" {
		t.Errorf("an older init: %v", err)
	}
	if state := r.sqlState(strings.ReplaceAll(strings.ReplaceAll(script, "BEGIN;", ""), "COMMIT;", "")); state != "HG111" {
		t.Errorf("statements that were printed earlier: SQLSTATE %q", state)
	}
	x := r.run(nil)
	r.emit(1, 5)
	x.Wait(t, 5)
	x.Stop()
	if got := pgtest.Exec(t, r.db, `SELECT headgate.new_id() LIKE 'newer-%'`)[0][0]; got != "t" {
		t.Error("the newer function is gone")
	}

	r.exec(`UPDATE headgate.installation SET version = 2`)
	_, err = r.source().Open(ctx)
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeConflict || !strings.Contains(e.Fix, "newer Headgate") {
		t.Errorf("a relay that does not know the tables: %v", err)
	}
}

// A transaction that wrote events and stays open does not hold up writers behind
// the upgrade for long: it gives up, says why, and changes nothing. Two at once
// do not disturb each other.
func TestUpgradeGivesUpRatherThanBlock(t *testing.T) {
	r := olderRig(t)
	ctx := context.Background()
	open := r.connect()
	tx, err := open.Begin(ctx)
	must(t, err)
	_, err = tx.Exec(ctx, oldEmit, "", "order.placed", nil, nil, "k", nil, []byte(`{"n":1}`))
	must(t, err)
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := pgrelay.Install(short, r.db, pgrelay.InstallOptions{}); err == nil {
		t.Error("it did not wait for the open transaction")
	}
	if found := r.finding(r.db, "prepared by an older version"); found == nil {
		t.Error("half of it was done")
	}
	must(t, tx.Commit(ctx))
	errs := make(chan error, 3)
	for range cap(errs) {
		go func() { errs <- pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{}) }()
	}
	for range cap(errs) {
		must(t, <-errs)
	}
	fresh := database(t, pgtest.URL(t))
	for range cap(errs) {
		go func() { errs <- pgrelay.Install(ctx, fresh, pgrelay.InstallOptions{}) }()
	}
	for range cap(errs) {
		// The slot is made behind the transaction: one of them may find it there.
		if err := <-errs; err != nil && !strings.Contains(err.Error(), "exists") {
			t.Error(err)
		}
	}
	if got := pgtest.Exec(t, fresh, `SELECT count(*) FROM pg_replication_slots WHERE database = current_database()`)[0][0]; got != "1" {
		t.Errorf("there are %s slots", got)
	}
}

// Schema headgate is shared: what others granted in it stays, also to everybody.
func TestInstallLeavesOthersAlone(t *testing.T) {
	db := database(t, pgtest.URL(t))
	pgtest.Exec(t, db, `CREATE SCHEMA headgate; GRANT USAGE ON SCHEMA headgate TO PUBLIC;
		CREATE FUNCTION headgate.fence(text) RETURNS text LANGUAGE sql AS 'SELECT $1'`)
	must(t, pgrelay.Install(context.Background(), db, pgrelay.InstallOptions{}))
	got := pgtest.Exec(t, db, `SELECT has_schema_privilege('public', 'headgate', 'USAGE') AND has_function_privilege('public', 'headgate.fence(text)', 'EXECUTE')`)
	if got[0][0] != "t" {
		t.Error("rights on what others made in the schema were taken away")
	}
	if got := pgtest.Exec(t, db, `SELECT string_agg(p.oid::regprocedure::text, ' ') FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
		WHERE nspname = 'headgate' AND proname <> 'fence' AND has_function_privilege('public', p.oid, 'EXECUTE')`)[0][0]; got != "" {
		t.Errorf("everybody may call %s", got)
	}
}

// Several may keep the partitions up at once: each is dropped once, by its name.
func TestMaintainAtOnce(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	ctx := context.Background()
	for day := 1; day <= 9; day++ {
		r.exec(fmt.Sprintf(`CREATE TABLE headgate.outbox_2020010%d PARTITION OF headgate.outbox FOR VALUES FROM ('2020-01-0%[1]d 00:00+00') TO ('2020-01-%02d 00:00+00')`, day, day+1))
	}
	r.exec(`UPDATE headgate.relay_state SET proven_snapshot = pg_current_snapshot()`)
	r.exec(`DROP TABLE ` + pgtest.Exec(t, r.db, `SELECT to_char(now() AT TIME ZONE 'UTC' + interval '2 days', '"headgate.outbox_"YYYYMMDD')`)[0][0])
	type answer struct {
		dropped []string
		err     error
	}
	answers := make(chan answer, 4)
	for range cap(answers) {
		conn := r.connect()
		go func() {
			var a answer
			a.err = conn.QueryRow(ctx, `SELECT headgate.maintain('1 day')`).Scan(&a.dropped)
			answers <- a
		}()
	}
	var dropped []string
	for range cap(answers) {
		a := <-answers
		must(t, a.err)
		dropped = append(dropped, a.dropped...)
	}
	slices.Sort(dropped)
	var want []string
	for day := 1; day <= 9; day++ {
		want = append(want, fmt.Sprintf("headgate.outbox_2020010%d", day))
	}
	if !slices.Equal(dropped, want) {
		t.Errorf("dropped %v, want %v", dropped, want)
	}
}

// The relay says once in each session that the functions are older.
func TestRelayTellsOfAnOlderRevision(t *testing.T) {
	r := olderRig(t)
	var said bytes.Buffer
	src, err := pgrelay.New(pgrelay.Config{URL: r.db, Log: slog.New(slog.NewTextHandler(&said, nil))})
	must(t, err)
	session, err := src.Open(context.Background())
	must(t, err)
	must(t, session.Close(context.Background()))
	if !strings.Contains(said.String(), "headgate outbox init") {
		t.Errorf("the log says %s", said.String())
	}
}

// Whoever changes what Install makes raises the revision, or databases that are
// prepared already never get it; and adds here what it is made of then.
func TestRevisionIsRaisedWithTheStatements(t *testing.T) {
	sums := map[int]string{2: "5720b7027ba14be3", 3: "998a0cf94be28f2e", 4: "783cbd5af9b8031f", 5: "25071ae56f858654", 6: "8b815cc2554fb46a", 7: "fad215c290cedd67", 8: "43ea4089bde2c1bb", 9: "75c9a86bf175a1d6"}
	h := sha256.New()
	names, err := filepath.Glob("*.sql")
	must(t, err)
	for _, name := range names {
		if name == "harden.sql" {
			continue // it is asked for, and run each time
		}
		b, err := os.ReadFile(name)
		must(t, err)
		h.Write(b)
	}
	if got := hex.EncodeToString(h.Sum(nil))[:16]; sums[pgrelay.Revision] != got {
		t.Errorf("the statements of revision %d have the sum %s, not %s", pgrelay.Revision, got, sums[pgrelay.Revision])
	}
}
