package fencepg

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/lease/fence"
)

// bypasses tries the ways to write without a fence.
func (w *world) bypasses(ctx context.Context, d *Diagnosis) {
	f, err := w.fresh(ctx, guardRows)
	constant, err2 := w.fresh(ctx, guardTrigger)
	if err := errors.Join(err, err2, w.seed(ctx, f, constant)); err != nil {
		d.add("rows to try on", "", "", err)
		return
	}
	var super bool
	server := 0
	if err := w.eye.QueryRow(ctx, "SELECT rolsuper, current_setting('server_version_num')::int FROM pg_roles WHERE rolname = current_user").Scan(&super, &server); err != nil {
		d.add("who am I", "", "", err)
		return
	}
	try := func(name, sql string, states ...string) {
		sql = strings.NewReplacer("@", fence.Ident(w.config.Schema)+".").Replace(sql)
		d.add(name, "", "", refused(exec(ctx, w.worker, sql), states...))
		w.reset(ctx)
	}
	for _, t := range []string{"constant", "rows", "parted"} {
		try("INSERT into "+t, "INSERT INTO @"+t+" VALUES ('x', 999)", StateMissing)
		try("UPDATE of "+t, "UPDATE @"+t+" SET n = n", StateMissing)
		try("DELETE from "+t, "DELETE FROM @"+t, StateMissing)
		try("TRUNCATE of "+t, "TRUNCATE @"+t, StateMissing, StatePlace)
		try("ON CONFLICT on "+t, "INSERT INTO @"+t+" VALUES ('x', 999) ON CONFLICT DO NOTHING", StateMissing)
		d.add("COPY into "+t, "", "", w.copy(ctx, t))
		w.reset(ctx)
		if server >= 150000 {
			try("MERGE into "+t, "MERGE INTO @"+t+" t USING (SELECT 1) s ON false WHEN NOT MATCHED THEN INSERT VALUES ('x', 999)", StateMissing)
		}
		if super {
			try("a session that replicates writes "+t, "SET session_replication_role = replica; INSERT INTO @"+t+" VALUES ('x', 999)", StateMissing)
			try("a session that replicates truncates "+t, "SET session_replication_role = replica; TRUNCATE @"+t, StateMissing, StatePlace)
		}
		try("an empty setting on "+t, "SET "+w.config.setting()+" = ''; INSERT INTO @"+t+" VALUES ('x', 999)", StateMissing)
	}
	try("a partition directly", "INSERT INTO @parted_1 VALUES ('x', 999)", StateMissing)
	try("TRUNCATE of a partition", "TRUNCATE @parted_1", StatePlace)
	try("a partition that came later", "INSERT INTO @parted_2 VALUES ('x', 1999)", StateMissing)
	if super {
		try("a later partition in a session that replicates", "SET session_replication_role = replica; INSERT INTO @parted_2 VALUES ('x', 1999)", StateMissing)
	}
	for _, args := range malformed {
		try("no fence: "+args, "SELECT @fence("+args+")", StateMissing)
	}
	w.foreign(ctx, d, f, constant)
	for _, note := range []string{"", "\tx", "x\ty\n", "1234567890123456789\ty", "-1\ty", " 1\ty\n"} {
		_, err := w.worker.Exec(ctx, "BEGIN")
		if err == nil {
			_, err = w.worker.Exec(ctx, "SELECT set_config($1, format(E'%s\\n%s\\t%s', pg_current_xact_id(), $2::text, $3::text), true)", w.config.setting(), f.Resource, note)
		}
		if err == nil {
			err = refused(w.insert(ctx, guardRows, f), StateMissing)
		}
		d.add(fmt.Sprintf("a note that cannot be read: %q", note), guardRows, "", err)
		w.reset(ctx)
	}
}

const anyNonce = "'AAAAAAAAAAAAAAAAAAAAAA'"

