package main

import (
	"os"

	"github.com/headgate/headgate/internal/bench"
	"github.com/headgate/headgate/internal/buildinfo"
	"github.com/spf13/cobra"
)

func (a *app) benchCommand() *cobra.Command {
	cfg := bench.Config{Drivers: drivers(), Out: a.err}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine, as ratios to baselines of the same run",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Command, err = os.Executable(); err != nil {
				return err
			}
			report, err := bench.Run(cmd.Context(), cfg, buildinfo.String())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(report)
			}
			return report.Write(a.out)
		},
	}
	cmd.AddCommand(a.benchLoadCommand(), a.benchSinkCommand())
	cmd.Flags().BoolVar(&cfg.Short, "short", false, "measure briefly, to see that it works")
	cmd.Flags().StringVar(&cfg.Profile, "profile", "", "folder for CPU and allocation profiles of each measurement")
	cmd.Flags().StringSliceVar(&cfg.Only, "only", nil, "ids to measure, such as single-64")
	return cmd
}
