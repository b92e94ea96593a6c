package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/spf13/cobra"
)

// outboxCommand works on a user's database, not on a node: --url is the
// database's.
func (a *app) outboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "Prepare a database for events, watch its relay, replay",
		Long: "Prepare a PostgreSQL or SQLite database so that a transaction can write events beside its rows, and look after it.\n" +
			"--url is the address of the database (or HEADGATE_OUTBOX_URL), postgres://… or sqlite:PATH; with a password, write env:NAME.",
	}
	cmd.AddCommand(a.outboxInit(), a.outboxStatus(), a.outboxDoctor(), a.outboxReplay(), a.outboxWatch(), a.outboxUnwatch())
	return cmd
}

// database returns the database that --url names.
func (a *app) database() (outboxDatabase, error) {
	url := firstOf(a.url, os.Getenv("HEADGATE_OUTBOX_URL"))
	if name, ok := strings.CutPrefix(url, "env:"); ok {
		url = os.Getenv(name)
	}
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "postgres", "postgresql":
		return postgresOutbox(url), nil
	case "sqlite":
		return sqliteOutbox(sqlitePath(url)), nil
	}
	return nil, usagef("--url names the database, such as postgres://USER@HOST:5432/DATABASE, sqlite:PATH or env:NAME")
}

func (a *app) outboxInit() *cobra.Command {
	var o pgrelay.InstallOptions // none of them is for SQLite
	var dry bool
	cmd := &cobra.Command{
		Use:   "init --url URL",
		Short: "Prepare a database, or bring it up to date: what writers and the relay need in it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.database()
			if err != nil {
				return err
			}
			if dry {
				script, err := db.preview(cmd.Context(), o)
				if err != nil {
					return err
				}
				return a.print(map[string]string{"sql": script}, func(w io.Writer) {
					fmt.Fprint(w, cmp.Or(script, "-- The database is up to date: there is nothing to do.\n"))
				})
			}
			if err := db.install(cmd.Context(), o); err != nil {
				return err
			}
			s, err := db.status(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(s.state, func(w io.Writer) {
				fmt.Fprintln(w, s.prepared)
				a.next("headgate outbox doctor --url …")
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&dry, "dry-run", false, "print the statements instead of running them")
	f.StringVar(&o.Slot, "slot", "", "PostgreSQL: name of the replication slot (default: headgate_ and the database's name)")
	f.StringSliceVar(&o.Writers, "writer", nil, "PostgreSQL: existing role that may write events (repeatable)")
	f.BoolVar(&o.Harden, "harden", false, "PostgreSQL: take the right to write messages into the log from everybody but the relay and superusers")
	f.StringVar(&o.Relay, "relay", "", "PostgreSQL: existing role, with REPLICATION, that the node connects as")
	return cmd
}

func (a *app) outboxStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status --url URL",
		Short: "Show the relay in the lead, how far it is, and what is kept",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.database()
			if err != nil {
				return err
			}
			s, err := db.status(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(s.state, func(w io.Writer) { table(w, "SETTING VALUE", s.settings) })
		},
	}
}

func timeOrNever(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format(time.RFC3339)
}

func (a *app) outboxDoctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor --url URL",
		Short: "Say what is wrong or unsafe about an outbox; fails on errors",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.database()
			if err != nil {
				return err
			}
			found, err := db.doctor(cmd.Context())
			if err != nil {
				return err
			}
			return a.findings("outbox", found)
		},
	}
}

// findings prints what a doctor found about a thing; errors fail.
func (a *app) findings(thing string, found []relay.Finding) error {
	failed := false
	for _, f := range found {
		failed = failed || f.Severity == "error"
	}
	err := a.print(found, func(w io.Writer) {
		if len(found) == 0 {
			fmt.Fprintln(w, "nothing is wrong")
			return
		}
		for _, f := range found {
			fmt.Fprintf(w, "%s: %s\n  fix: %s\n", f.Severity, plain(f.What), plain(f.Fix))
		}
	})
	if err == nil && failed {
		return errors.New("the " + thing + " has errors")
	}
	return err
}

func (a *app) outboxReplay() *cobra.Command {
	var f relay.ReplayFilter
	var since, until string
	var dry bool
	cmd := &cobra.Command{
		Use:   "replay --url URL",
		Short: "Carry rows of the outbox again, as new events that name the old ones",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.database()
			if err != nil {
				return err
			}
			for _, t := range []struct {
				name, text string
				into       *time.Time
			}{{"since", since, &f.Since}, {"until", until, &f.Until}} {
				if t.text == "" {
					continue
				}
				if *t.into, err = time.Parse(time.RFC3339, t.text); err != nil {
					return usagef("--%s: want a time such as 2026-01-31T12:00:00Z", t.name)
				}
			}
			n, err := db.replay(cmd.Context(), f, dry)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"rows": n, "dry_run": dry}, func(w io.Writer) {
				more := ""
				if n >= int64(f.Limit) {
					more = "; there may be more, beyond --limit"
				}
				if dry {
					fmt.Fprintf(w, "%d rows would be replayed%s\n", n, more)
					return
				}
				fmt.Fprintf(w, "%d rows are replayed%s\n", n, more)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.IDs, "id", nil, "event id (repeatable)")
	fl.StringVar(&f.Type, "type", "", "event type")
	fl.StringVar(&f.Key, "key", "", "ordering key")
	fl.StringVar(&since, "since", "", "written at or after this time (RFC 3339)")
	fl.StringVar(&until, "until", "", "written before this time (RFC 3339)")
	fl.IntVar(&f.Limit, "limit", 1000, "rows at most")
	fl.BoolVar(&dry, "dry-run", false, "only count")
	return cmd
}

func (a *app) outboxWatch() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "watch TABLE --url URL",
		Short: "Make each row change of a table an event, in the same transaction",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if prefix == "" {
				name := args[0][strings.LastIndexByte(args[0], '.')+1:]
				prefix = strings.ToLower(strings.Trim(name, `"`))
			}
			return a.onTable(cmd.Context(), args[0], "is watched; its events are "+prefix+".inserted, .updated and .deleted", func(ctx context.Context, db outboxDatabase) error {
				return db.watch(ctx, args[0], prefix)
			})
		},
	}
	cmd.Flags().StringVar(&prefix, "type", "", "prefix of the event types (default: the table's name)")
	return cmd
}

func (a *app) outboxUnwatch() *cobra.Command {
	return &cobra.Command{
		Use:   "unwatch TABLE --url URL",
		Short: "End the watch of a table",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onTable(cmd.Context(), args[0], "is no longer watched", func(ctx context.Context, db outboxDatabase) error {
				return db.unwatch(ctx, args[0])
			})
		},
	}
}

func (a *app) onTable(ctx context.Context, name, done string, do func(context.Context, outboxDatabase) error) error {
	db, err := a.database()
	if err != nil {
		return err
	}
	if err := do(ctx, db); err != nil {
		return err
	}
	return a.print(map[string]string{"table": name, "state": done}, func(w io.Writer) { fmt.Fprintf(w, "%s %s\n", plain(name), done) })
}