// malformed are arguments that are no fence: of every way to be none, and
// spelt so that each part that reads them meets something that it cannot read.
var malformed = []string{
	"NULL, 1, " + anyNonce, "'r', NULL, " + anyNonce, "'r', 1, NULL", "NULL::text", "''",
	"'', 1, " + anyNonce, "'a//b', 1, " + anyNonce, "'/a', 1, " + anyNonce, "'a/..', 1, " + anyNonce, "' a', 1, " + anyNonce, "E'a\\tb', 1, " + anyNonce, "E'a\\nb', 1, " + anyNonce, "repeat('a', 257), 1, " + anyNonce,
	"'r', 0, " + anyNonce, "'r', -1, " + anyNonce, "'r', 9007199254740992, " + anyNonce, "'r', 9223372036854775807, " + anyNonce,
	"'r', 1, ''", "'r', 1, 'AAAA'", "'r', 1, 'AAAAAAAAAAAAAAAAAAAAAB'", "'r', 1, 'AAAAAAAAAAAAAAAAAAAAAA=='", "'r', 1, '++++++++++++++++++++++'", "'r', 1, repeat('A', 100000)",
	"'hgl1'", "'hgl1.e30'", "'hgl1..'", "'hgl2.e30.A'", "'hgl1.e30.A.A'", "repeat('A', 5000)", "'hgl1.' || repeat('W', 4000) || '.A'",
	"'hgl1.A.A'", "'hgl1.AAAA.BBBB'", "'hgl1._w.A'", "'hgl1.e30.A'", "'hgl1.W10.A'", "'hgl1.MQ.A'", "'hgl1.bnVsbA.A'", "'hgl1.ew.A'",
	token(`{"res":"r"}`), token(`{"res":"r","epoch":"x","nonce":"AAAAAAAAAAAAAAAAAAAAAA"}`), token(`{"res":"r","epoch":"99999999999999999999","nonce":"AAAAAAAAAAAAAAAAAAAAAA"}`),
	token(`{"res":"r","epoch":"1e3","nonce":"AAAAAAAAAAAAAAAAAAAAAA"}`), token(`{"res":"r","epoch":{},"nonce":[]}`), token(`{"res":"\u0000","epoch":"1","nonce":"AAAAAAAAAAAAAAAAAAAAAA"}`),
	token(`{"res":"\ud800","epoch":"1","nonce":"AAAAAAAAAAAAAAAAAAAAAA"}`), token(`{"res":["r"],"epoch":"1","nonce":"AAAAAAAAAAAAAAAAAAAAAA"}`), token(strings.Repeat("[", 2900)),
}

func token(payload string) string {
	return "'hgl1." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".A'"
}

// seed puts rows under fences.
func (w *world) seed(ctx context.Context, f, constant fence.Fence) error {
	defer w.reset(ctx)
	return errors.Join(w.begin(ctx, w.worker, pgx.ReadCommitted), w.guard(ctx, guardCall, f), w.guard(ctx, guardCall, constant),
		w.insert(ctx, guardRows, f), w.insert(ctx, guardParted, f), w.insert(ctx, guardTrigger, constant), exec(ctx, w.worker, "COMMIT"))
}

func (w *world) copy(ctx context.Context, table string) error {
	_, err := w.worker.CopyFrom(ctx, pgx.Identifier{w.config.Schema, table}, []string{"resource", "n"}, pgx.CopyFromRows([][]any{{"x", 999}}))
	return refused(err, StateMissing)
}

// foreign writes other resources' rows under a good fence.
func (w *world) foreign(ctx context.Context, d *Diagnosis, f, constant fence.Fence) {
	other, err := w.fresh(ctx, guardRows)
	if err != nil {
		d.add("another lease", "", "", err)
		return
	}
	for _, t := range []string{"rows", "parted"} {
		for name, sql := range map[string]string{
			"a new row of another resource in " + t:     "INSERT INTO @" + t + " VALUES ('other', 998)",
			"a row moved to another resource in " + t:   "UPDATE @" + t + " SET resource = 'other'",
			"a row of no resource in " + t:              "INSERT INTO @" + t + " VALUES (NULL, 998)",
			"a row taken from another resource in " + t: fmt.Sprintf("UPDATE @%s SET resource = %s", t, fence.Literal(other.Resource)),
		} {
			held := f
			if strings.HasPrefix(name, "a row taken") {
				held = other
			}
			err := errors.Join(w.begin(ctx, w.worker, pgx.ReadCommitted), w.guard(ctx, guardCall, held))
			if err == nil {
				err = refused(exec(ctx, w.worker, strings.ReplaceAll(sql, "@", fence.Ident(w.config.Schema)+".")), StateForeign)
			}
			d.add(name, "", "", err)
			w.reset(ctx)
		}
	}
	err = errors.Join(w.begin(ctx, w.worker, pgx.ReadCommitted), w.guard(ctx, guardCall, f))
	if err == nil {
		err = refused(w.insert(ctx, guardTrigger, constant), StateForeign)
	}
	d.add("the fence of another resource on a whole table", "", "", err)
	w.reset(ctx)
	err = errors.Join(w.begin(ctx, w.worker, pgx.ReadCommitted), w.guard(ctx, guardCall, f), w.guard(ctx, guardCall, other),
		w.insert(ctx, guardRows, f), w.insert(ctx, guardRows, other), exec(ctx, w.worker, "COMMIT"))
	d.add("two fences in one transaction", "", "", err)
	w.reset(ctx)
}

