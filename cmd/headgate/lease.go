package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/lease"
	"github.com/spf13/cobra"
)

func (a *app) leaseCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "lease", Short: "Fenced leases: who may change what"}
	cmd.AddCommand(a.leaseAcquire(), a.leaseRenew(), a.leaseRelease(), a.leaseList(), a.leaseShow(), a.leaseRevoke(), a.leaseWatch(), a.fenceTableCommand())
	return cmd
}

func (a *app) leaseAcquire() *cobra.Command {
	var in api.AcquireRequest
	cmd := &cobra.Command{
		Use: "acquire RESOURCE [RESOURCE…]", Short: "Acquire leases, all or none, and print their tokens", Args: cobra.MinimumNArgs(1),
		Example: "  headgate lease acquire ticket/42 --ttl 1m --wait 10s",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			in.Also = args[1:]
			if err := inMillis(cmd, map[string]*int64{"ttl": &in.TTLMS, "wait": &in.WaitMS, "max-hold": &in.MaxHoldMS}); err != nil {
				return err
			}
			got, err := c.Acquire(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			return a.print(got, func(w io.Writer) {
				printLease(w, &got)
				for i := range got.Also {
					printLease(w, &got.Also[i])
				}
				a.next("headgate lease release %s TOKEN", args[0])
			})
		},
	}
	f := cmd.Flags()
	f.Duration("ttl", 30*time.Second, "how long the lease lasts without a renewal")
	f.Duration("wait", 0, "how long to wait for it")
	f.Duration("max-hold", 0, "beyond what no renewal goes; default: none")
	f.StringVar(&in.Worker, "worker", "", "which worker asks, for people to read")
	f.StringVar(&in.RequestID, "request-id", "", "names this call, so that it can be repeated")
	f.StringSliceVar(&in.Audience, "audience", nil, "targets beside Headgate that the token is for (repeatable)")
	f.StringSliceVar(&in.Seal, "seal", nil, "targets of the node's configuration that must know of the lease first (repeatable)")
	return cmd
}

func printLease(w io.Writer, l *api.Lease) {
	fmt.Fprintf(w, "%s  epoch %s  expires in %s\n%s\n", plain(l.Resource), l.EpochText, time.Duration(l.ExpiresInMS)*time.Millisecond, l.Token)
}

// inMillis reads flags that the API takes in milliseconds. A part of one is
// refused: 0 would mean something else.
func inMillis(cmd *cobra.Command, flags map[string]*int64) error {
	for name, into := range flags {
		d, err := cmd.Flags().GetDuration(name)
		if err != nil {
			return err
		}
		if d%time.Millisecond != 0 || d < 0 {
			return usagef("--%s: %s, want whole milliseconds, not below 0", name, d)
		}
		if d == 0 && cmd.Flags().Changed(name) {
			switch name { // the API reads 0 as its default
			case "ttl":
				return usagef("--ttl: want at least %s", lease.MinTTL)
			case "deadline":
				return usagef("--deadline: want at least a millisecond; --terminate does not wait")
			}
		}
		*into = d.Milliseconds()
	}
	return nil
}

func (a *app) leaseRenew() *cobra.Command {
	cmd := &cobra.Command{
		Use: "renew RESOURCE TOKEN", Short: "Make a lease last longer; TOKEN may be - for standard input", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			token, err := a.tokenArg(args[1])
			if err != nil {
				return err
			}
			in := api.LeaseRequest{Token: token}
			if err := inMillis(cmd, map[string]*int64{"ttl": &in.TTLMS}); err != nil {
				return err
			}
			got, err := c.Renew(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			return a.print(got, func(w io.Writer) { printLease(w, &got) })
		},
	}
	cmd.Flags().Duration("ttl", 0, "how long it lasts from now; default: as when it was acquired")
	return cmd
}

// tokenArg reads a token from standard input when it is given as "-": what
// stands on a command line is seen by every user of the host.
func (a *app) tokenArg(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	b, err := io.ReadAll(io.LimitReader(a.in, 16<<10))
	return strings.TrimSpace(string(b)), err
}

func (a *app) leaseRelease() *cobra.Command {
	return &cobra.Command{
		Use: "release RESOURCE TOKEN", Short: "Give a lease back; TOKEN may be - for standard input", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			token, err := a.tokenArg(args[1])
			if err != nil {
				return err
			}
			if err := c.Release(cmd.Context(), args[0], token); err != nil {
				return err
			}
			return a.print(api.Released{Released: true}, func(w io.Writer) { fmt.Fprintf(w, "%s is released\n", plain(args[0])) })
		},
	}
}

