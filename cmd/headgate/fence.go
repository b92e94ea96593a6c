package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/ncruces/go-sqlite3/driver"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/lease/fencesqlite"
	"github.com/headgate/headgate/lease/fencetable"
)

// fencing are the flags of lease fence-table.
type fencing struct {
	resource, schema, node string
	grant                  []string
	dry, remove, create    bool
	db                     string // as it was given: what stands behind a reference is not shown
}

// fencedTable is what lease fence-table did, or would do.
type fencedTable struct {
	Table   string `json:"table"`
	Done    bool   `json:"done"`
	Leases  string `json:"leases"` // where the guard looks
	Scripts string `json:"sql"`
}

func (a *app) fenceTableCommand() *cobra.Command {
	var f fencing
	cmd := &cobra.Command{
		Use: "fence-table DB TABLE", Short: "Put a table of your own database under fences", Args: cobra.ExactArgs(2),
		Long: "Installs the guard into a PostgreSQL database (postgres://… or env:NAME) or an SQLite file, and\n" +
			"triggers on the table: from then on every statement needs the fence of its rows' resource.\n" +
			"When a node keeps its state in the same PostgreSQL database, its leases are what counts. Else a\n" +
			"new holder seals the database with its grant before it uses it.\n\n" +
			"With --create TABLE is made a fence table itself: what leases.seal.NAME.table names, for programs\n" +
			"that check in their own transactions.",
		Example: "  headgate lease fence-table env:APP_DB tickets --resource 'ticket/{id}' --grant app --dry-run\n" +
			"  headgate lease fence-table ./app.db tickets --resource 'ticket/{id}'\n" +
			"  headgate lease fence-table ./stock.db headgate_fences --create",
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.create && (f.resource != "" || f.remove || len(f.grant) > 0) {
				return usagef("--create goes without --resource, --remove and --grant")
			}
			if f.resource == "" && !f.remove && !f.create {
				return usagef("--resource says which resource a row belongs to, such as 'ticket/{id}'")
			}
			db, err := reference(args[0])
			if err != nil {
				return err
			}
			f.db = args[0]
			out := fencedTable{Table: args[1], Done: !f.dry}
			if f.create {
				err = f.fenceTable(cmd.Context(), db, &out)
			} else if isPostgres(db) {
				err = f.postgres(cmd.Context(), db, &out)
			} else {
				err = f.sqlite(cmd.Context(), db, &out)
			}
			if err != nil {
				return err
			}
			return a.print(out, func(w io.Writer) { a.printFenced(w, &out, args[0]) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.resource, "resource", "", "the resource of a row: text with columns in braces, or of the whole table")
	flags.StringVar(&f.schema, "schema", "headgate", "schema of the guard's functions (PostgreSQL)")
	flags.StringVar(&f.node, "node", "auto", "schema of a node's state in this database, none, or auto to look for one (PostgreSQL)")
	flags.StringSliceVar(&f.grant, "grant", nil, "roles that may call the guard, public for all (PostgreSQL)")
	flags.BoolVar(&f.dry, "dry-run", false, "print the SQL and change nothing")
	flags.BoolVar(&f.create, "create", false, "create TABLE as a fence table, unless it is there")
	flags.BoolVar(&f.remove, "remove", false, "take the table from under fences")
	return cmd
}

func (a *app) printFenced(w io.Writer, out *fencedTable, db string) {
	if !out.Done {
		fmt.Fprint(w, out.Scripts)
		return
	}
	if out.Leases == fencesInTable {
		fmt.Fprintf(w, "%s: a fence table, for leases.seal.NAME.table\n", plain(out.Table))
		return
	}
	if out.Leases == "" {
		fmt.Fprintf(w, "%s: no longer under fences\n", plain(out.Table))
		return
	}
	fmt.Fprintf(w, "%s: under fences, leases are looked up in %s\n", plain(out.Table), out.Leases)
	if strings.HasPrefix(db, "env:") {
		a.next("headgate doctor --fencing %s", db)
	}
}

// fencesInTable is where the guard of a fence table looks.
const fencesInTable = "the table itself, which new holders seal"

// fenceTable creates a fence table, which programs check by themselves.
func (f *fencing) fenceTable(ctx context.Context, db string, out *fencedTable) (err error) {
	table := fencetable.Table{Dialect: fencetable.SQLite, Name: out.Table}
	open := func() (*sql.DB, error) { return driver.Open(sqliteFile(db)) }
	if isPostgres(db) {
		table.Dialect, open = fencetable.Postgres, func() (*sql.DB, error) { return openFenced(db) }
	} else if _, err := os.Stat(db); err != nil {
		return f.noFile()
	}
	script, err := table.Script()
	if err != nil {
		return headgate.NewError(headgate.CodeInvalidArgument, "%s", headgate.AsError(err).Detail)
	}
	out.Leases, out.Scripts = fencesInTable, script+";\n"
	if f.dry {
		return nil
	}
	to, err := open()
	if err != nil {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "the database cannot be opened", Err: err}
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if err := table.Create(ctx, to); err != nil {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "the table was not created", Err: err}
	}
	return nil
}

// reference reads env:NAME, and everything else as it is.
func reference(s string) (string, error) {
	name, ok := strings.CutPrefix(s, "env:")
	if !ok {
		return s, nil
	}
	if v := os.Getenv(name); v != "" {
		return v, nil
	}
	return "", usagef("the environment has no %s", name)
}

// noFile is the error where there is no file. What was meant for a URL, and may
// hold a password, is not repeated.
func (f *fencing) noFile() error {
	what := "database file " + f.db
	if strings.ContainsAny(f.db, "=@") || strings.Contains(f.db, "://") {
		what = "such database file, and the URL is none of PostgreSQL"
	}
	return headgate.NewError(headgate.CodeNotFound, "there is no %s", what)
}

func isPostgres(db string) bool {
	return strings.HasPrefix(db, "postgres://") || strings.HasPrefix(db, "postgresql://")
}

// connectWithin bounds connecting, unless the URL says so: a server that hangs
// takes connections and never answers.
const connectWithin = 10 * time.Second

func parsePostgres(url string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, connectWithin)
	return cfg, nil
}

