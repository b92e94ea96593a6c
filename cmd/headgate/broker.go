package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/headgate/headgate/node"
	"github.com/spf13/cobra"
)

func (a *app) brokerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "broker", Short: "Whose the broker's streams are"}
	cmd.AddCommand(
		a.ownerCommand(false, "owner", "Show whose the broker's streams are",
			"Show which store the broker's streams belong to, and whether it is the configured one.\n"+
				"The node must not run, unless store and broker are both outside of it."),
		a.ownerCommand(true, "adopt", "Make the broker's streams the store's",
			"Make the broker's streams belong to the configured store: after it was lost, replaced or restored\n"+
				"from a backup of before it had them. A backup of a later time needs no adoption, unless it is a dump\n"+
				"of a PostgreSQL database: restored, that is another store, as a clone is, and after pg_upgrade.\n\n"+
				"Stop the nodes of the other store first. One that runs all the same ends within seconds, and none\n"+
				"starts again on these streams. What only the other store knows is not carried over: leases and\n"+
				"their epochs, gas that was used, progress of subscriptions, retries, quarantine. Events of\n"+
				"a lease that the other store granted may stand in the streams behind and before those of new ones."),
	)
	return cmd
}

// ownership is what both commands print.
type ownership struct {
	Owner   string     `json:"owner"` // of the streams, before an adoption; empty: nobody
	Since   *time.Time `json:"since,omitempty"`
	Store   string     `json:"store"`
	Ours    bool       `json:"ours"` // now
	Adopted bool       `json:"adopted"`
}

func (a *app) ownerCommand(adopt bool, use, short, long string) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: use + " [--config FILE]", Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.ownerConfig(file)
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
			o, err := node.OwnerOfStreams(cmd.Context(), cfg, node.Options{Drivers: drivers(), Log: log}, adopt)
			if err != nil {
				return err
			}
			out := ownership{Owner: o.Streams.Owner, Store: o.Store, Ours: adopt || o.Ours(), Adopted: adopt && !o.Ours()}
			if out.Owner != "" {
				out.Since = &o.Streams.Since
			}
			return a.print(out, func(w io.Writer) { printOwnership(w, &out, adopt) })
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML); default: a node of headgate dev on --data")
	return cmd
}

// ownerConfig is the configuration of the file, or of a node of dev.
func (a *app) ownerConfig(file string) (*node.Loaded, error) {
	cfg, err := a.effectiveConfig(file)
	if err == nil && file == "" {
		cfg.Dev, cfg.Data = true, a.data
	}
	return cfg, err
}

func printOwnership(w io.Writer, o *ownership, adopt bool) {
	switch {
	case o.Adopted && o.Owner != "":
		fmt.Fprintf(w, "the streams are this store's now, %s\nuntil now they were of the store %s, whose nodes end\n", o.Store, o.Owner)
	case o.Adopted:
		fmt.Fprintf(w, "the streams are this store's now, %s\n", o.Store)
	case o.Owner == "":
		fmt.Fprintf(w, "the streams are nobody's yet: the first node that starts gets them\nthis store is %s\n", o.Store)
	case adopt:
		fmt.Fprintf(w, "the streams were this store's already, %s, since %s\n", o.Store, o.Since.UTC().Format(time.RFC3339))
	case o.Ours:
		fmt.Fprintf(w, "the streams are this store's, %s, since %s\n", o.Store, o.Since.UTC().Format(time.RFC3339))
	default:
		fmt.Fprintf(w, "the streams are of the store %s since %s\nthis store is %s: its node does not start on them\n", o.Owner, o.Since.UTC().Format(time.RFC3339), o.Store)
	}
}

// checkPatience bounds how long check waits for an outside broker.
const checkPatience = 2 * time.Second

// foreseenOwner says whose streams a node of a configuration would find, as far
// as that can be told without opening its store; nothing when it cannot.
func foreseenOwner(ctx context.Context, cfg *node.Loaded) string {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	o, asked := node.OwnerOfOutside(ctx, cfg, node.Options{Drivers: drivers(), Log: slog.New(slog.DiscardHandler)})
	if !asked || o.Owner == "" {
		return ""
	}
	return fmt.Sprintf("the broker's streams belong to the store %s since %s: a node with another store does not start (headgate broker owner compares)", o.Owner, o.Since.UTC().Format(time.RFC3339))
}
