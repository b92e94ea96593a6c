package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/inbox/inboxpgx"
	"github.com/headgate/headgate/inbox/inboxsqlite"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// inboxCommand works on a user's database, not on a node: --url is the
// database's.
func (a *app) inboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "Prepare a consumer's database, so that each event has its effect once",
		Long: "Prepare a consumer's PostgreSQL or SQLite database, so that each event has its effect once, and look after it.\n" +
			"--url is the address of the database (or HEADGATE_INBOX_URL), postgres://… or sqlite:PATH; with a password, write env:NAME.",
	}
	cmd.AddCommand(a.inboxInit(), a.inboxStatus(), a.inboxDoctor(), a.inboxMaintain())
	return cmd
}

// inboxURL returns the address of the database, and the path if it is SQLite's.
func (a *app) inboxURL() (url, path string, err error) {
	url = firstOf(a.url, os.Getenv("HEADGATE_INBOX_URL"))
	if name, ok := strings.CutPrefix(url, "env:"); ok {
		url = os.Getenv(name)
	}
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "postgres", "postgresql":
		return url, "", nil
	case "sqlite":
		if path = sqlitePath(url); path != "" {
			return url, path, nil
		}
	}
	return "", "", usagef("--url names the database, such as postgres://USER@HOST:5432/DATABASE, sqlite:PATH or env:NAME")
}

// onInbox runs the one or the other function with a connection to the database.
func (a *app) onInbox(ctx context.Context, pg func(*pgx.Conn) error, lite func(*sql.DB) error) error {
	url, path, err := a.inboxURL()
	if err != nil {
		return err
	}
	if path != "" {
		return sqliteOutbox(path).with(lite)
	}
	conn, err := connectPostgres(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // everything is committed or not by now
	return pg(conn)
}

func (a *app) inboxInit() *cobra.Command {
	var o inboxpgx.InstallOptions
	var retain string
	var dry bool
	cmd := &cobra.Command{
		Use:   "init --url URL",
		Short: "Prepare a database: tables, functions and the role of consumers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if retain != "" {
				d, err := api.ParseDuration(retain)
				if err != nil {
					return usagef("--retain: want a duration such as 30d or 72h")
				}
				o.Retain = time.Duration(d)
			}
			if dry {
				return a.inboxScript(o)
			}
			return a.onInbox(cmd.Context(), func(conn *pgx.Conn) error {
				if err := inboxpgx.Install(cmd.Context(), conn, o); err != nil {
					return err
				}
				return a.inboxPrepared(inboxpgx.Inspect(cmd.Context(), conn))
			}, func(db *sql.DB) error {
				if len(o.Consumers) > 0 {
					return usagef("--consumer is for PostgreSQL; SQLite has no roles")
				}
				if err := inboxsqlite.Install(cmd.Context(), db, o.Retain); err != nil {
					return err
				}
				return a.inboxPrepared(inboxsqlite.Inspect(cmd.Context(), db))
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&dry, "dry-run", false, "print the statements instead of running them")
	f.StringVar(&retain, "retain", "", "how long it remembers: longer than streams are retained plus the longest replay (default 30d)")
	f.StringSliceVar(&o.Consumers, "consumer", nil, "PostgreSQL: existing role that may consume (repeatable)")
	return cmd
}

func (a *app) inboxScript(o inboxpgx.InstallOptions) error {
	_, path, err := a.inboxURL()
	if err != nil {
		return err
	}
	script := inboxsqlite.Script(o.Retain)
	if path == "" {
		if script, err = inboxpgx.Script(o); err != nil {
			return err
		}
	}
	return a.print(map[string]string{"sql": script}, func(w io.Writer) { fmt.Fprint(w, script) })
}

func (a *app) inboxPrepared(state any, err error) error {
	if err != nil {
		return err
	}
	return a.print(state, func(w io.Writer) {
		fmt.Fprintln(w, "the database is prepared")
		a.next("headgate inbox status --url …")
	})
}

func (a *app) inboxStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status --url URL",
		Short: "Show how far back the inbox remembers, its size and its open claims",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.onInbox(cmd.Context(), func(conn *pgx.Conn) error {
				s, err := inboxpgx.Inspect(cmd.Context(), conn)
				if err != nil {
					return err
				}
				return a.inboxSettings(s, s.Retain, s.Forgotten, s.Rows, s.Claims, s.Late, [][]string{
					{"tables", strconv.Itoa(s.Generations)},
					{"newest table since", timeOrNever(s.Opened)},
					{"maintenance overdue", strconv.FormatBool(s.Overdue)},
					{"bytes", strconv.FormatInt(s.Bytes, 10)},
				})
			}, func(db *sql.DB) error {
				s, err := inboxsqlite.Inspect(cmd.Context(), db)
				if err != nil {
					return err
				}
				return a.inboxSettings(s, s.Retain, s.Forgotten, s.Rows, s.Claims, s.Late, [][]string{{"oldest row", timeOrNever(s.Oldest)}})
			})
		},
	}
}

func (a *app) inboxSettings(state any, retain time.Duration, forgotten time.Time, rows, claims, late int64, more [][]string) error {
	return a.print(state, func(w io.Writer) {
		table(w, "SETTING VALUE", append([][]string{
			{"remembers for", retain.String()},
			{"forgotten before", timeOrNever(forgotten)},
			{"rows", strconv.FormatInt(rows, 10)},
			{"open claims", strconv.FormatInt(claims, 10)},
			{"of these run out", strconv.FormatInt(late, 10)},
		}, more...))
	})
}

func (a *app) inboxMaintain() *cobra.Command {
	return &cobra.Command{
		Use:   "maintain --url URL",
		Short: "Drop what the inbox need not remember; workers in Go do it by themselves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, dropped := cmd.Context(), []string{}
			var deleted int64
			err := a.onInbox(ctx, func(conn *pgx.Conn) (err error) {
				got, err := inboxpgx.Maintain(ctx, conn)
				dropped = append(dropped, got...)
				return err
			}, func(db *sql.DB) error {
				for {
					n, err := inboxsqlite.Maintain(ctx, db)
					if deleted += n; err != nil || n < inboxsqlite.MaintainLimit {
						return err
					}
				}
			})
			if err != nil {
				return err
			}
			return a.print(map[string]any{"dropped": dropped, "deleted": deleted}, func(w io.Writer) {
				fmt.Fprintf(w, "%d tables are dropped, %d rows are deleted\n", len(dropped), deleted)
			})
		},
	}
}
