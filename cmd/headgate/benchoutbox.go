package main

import (
	"io"

	"github.com/headgate/headgate/internal/bench"
	"github.com/spf13/cobra"
)

// benchLoadCommand and benchSinkCommand measure relays of any make on one
// bench; docs/benchmarks.md says how.
func (a *app) benchLoadCommand() *cobra.Command {
	var l bench.OutboxLoad
	var db string
	cmd := &cobra.Command{
		Use:   "load --database URL",
		Short: "Write transactions with events into a PostgreSQL database, for any relay",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l.URL = db
			if err := l.Prepare(cmd.Context()); err != nil {
				return err
			}
			return l.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&db, "database", "", "address of the database")
	f.StringVar(&l.Into, "into", "headgate", "headgate, table (public.outboxevent) or message (pg_logical_emit_message)")
	f.IntVar(&l.Count, "count", 10_000, "events")
	f.IntVar(&l.Rate, "rate", 0, "transactions a second; 0: as fast as can be")
	f.IntVar(&l.Keys, "keys", 97, "ordering keys")
	return cmd
}

func (a *app) benchSinkCommand() *cobra.Command {
	var s bench.SinkConfig
	cmd := &cobra.Command{
		Use:   "sink",
		Short: "Count what a relay brought: missing, repeated, out of order, how late",
		Long:  "Reads a JetStream stream (--nats, --stream), or else the node.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.NATS == "" {
				var err error
				if s.Node, err = a.client(); err != nil {
					return err
				}
				defer s.Node.Close()
			}
			report, err := bench.Sink(cmd.Context(), s)
			if err != nil {
				return err
			}
			return a.print(report, func(w io.Writer) { _ = report.Write(w) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.NATS, "nats", "", "address of a NATS server")
	f.StringVar(&s.Stream, "stream", "", "JetStream stream")
	f.IntVar(&s.Expect, "expect", 0, "stop after so many different events; 0: when none comes any more")
	f.DurationVar(&s.Idle, "idle", 0, "stop when none came for so long; default 30s")
	return cmd
}
