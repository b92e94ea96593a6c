package main

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/headgate/headgate/inbox/inboxpgx"
	"github.com/headgate/headgate/inbox/inboxsqlite"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/topology"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

func (a *app) inboxDoctor() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "doctor --url URL [--config FILE]",
		Short: "Say what is wrong or unsafe about an inbox, also beside a node's streams; fails on errors",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.effectiveConfig(file)
			if err != nil {
				return err
			}
			top, err := cfg.Topology()
			if err != nil {
				return err
			}
			found := []relay.Finding{}
			err = a.onInbox(cmd.Context(), func(conn *pgx.Conn) error {
				s, err := inboxpgx.Inspect(cmd.Context(), conn)
				if err == nil {
					found = append(found, inboxFindings(s.Retain, s.Late, s.Overdue, top.Streams())...)
				}
				return err
			}, func(db *sql.DB) error {
				s, err := inboxsqlite.Inspect(cmd.Context(), db)
				if err == nil {
					// Rows that were to go long ago: nobody deletes them.
					overdue := !s.Oldest.IsZero() && time.Since(s.Oldest) > s.Retain+2*24*time.Hour
					found = append(found, inboxFindings(s.Retain, s.Late, overdue, top.Streams())...)
				}
				return err
			})
			if err != nil {
				return err
			}
			return a.findings("inbox", found)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration of the node that delivers (YAML); default: that of a node without one")
	return cmd
}

// inboxFindings judge an inbox by itself, and by how long streams keep events.
func inboxFindings(retain time.Duration, late int64, overdue bool, streams []topology.Stream) []relay.Finding {
	var found []relay.Finding
	for _, s := range streams {
		if s.Retain >= retain {
			found = append(found, relay.Finding{
				Severity: "warning",
				What:     fmt.Sprintf("the inbox remembers for %s, and the stream %s keeps events for %s: what comes again later than the inbox remembers is refused as too_old", retain, s.Name, s.Retain),
				Fix:      "headgate inbox init --retain with more than the longest of the streams and the longest replay; or, if no consumer of this database reads that stream, leave it.",
			})
		}
	}
	if overdue {
		found = append(found, relay.Finding{
			Severity: "error", What: "the inbox is not maintained: what need not be remembered stays, and it grows",
			Fix: "Set Maintain in the worker's configuration, or run headgate inbox maintain every hour.",
		})
	}
	if late > 0 {
		found = append(found, relay.Finding{
			Severity: "warning", What: fmt.Sprintf("%d claim(s) ran out: their workers died, or take longer than they said", late),
			Fix: "The next delivery of each takes it over; if they stay, see whether the subscription delivers.",
		})
	}
	return found
}