// seals runs what holds where the leases live elsewhere.
func (w *world) seals(ctx context.Context, d *Diagnosis) {
	schema := fence.Ident(w.remote.Schema)
	sealed := func(c *pgx.Conn, epoch int64, nonce string) error {
		_, err := c.Exec(ctx, "SELECT "+schema+".fence_seal('r', $1, $2)", epoch, nonce)
		return err
	}
	guard := func(epoch int64, nonce string) error {
		_, err := w.worker.Exec(ctx, "SELECT "+schema+".fence('r', $1, $2)", epoch, nonce)
		return err
	}
	one, two := strings.Repeat("A", 21)+"A", strings.Repeat("B", 21)+"A"
	d.add("a grant that was not sealed is refused", "seal", "", refused(guard(1, one), StatePlace))
	d.add("a seal", "seal", "", errors.Join(sealed(w.taker, 5, one), sealed(w.taker, 5, one), guard(5, one)))
	d.add("a lower seal is refused", "seal", "", refused(sealed(w.taker, 4, two), StateStale))
	d.add("the same epoch with another nonce is refused", "seal", "", errors.Join(refused(sealed(w.taker, 5, two), StateConflict), refused(guard(5, two), StateConflict)))
	d.add("a lower epoch is refused", "seal", "", refused(guard(4, one), StateStale))
	d.add("a higher epoch that was not sealed is refused", "seal", "", refused(guard(6, two), StatePlace))
	for _, args := range []string{"'r', 9007199254740992, " + anyNonce, "'r', 0, " + anyNonce, "'a//b', 9, " + anyNonce, "E'a\\tb', 9, " + anyNonce, "'r', 9, 'AAAA'", "NULL, 9, " + anyNonce, "'r', NULL, " + anyNonce, "'r', 9, NULL", "repeat('a', 257), 9, " + anyNonce} {
		d.add("no seal: "+args, "seal", "", refused(exec(ctx, w.taker, "SELECT "+schema+".fence_seal("+args+")"), StateMissing))
	}
	d.add("no row goes", "seal", "", failed(exec(ctx, w.worker, "DELETE FROM "+fence.Ident(w.remote.private())+".fences")))
	d.add("no epoch falls", "seal", "", failed(exec(ctx, w.worker, "UPDATE "+fence.Ident(w.remote.private())+".fences SET epoch = epoch - 1")))
	w.reset(ctx)
	_ = exec(ctx, w.worker, "BEGIN; SELECT pg_current_xact_id()")
	d.add("a seal within a transaction is refused", "seal", "", refused(sealed(w.worker, 9, two), StatePlace))
	w.reset(ctx)
	d.add("a seal waits for an open write, its gate does not", "seal", "", w.sealWaits(ctx, schema, guard, func() error { return sealed(w.taker, 6, two) }, one))
	w.reset(ctx)
	d.add("after the seal only the new grant passes", "seal", "", errors.Join(refused(guard(5, one), StateStale), guard(6, two)))
	_, err := w.eye.Exec(ctx, "SELECT "+schema+".fence_close_all()")
	d.add("nothing passes after a restore until it is sealed anew", "seal", "",
		errors.Join(err, refused(guard(6, two), StateClosing), refused(sealed(w.taker, 6, two), StateClosing), sealed(w.taker, 7, one), guard(7, one)))
}

func (w *world) sealWaits(ctx context.Context, schema string, guard func(int64, string) error, seal func() error, nonce string) error {
	if err := errors.Join(exec(ctx, w.worker, "BEGIN"), guard(5, nonce)); err != nil {
		return err
	}
	err := w.quick(ctx, w.taker, func() error { return exec(ctx, w.taker, "SELECT "+schema+".fence_gate('r', 6)") })
	if err := errors.Join(err, exec(ctx, w.taker, "SET lock_timeout = '3s'")); err != nil {
		return err
	}
	done, err := w.waits(ctx, w.taker, seal)
	if err != nil {
		return err
	}
	if err := errors.Join(exec(ctx, w.worker, "COMMIT"), <-done); err != nil {
		return err
	}
	return refused(guard(5, nonce), StateStale)
}

func failed(err error) error {
	if err == nil {
		return errors.New("it was accepted")
	}
	return nil
}