func openFenced(url string) (*sql.DB, error) {
	cfg, err := parsePostgres(url)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*cfg), nil
}

// connectPostgres opens a connection that takes text for UTF-8, whatever the
// database's encoding is.
func connectPostgres(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := parsePostgres(url)
	if err == nil {
		cfg.RuntimeParams["client_encoding"] = "UTF8"
		var conn *pgx.Conn
		if conn, err = pgx.ConnectConfig(ctx, cfg); err == nil {
			return conn, nil
		}
	}
	return nil, &headgate.Error{Code: headgate.CodeUnavailable, Detail: "the database cannot be reached", Err: err}
}

func (f *fencing) postgres(ctx context.Context, url string, out *fencedTable) (err error) {
	conn, err := connectPostgres(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the server ends the session either way
	if f.remove {
		out.Scripts, err = fencepg.UnfenceTable(ctx, conn, out.Table, f.dry)
		return err
	}
	cfg, err := fencepg.Installed(ctx, conn, f.schema)
	installed := err == nil
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		cfg, err = fencepg.Config{Schema: f.schema}, nil
		switch f.node {
		case "auto":
			cfg.Node, err = fencepg.FindNode(ctx, conn)
		case "none":
		default:
			cfg.Node = f.node
		}
	}
	if err != nil {
		return err
	}
	cfg.Grant = f.grant
	out.Leases = "fences that new holders seal"
	if cfg.Node != "" {
		out.Leases = "the state of the node in schema " + cfg.Node
	}
	if f.dry {
		return f.preview(ctx, conn, cfg, installed, out)
	}
	if err := fencepg.Install(ctx, conn, cfg); err != nil {
		return err
	}
	out.Scripts, err = fencepg.FenceTable(ctx, conn, f.schema, out.Table, f.resource, false)
	return err
}

func (f *fencing) preview(ctx context.Context, conn *pgx.Conn, cfg fencepg.Config, installed bool, out *fencedTable) error {
	if !installed {
		script, err := cfg.Script()
		if err != nil {
			return err
		}
		out.Scripts = "BEGIN;\n" + script + "COMMIT;\n\n"
	}
	table, err := cfg.TableScript(ctx, conn, out.Table, f.resource)
	out.Scripts += "BEGIN;\n" + table + "COMMIT;\n"
	return err
}

func (f *fencing) sqlite(ctx context.Context, path string, out *fencedTable) error {
	if _, err := os.Stat(path); err != nil {
		return f.noFile()
	}
	db, err := driver.Open(sqliteFile(path))
	if err != nil {
		return err
	}
	defer db.Close()
	if f.remove {
		out.Scripts, err = fencesqlite.UnfenceTable(ctx, db, out.Table, f.dry)
		return err
	}
	out.Leases = "fences that new holders seal"
	out.Scripts, err = fencesqlite.FenceTable(ctx, db, out.Table, f.resource, f.dry)
	return err
}

// diagnoseFencing is doctor --fencing.
func (a *app) diagnoseFencing(ctx context.Context, db string) error {
	url, err := reference(db)
	if err != nil {
		return err
	}
	if !isPostgres(url) {
		return usagef("--fencing wants the URL of a PostgreSQL database, postgres://… or env:NAME")
	}
	d, err := fencepg.Doctor(ctx, url)
	if err != nil {
		return err
	}
	if err := a.print(d, func(w io.Writer) { printFencing(w, d) }); err != nil {
		return err
	}
	if !d.OK {
		return headgate.NewError(headgate.CodeConflict, "the guard does not hold on this database")
	}
	a.next("headgate lease ls")
	return nil
}

func printFencing(w io.Writer, d *fencepg.Diagnosis) {
	failed, caught := 0, 0
	for _, c := range d.Checks {
		if !c.OK {
			failed++
			fmt.Fprintf(w, "FAILED  %s (%s, %s): %s\n", c.Name, c.Guard, c.Level, plain(c.Why))
		}
		if strings.HasPrefix(c.Guard, "control") && c.OK {
			caught++
		}
	}
	for _, f := range d.Fenced {
		state := "fenced"
		if len(f.Problems) > 0 {
			state = strings.Join(f.Problems, "; ")
		}
		fmt.Fprintf(w, "table   %s: %s\n", plain(f.Table), state)
	}
	for _, h := range d.Hints {
		fmt.Fprintf(w, "hint    %s\n", h)
	}
	fmt.Fprintf(w, "%s\n%d checks, %d failed; %d times a guard that does not hold was caught\n", plain(d.Server), len(d.Checks), failed, caught)
	if d.OK {
		fmt.Fprintln(w, "yes: the storage refuses superseded workers here")
	} else {
		fmt.Fprintln(w, "NO: do not rely on fencing here")
	}
}
