package fencepg

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
)

// Check is one interleaving that was run, or one way around the guard that was
// tried.
type Check struct {
	Name  string `json:"name"`
	Guard string `json:"guard,omitempty"` // the kind of guard
	Level string `json:"level,omitempty"` // of isolation
	OK    bool   `json:"ok"`
	Why   string `json:"why,omitempty"` // when it is not
}

// Diagnosis is the outcome of [Doctor].
type Diagnosis struct {
	// OK: every check passed, and every control was caught.
	OK     bool     `json:"ok"`
	Server string   `json:"server"`
	Checks []Check  `json:"checks"`
	Fenced []Fenced `json:"fenced"`
	// Hints are settings that make takeovers slow or unsafe to rely on.
	Hints []string `json:"hints"`
}

func (d *Diagnosis) add(name, guard, level string, err error) {
	c := Check{Name: name, Guard: guard, Level: level, OK: err == nil}
	if err != nil {
		c.Why = clip(err.Error())
	}
	d.Checks = append(d.Checks, c)
}

// Doctor runs the interleavings of guards and takeovers on the user's own
// database, in scratch schemas that it removes, and says whether the guards
// hold there. It also runs two well-known guards that do not hold: unless it
// catches them it proves nothing, and says so. It needs the right to create
// schemas and takes a few seconds.
func Doctor(ctx context.Context, url string) (*Diagnosis, error) {
	return examine(ctx, url, nil)
}

// examine is Doctor with a part of the guard taken out.
func examine(ctx context.Context, url string, mutate func(string) string) (d *Diagnosis, err error) {
	w, err := openWorld(ctx, url, mutate)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	d = &Diagnosis{}
	if err := w.look(ctx, d); err != nil {
		return nil, err
	}
	w.run(ctx, d, mutate != nil)
	d.OK = len(d.Checks) > 0
	for _, c := range d.Checks {
		d.OK = d.OK && c.OK
	}
	for _, f := range d.Fenced {
		d.OK = d.OK && len(f.Problems) == 0
	}
	return d, ctx.Err()
}

// run runs everything, or until something failed.
func (w *world) run(ctx context.Context, d *Diagnosis, brief bool) {
	steps := []func(){func() { w.controls(ctx, d) }, func() { w.bypasses(ctx, d) }, func() { w.seals(ctx, d) }}
	for _, g := range guards {
		for _, level := range levels {
			steps = append(steps, func() { w.interleavings(ctx, d, g, level) })
		}
	}
	for _, step := range steps {
		step()
		if ctx.Err() != nil || brief && slices.ContainsFunc(d.Checks, func(c Check) bool { return !c.OK }) {
			return
		}
	}
}

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// world is a scratch installation with three sessions.
type world struct {
	worker, taker, eye *pgx.Conn
	config             Config // leases of a node
	light              Config // the same, and no table is fenced
	remote             Config // leases elsewhere
	n                  int
}

// leasesDDL has the columns of a node's table that guards look at.
const leasesDDL = `CREATE TABLE @private.leases (
	resource bytea PRIMARY KEY, epoch bigint NOT NULL, nonce bytea, closing boolean NOT NULL, expires bigint NOT NULL,
	UNIQUE (resource, epoch)) WITH (fillfactor = 50);`

// reachWithin bounds connecting, unless the URL says so: a server that hangs
// takes connections and never answers.
const reachWithin = 10 * time.Second

func reach(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, reachWithin)
	return pgx.ConnectConfig(ctx, cfg)
}

