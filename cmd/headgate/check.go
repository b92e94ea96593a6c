package main

import (
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
			if err != nil {
				return err
			}
			notes, err := node.Check(cmd.Context(), cfg, node.Options{Drivers: drivers()})
			if err != nil {
				return err
			}
			out := map[string]any{"valid": true, "file": args[0]}
			if owner := foreseenOwner(cmd.Context(), cfg); owner != "" {
				notes = append(notes, owner)
			}
			if len(notes) > 0 {
				out["notes"] = notes
			}
			return a.print(out, func(w io.Writer) {
				fmt.Fprintf(w, "%s is valid\n", args[0])
				for _, note := range notes {
					fmt.Fprintf(w, "note: %s\n", plain(note))
				}
				a.next("headgate serve --config %s", args[0])
			})
		},
	}
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