func (a *app) leaseList() *cobra.Command {
	var prefix string
	var all bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List leases that somebody holds", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var found api.Leases
			err = pages(func(p client.Page) (string, error) {
				page, err := c.Leases(cmd.Context(), prefix, !all, p)
				found.Leases = append(found.Leases, page.Leases...)
				return page.Next, err
			})
			if err != nil {
				return err
			}
			return a.print(found, func(w io.Writer) {
				rows := make([][]string, len(found.Leases))
				for i := range found.Leases {
					l := &found.Leases[i]
					rows[i] = []string{l.Resource, l.EpochText, leaseStatus(l), firstOf(l.Holder, "-"), firstOf(l.Worker, "-"), leaseLeft(l)}
				}
				table(w, "RESOURCE EPOCH STATE HOLDER WORKER LEFT", rows)
			})
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only resources that start so")
	cmd.Flags().BoolVar(&all, "all", false, "also those that nobody holds")
	return cmd
}

func leaseStatus(l *api.LeaseState) string {
	switch {
	case l.Closing:
		return "closing"
	case l.Held:
		return "held"
	case l.Holder != "":
		return "expired"
	case l.Epoch == 0:
		return "never leased"
	}
	return "free"
}

func leaseLeft(l *api.LeaseState) string {
	if l.Holder == "" {
		return "-"
	}
	return (time.Duration(l.ExpiresInMS) * time.Millisecond).String()
}

func (a *app) leaseShow() *cobra.Command {
	return &cobra.Command{
		Use: "show RESOURCE", Short: "Show one lease", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			l, err := c.Lease(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(l, func(w io.Writer) { printLeaseState(w, &l) })
		},
	}
}

func printLeaseState(w io.Writer, l *api.LeaseState) {
	fmt.Fprintf(w, "%s  epoch %s  %s", plain(l.Resource), l.EpochText, leaseStatus(l))
	if l.Holder != "" {
		fmt.Fprintf(w, "  %s  %s left of %s, held for %s", plain(strings.TrimSpace(l.Holder+" "+l.Worker)), leaseLeft(l),
			time.Duration(l.TTLMS)*time.Millisecond, time.Duration(l.HeldForMS)*time.Millisecond)
	}
	fmt.Fprintln(w)
}

func (a *app) leaseRevoke() *cobra.Command {
	var terminate bool
	cmd := &cobra.Command{
		Use: "revoke RESOURCE", Short: "Take a lease from its holder: close the gate, wait for the release, end it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var in api.RevokeRequest
			if err := inMillis(cmd, map[string]*int64{"deadline": &in.DeadlineMS}); err != nil {
				return err
			}
			if terminate {
				in.Mode = "terminate"
			}
			got, err := c.Revoke(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			return a.print(got, func(w io.Writer) {
				how := "was released by its holder"
				if got.Killed {
					how = "was ended"
				}
				fmt.Fprintf(w, "%s %s after %s; epoch %s\n", plain(args[0]), how, time.Duration(got.DrainedMS)*time.Millisecond, got.EpochText)
				for i := range got.Sessions {
					b := &got.Sessions[i]
					fmt.Fprintf(w, "  ended session %d of %s %s, in a transaction for %s\n", b.PID, plain(b.User), plain(b.Application), time.Duration(b.OpenMS)*time.Millisecond)
				}
				for _, target := range got.Untold {
					fmt.Fprintf(w, "  NOT TOLD: the target %s, where the holder's writes may still pass\n", plain(target))
				}
			})
		},
	}
	cmd.Flags().BoolVar(&terminate, "terminate", false, "do not wait for the holder, and end sessions of the node's PostgreSQL that hold the lease in a transaction")
	cmd.Flags().Duration("deadline", 10*time.Second, "how long to wait for the holder, and for transactions under the lease")
	return cmd
}

func (a *app) leaseWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch RESOURCE", Short: "Print every change of a lease until interrupted", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			watch, err := c.WatchLease(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { _ = watch.Close() }() // only ever read from
			for {
				st, err := watch.Next()
				if errors.Is(err, io.EOF) || cmd.Context().Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
				if err := a.print(st, func(w io.Writer) { printLeaseState(w, &st) }); err != nil {
					return err
				}
			}
		},
	}
}
