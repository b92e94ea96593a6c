package main

import (
	"context"
	"fmt"
	"io"

	"github.com/headgate/headgate/internal/buildinfo"
	"github.com/headgate/headgate/node"
	"github.com/spf13/cobra"
)

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Validate a configuration file",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.loadConfig(args[0])
			if err == nil {
				err = checkContracts(cmd.Context(), cfg)
			}
			if err != nil {
				return err
			}
			out := map[string]any{"valid": true, "file": args[0]}
			owner := foreseenOwner(cmd.Context(), cfg)
			if owner != "" {
				out["notes"] = []string{owner}
			}
			return a.print(out, func(w io.Writer) {
				fmt.Fprintf(w, "%s is valid\n", args[0])
				if owner != "" {
					fmt.Fprintf(w, "note: %s\n", owner)
				}
				a.next("headgate serve --config %s", args[0])
			})
		},
	}
}

// checkContracts registers the declared contracts in a store that keeps
// nothing, by the rules of the node.
func checkContracts(ctx context.Context, cfg *node.Loaded) error {
	st, err := openSQLite(ctx, node.StoreOptions{Memory: true})
	if err != nil {
		return err
	}
	defer st.Close()
	return cfg.CheckContracts(ctx, st)
}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Look at configuration"}
	var file string
	effective := &cobra.Command{
		Use:   "effective [--config FILE]",
		Short: "Show every setting, its value and where it came from",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.effectiveConfig(file)
			if err != nil {
				return err
			}
			settings := cfg.Effective()
			return a.print(settings, func(w io.Writer) {
				rows := make([][]string, len(settings))
				for i, s := range settings {
					from := "default"
					if s.Line > 0 {
						from = fmt.Sprintf("%s:%d:%d", file, s.Line, s.Column)
					}
					rows[i] = []string{s.Path, s.Value, from}
				}
				table(w, "SETTING VALUE FROM", rows)
			})
		},
	}
	effective.Flags().StringVar(&file, "config", "", "configuration file (YAML)")
	cmd.AddCommand(effective)
	return cmd
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.print(map[string]string{"version": buildinfo.String()}, func(w io.Writer) {
				fmt.Fprintln(w, "headgate "+buildinfo.String())
			})
		},
	}
}

func (a *app) effectiveConfig(file string) (*node.Loaded, error) {
	if file != "" {
		return a.loadConfig(file)
	}
	cfg, _ := node.Parse(nil)
	return cfg, nil
}
