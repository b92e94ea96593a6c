package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/node"
	"github.com/spf13/cobra"
)

func (a *app) devCommand() *cobra.Command {
	var listen string
	var memory bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run one node on this machine, everything embedded",
		Long: "Run one node with everything embedded, on loopback, with an admin token in the data folder.\n" +
			"An unknown type gets a draft contract inferred from its first payload.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !node.Loopback(listen) {
				return usagef("dev listens on loopback only, not on %s: use headgate serve", listen)
			}
			cfg, problems := node.Parse(nil)
			if len(problems) > 0 {
				return errors.New(problems[0].String())
			}
			cfg.Dev, cfg.Memory, cfg.Data, cfg.Listen = true, memory, a.data, listen
			return a.runNode(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7420", "address of the HTTP API, on loopback")
	cmd.Flags().BoolVar(&memory, "memory", false, "keep everything in memory: nothing survives the process")
	return cmd
}

func (a *app) serveCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run a node from a configuration file",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig(file)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("data") {
				if cfg.IsSet("data") && cfg.Data != a.data {
					return usagef("%s has data: %s, and --data says %s: give one of them", file, cfg.Data, a.data)
				}
				cfg.Data = a.data
			}
			return a.runNode(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML)")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

// runNode opens a node, says where it is, and runs it until ctx ends.
func (a *app) runNode(ctx context.Context, cfg *node.Loaded) error {
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelInfo}))
	n, err := node.Open(ctx, cfg, node.Options{Drivers: drivers(), Log: log})
	if err != nil {
		return err
	}
	ln, err := n.Listen(ctx)
	if err != nil {
		return errors.Join(err, n.Close(ctx))
	}
	if err := a.banner(n, ln, cfg); err != nil {
		return errors.Join(err, ln.Close(), n.Close(ctx))
	}
	return n.Run(ctx, ln)
}

// ready is what a node prints when it is up.
type ready struct {
	URL        string   `json:"url"`
	Data       string   `json:"data"`
	TokenFile  string   `json:"token_file,omitempty"`
	Token      string   `json:"token,omitempty"`
	Durability string   `json:"durability"`
	Warnings   []string `json:"warnings,omitempty"`
}

func (a *app) banner(n *node.Node, ln net.Listener, cfg *node.Loaded) error {
	r := ready{
		URL: "http://" + ln.Addr().String(), Data: cfg.DataDir(), Token: n.AdminToken(),
		Durability: n.Broker.Caps().Words, Warnings: n.Warnings(),
	}
	if cfg.Memory {
		r.Data = "(memory)"
	}
	if r.Token != "" {
		r.TokenFile = filepath.Join(cfg.DataDir(), node.TokenFile)
	}
	if a.json {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.out, "headgate is ready\n  api         %s\n  data        %s\n", r.URL, r.Data)
	if r.Token != "" {
		fmt.Fprintf(a.out, "  token       %s\n", r.Token)
	}
	if r.TokenFile != "" {
		fmt.Fprintf(a.out, "  token file  %s\n", r.TokenFile)
	}
	mode := ""
	if cfg.Durability == "relaxed" { // a weaker mode is named wherever a node says what it promises
		mode = "relaxed: "
	}
	fmt.Fprintf(a.out, "  durability  %s%s\n", mode, r.Durability)
	for _, w := range r.Warnings {
		fmt.Fprintf(a.out, "  warning     %s\n", plain(w))
	}
	if cfg.Dev {
		a.next("headgate emit ticket.opened '{\"ticket_id\":\"T-1\"}'")
	} else {
		a.next("HEADGATE_TOKEN=… headgate doctor --url %s", r.URL)
	}
	return nil
}

func (a *app) loadConfig(file string) (*node.Loaded, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usageError{err}
	}
	cfg, problems := node.Parse(text)
	if len(problems) == 0 {
		return cfg, nil
	}
	if a.json {
		return nil, errors.Join(headgate.NewError(headgate.CodeInvalidConfig, "%d problem(s) in %s", len(problems), file),
			a.printJSON(map[string]any{"valid": false, "file": file, "problems": problems}))
	}
	for _, p := range problems {
		between := ":"
		if p.Line == 0 { // no place: of a setting that the file leaves out
			between = ": "
		}
		fmt.Fprintf(a.err, "%s%s%s\n", file, between, plain(p.String()))
	}
	return nil, headgate.NewError(headgate.CodeInvalidConfig, "%d problem(s) in %s", len(problems), file)
}
