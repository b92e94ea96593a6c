package pgrelay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
)

// Rows that the log did not send, because the publication or the table was changed
// and put back, are read from the table: heartbeats come without a publication and
// prove none of them. It is the same while nothing is put back, and when no relay
// ran meanwhile.
func TestRowsThatTheLogDidNotSend(t *testing.T) {
	const anew = `CREATE TABLE headgate.o2 (LIKE headgate.outbox INCLUDING ALL) PARTITION BY RANGE (created); DROP TABLE headgate.outbox CASCADE;
		ALTER TABLE headgate.o2 RENAME TO outbox; CREATE TABLE headgate.outbox_rest PARTITION OF headgate.outbox DEFAULT;
		GRANT SELECT ON headgate.outbox TO headgate_relay`
	today := pgtest.Exec(t, pgtest.URL(t), `SELECT to_char(now() AT TIME ZONE 'UTC', '"headgate.outbox_"YYYYMMDD')`)[0][0]
	for name, change := range map[string][2]string{
		"table taken out":    {`ALTER PUBLICATION headgate_outbox DROP TABLE headgate.outbox`, `ALTER PUBLICATION headgate_outbox ADD TABLE headgate.outbox`},
		"inserts off":        {`ALTER PUBLICATION headgate_outbox SET (publish = 'update')`, `ALTER PUBLICATION headgate_outbox SET (publish = 'insert')`},
		"filter":             {`ALTER PUBLICATION headgate_outbox SET TABLE headgate.outbox WHERE (false)`, `ALTER PUBLICATION headgate_outbox SET TABLE headgate.outbox`},
		"by partition":       {`ALTER PUBLICATION headgate_outbox SET (publish_via_partition_root = false)`, `ALTER PUBLICATION headgate_outbox SET (publish_via_partition_root = true)`},
		"table made anew":    {anew, `ALTER PUBLICATION headgate_outbox ADD TABLE headgate.outbox`},
		"partition unlogged": {`ALTER TABLE ` + today + ` SET UNLOGGED`, `ALTER TABLE ` + today + ` SET LOGGED`},
	} {
		for _, when := range []string{"between two heartbeats", "for as long as it takes", "while no relay runs"} {
			t.Run(name+" "+when, func(t *testing.T) {
				r := newRig(t, pgtest.URL(t))
				x := r.run(nil)
				r.emit(1, 10)
				x.Wait(t, 10)
				r.until("all are proven", r.allProven)
				if when == "while no relay runs" {
					x.Stop()
				}
				r.exec(change[0])
				r.emit(11, 20)
				if when == "for as long as it takes" {
					r.until("they come from the table", func() bool { return len(r.Stored()) == 20 })
				}
				r.exec(change[1])
				r.emit(21, 30)
				if when == "while no relay runs" {
					x = r.run(nil)
				}
				r.until("all are stored and proven", func() bool { return len(r.Stored()) >= 30 && r.allProven() && r.quiet() })
				if when != "between two heartbeats" {
					r.Verify(30)
				} else { // what the log had was published before it was known
					stored := map[int]int{}
					for _, s := range r.Stored() {
						stored[relaytest.Number(t, s)]++
					}
					if len(stored) != 30 || len(r.Stored()) != 30 {
						t.Errorf("stored is %v", stored)
					}
				}
				x.Stop()
			})
		}
	}
}

// Neither new partitions nor a new session, nor rights that are granted, are a
// change of what is sent.
func TestUpkeepIsNoChangeOfWhatIsSent(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	src, log := r.told()
	x := r.Run(src, nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	r.until("all are proven", r.allProven)
	r.exec(`CREATE TABLE headgate.outbox_20200101 PARTITION OF headgate.outbox FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`)
	r.exec(`GRANT SELECT ON headgate.outbox TO PUBLIC; ANALYZE headgate.outbox`)
	r.exec(`VACUUM FREEZE headgate.outbox, pg_publication, pg_publication_rel, pg_class`)
	r.emit(11, 20)
	r.until("all are proven", func() bool { return len(r.Stored()) == 20 && r.allProven() })
	x.Stop()
	x = r.Run(src, nil)
	r.emit(21, 30)
	r.until("all are proven", func() bool { return len(r.Stored()) == 30 && r.allProven() })
	if log.has("rows may be missing") {
		t.Error("the table was read for nothing")
	}
	x.Stop()
}

func TestDoctorNamesWhatHidesRows(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`ALTER TABLE headgate.outbox ENABLE ROW LEVEL SECURITY`)
	if f := r.findings("row level security is on for headgate.outbox"); len(f) != 1 || f[0].Severity != "error" {
		t.Errorf("the doctor says %v", fmt.Sprint(f))
	}
	r.exec(`ALTER TABLE headgate.outbox_rest SET UNLOGGED`)
	if f := r.findings("unlogged"); len(f) != 1 || f[0].Severity != "error" || !strings.Contains(f[0].What, "outbox_rest") {
		t.Errorf("the doctor says %v", fmt.Sprint(f))
	}
}

func TestDoctorNamesStandbysThatHearLater(t *testing.T) {
	r := newRig(t, pgtest.Start(t, "wal_level=logical").URL())
	const said = "the log tells them before"
	if f := r.findings(said); len(f) > 0 {
		t.Errorf("the doctor says of a server without standbys: %+v", f)
	}
	r.exec(`ALTER SYSTEM SET synchronous_standby_names = 'elsewhere'`)
	r.exec(`SELECT pg_reload_conf()`)
	r.until("the doctor says so", func() bool { f := r.findings(said); return len(f) == 1 && f[0].Severity == "warning" })
	r.exec(`ALTER SYSTEM RESET synchronous_standby_names`)
	r.exec(`SELECT pg_reload_conf()`)
}
