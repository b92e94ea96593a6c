package fencepg

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/pgtest"
)

// Each part of the guard is taken out once, and each time the doctor must say
// no: a part that can go unnoticed is either not needed or not tested.
func TestDoctorCatchesEveryMutant(t *testing.T) {
	url := pgtest.URL(t)
	for _, m := range []struct{ name, part, instead string }{
		{"epoch", "WHERE l.epoch OPERATOR(pg_catalog.=) e --epoch\n      AND l.resource", "WHERE l.resource"},
		{"nonce", "AND pg_catalog.translate(pg_catalog.encode(l.nonce, 'base64'), '+/=', '-_') COLLATE pg_catalog.\"C\" OPERATOR(pg_catalog.=) n --nonce", ""},
		{"gate", "AND NOT l.closing --gate", ""},
		{"expiry", "AND l.expires OPERATOR(pg_catalog.>) (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000000)::bigint --expiry", ""},
		{"lock", "FOR KEY SHARE; --lock", ";"},
		{"a lock that renewals wait for", "FOR KEY SHARE; --lock", "FOR SHARE; --lock"},
		{"epoch in the key", ",\n\tUNIQUE (resource, epoch))", ")"},
		{"epoch in the key of fences", ",\n  UNIQUE (resource, epoch)\n", ""},
		{"time of the transaction", "pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())", "pg_catalog.date_part('epoch', now())"},
		{"stored epoch above is stale", "stored.epoch > e THEN", "stored.epoch > e AND false THEN"},
		{"other nonce is told", "stored.nonce IS DISTINCT FROM n THEN", "false THEN"},
		{"number of the transaction", "said IS NULL OR NOT pg_catalog.starts_with(noted, said) THEN --transaction", "false THEN"},
		{"asking again", "RETURN @private.refuse(r, e, n); --again", "RETURN true;"},
		{"resource of the row", "IF r IS NULL OR start OPERATOR(pg_catalog.=) 0 THEN", "IF r IS NULL OR start OPERATOR(pg_catalog.=) 0 THEN RETURN true; ELSIF false THEN"},
		{"no setting", "IF noted IS NULL OR noted OPERATOR(pg_catalog.=) '' THEN", "IF noted IS NULL OR noted OPERATOR(pg_catalog.=) '' THEN RETURN true; ELSIF false THEN"},
		{"null fence", "IF r IS NULL OR e IS NULL OR n IS NULL THEN", "IF r IS NULL OR e IS NULL OR n IS NULL THEN RETURN NULL; ELSIF false THEN"},
		{"what was not found", "RETURN @private.refuse(r, e, n); --missing", "RETURN true;"},
		{"malformed fence", "ELSIF NOT @private.well_formed(r, e, n) THEN", "ELSIF false THEN"},
		{"malformed token", "EXCEPTION WHEN data_exception OR program_limit_exceeded THEN --malformed", "EXCEPTION WHEN division_by_zero THEN"},
		{"malformed seal", "IF NOT @private.well_formed(resource, epoch, nonce) THEN", "IF false THEN"},
		{"malformed note", "IF said OPERATOR(pg_catalog.=) '' OR pg_catalog.length(said) OPERATOR(pg_catalog.>) 18 OR pg_catalog.translate(said, '0123456789', '') OPERATOR(pg_catalog.<>) '' THEN", "IF false THEN"},
		{"null token", "IF token IS NULL OR token = '' THEN", "IF token IS NULL THEN RETURN NULL; ELSIF token = '' THEN"},
		{"other fences of the transaction", ", pg_catalog.substr(noted, pg_catalog.length(own) OPERATOR(pg_catalog.+) 1)); --others", ");"},
		{"only higher seals", "WHERE f.epoch < excluded.epoch;", ";"},
		{"seal opens the gate", "closing = false, sealed", "sealed"},
		{"seal of its own", "IF pg_current_xact_id_if_assigned() IS NOT NULL THEN", "IF false THEN"},
		{"seal of a closed gate", "ELSIF stored.closing THEN\n    RAISE EXCEPTION 'headgate: the gate of", "ELSIF false THEN\n    RAISE EXCEPTION 'headgate: the gate of"},
		{"seal of another nonce", "ELSIF stored.nonce <> raw THEN", "ELSIF false THEN"},
		{"rows stay", "BEFORE DELETE OR TRUNCATE ON", "BEFORE TRUNCATE ON"},
		{"epochs rise", "IF new.epoch < old.epoch THEN", "IF false THEN"},
		{"closing all", "UPDATE @private.fences SET closing = true WHERE NOT closing RETURNING 1", "SELECT 1"},
	} {
		t.Run(m.name, func(t *testing.T) {
			found := false
			d, err := examine(t.Context(), url, func(sql string) string {
				c := Config{Schema: schemaIn(sql)}
				part, instead := m.part, m.instead
				if strings.Contains(part, "@private") {
					part, instead = c.fill(part), c.fill(instead)
				}
				found = found || strings.Contains(sql, part)
				return strings.ReplaceAll(sql, part, instead)
			})
			if !found {
				t.Fatal("the part is not in the scripts any more")
			}
			if err == nil && d.OK {
				t.Fatal("nobody noticed")
			}
			if err != nil {
				t.Fatalf("the mutant broke the doctor instead of failing a check: %v", err)
			}
			for _, c := range d.Checks {
				if !c.OK {
					t.Logf("noticed by: %s %s %s: %s", c.Name, c.Guard, c.Level, c.Why)
					break
				}
			}
		})
	}
}

// schemaIn returns the schema of a script of the doctor.
func schemaIn(sql string) string {
	_, rest, _ := strings.Cut(sql, `"headgate_doctor_`)
	name, _, _ := strings.Cut(rest, `"`)
	return "headgate_doctor_" + strings.TrimSuffix(name, "_fence")
}