func openWorld(ctx context.Context, url string, mutate func(string) string) (w *world, err error) {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	name := "headgate_doctor_" + hex.EncodeToString(random[:])
	w = &world{
		config: Config{Schema: name, Node: name + "_node", mutate: mutate},
		light:  Config{Schema: name + "_light", Node: name + "_node", mutate: mutate},
		remote: Config{Schema: name + "_remote", mutate: mutate},
	}
	for _, c := range []**pgx.Conn{&w.worker, &w.taker, &w.eye} {
		if *c, err = reach(ctx, url); err != nil {
			return nil, errors.Join(headgate.NewError(headgate.CodeUnavailable, "The database cannot be reached."), w.close())
		}
		if _, err = (*c).Exec(ctx, "SET statement_timeout = '10s'; SET lock_timeout = '3s'"); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	if err := w.build(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) build(ctx context.Context) error {
	node := Config{Schema: w.config.Node, mutate: w.config.mutate}
	ddl := strings.ReplaceAll(leasesDDL, "@private", fence.Ident(w.config.Node))
	if node.mutate != nil {
		ddl = node.mutate(ddl)
	}
	if _, err := w.eye.Exec(ctx, "CREATE SCHEMA "+fence.Ident(w.config.Node)+"; "+ddl); err != nil {
		return fmt.Errorf("the doctor needs the right to create schemas: %w", err)
	}
	for _, c := range []Config{w.config, w.light, w.remote} {
		if err := Install(ctx, w.eye, c); err != nil {
			return err
		}
	}
	sql := strings.ReplaceAll(`CREATE TABLE @plain (resource text, n int);
		CREATE TABLE @constant (resource text, n int);
		CREATE TABLE @rows (resource text, n int UNIQUE);
		CREATE TABLE @parted (resource text, n int) PARTITION BY RANGE (n);
		CREATE TABLE @parted_1 PARTITION OF @parted FOR VALUES FROM (0) TO (1000)`, "@", fence.Ident(w.config.Schema)+".")
	if _, err := w.eye.Exec(ctx, sql); err != nil {
		return err
	}
	for table, template := range map[string]string{"constant": "constant", "rows": "{resource}", "parted": "{resource}"} {
		if _, err := w.config.fenceTable(ctx, w.eye, w.table(table), template, false); err != nil {
			return err
		}
	}
	_, err := w.eye.Exec(ctx, strings.ReplaceAll("CREATE TABLE @parted_2 PARTITION OF @parted FOR VALUES FROM (1000) TO (2000)", "@", fence.Ident(w.config.Schema)+"."))
	return err
}

func (w *world) table(name string) string { return fence.Ident(w.config.Schema) + "." + name }

func (w *world) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	for _, c := range []*pgx.Conn{w.worker, w.taker} {
		if c != nil {
			_ = c.Close(ctx) // the server ends the session either way
		}
	}
	if w.eye != nil {
		for _, s := range []string{w.config.Node, w.config.private(), w.config.Schema, w.light.private(), w.light.Schema, w.remote.private(), w.remote.Schema} {
			_, e := w.eye.Exec(ctx, "DROP SCHEMA IF EXISTS "+fence.Ident(s)+" CASCADE")
			err = errors.Join(err, e)
		}
		_ = w.eye.Close(ctx)
	}
	return err
}

// look reads what the server is and how it is set.
func (w *world) look(ctx context.Context, d *Diagnosis) error {
	var idle, keepalive, fsync string
	var recovery bool
	err := w.eye.QueryRow(ctx, `SELECT version(), current_setting('idle_in_transaction_session_timeout'), current_setting('tcp_keepalives_idle'),
		current_setting('fsync'), pg_is_in_recovery()`).Scan(&d.Server, &idle, &keepalive, &fsync, &recovery)
	if err != nil {
		return err
	}
	if idle == "0" {
		d.Hints = append(d.Hints, "idle_in_transaction_session_timeout is off: a holder that is cut off in a transaction of its own (not of the library's) keeps its successor waiting")
	}
	if keepalive == "0" || keepalive == "7200" {
		d.Hints = append(d.Hints, "tcp_keepalives_idle is two hours: set it to seconds, so that dead clients are noticed")
	}
	if fsync != "on" {
		d.Hints = append(d.Hints, "fsync is off: a crash of the machine may bring back an epoch that was superseded")
	}
	var age, limit int64
	if err := w.eye.QueryRow(ctx, `SELECT mxid_age(datminmxid), current_setting('autovacuum_multixact_freeze_max_age')::bigint FROM pg_catalog.pg_database WHERE datname = current_database()`).Scan(&age, &limit); err != nil {
		return err
	}
	if hint := multixacts(age, limit); hint != "" {
		d.Hints = append(d.Hints, hint)
	}
	schemas, err := w.eye.Query(ctx, `SELECT nspname FROM pg_catalog.pg_namespace WHERE obj_description(oid, 'pg_namespace') LIKE 'headgate fencing %' AND nspname NOT LIKE 'headgate\_doctor\_%'`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(schemas, pgx.RowTo[string])
	for _, name := range names {
		fenced, ferr := FencedTables(ctx, w.eye, strings.TrimSuffix(name, "_fence"))
		err = errors.Join(err, ferr)
		d.Fenced = append(d.Fenced, fenced...)
	}
	return err
}

// multixacts warns when the numbers that the server gives to rows locked by
// several transactions at once run low: many connections that write under one
// lease at the same time use one for nearly each write.
func multixacts(age, limit int64) string {
	if age < limit/2 {
		return ""
	}
	return fmt.Sprintf("multixacts are %d old, of the %d at which the server vacuums every table: give each connection a lease of its own, or send the writes of a lease over few connections", age, limit)
}
