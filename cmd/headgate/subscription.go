package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/spf13/cobra"
)

func (a *app) subscriptionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "subscription", Aliases: []string{"sub"}, Short: "Subscriptions: who reacts to what"}
	one := func(use, short string, do func(*client.Client, *cobra.Command, string) (api.Subscription, error)) *cobra.Command {
		return &cobra.Command{
			Use: use + " NAME", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := a.client()
				if err != nil {
					return err
				}
				s, err := do(c, cmd, args[0])
				if err != nil {
					return err
				}
				return a.print(s, func(w io.Writer) { printSubscription(w, s) })
			},
		}
	}
	cmd.AddCommand(a.subscriptionAdd(), a.subscriptionList(),
		one("show", "Show a subscription", func(c *client.Client, cmd *cobra.Command, name string) (api.Subscription, error) {
			return c.Subscription(cmd.Context(), name)
		}),
		one("pause", "Stop deliveries until resume", func(c *client.Client, cmd *cobra.Command, name string) (api.Subscription, error) {
			return c.PauseSubscription(cmd.Context(), name)
		}),
		one("resume", "Start deliveries again", func(c *client.Client, cmd *cobra.Command, name string) (api.Subscription, error) {
			return c.ResumeSubscription(cmd.Context(), name)
		}),
		a.subscriptionRemove())
	return cmd
}

func printSubscription(w io.Writer, s api.Subscription) {
	state := "active"
	if s.Paused {
		state = "paused"
	}
	spec, _ := json.MarshalIndent(s.SubscriptionSpec, "  ", "  ") // plain data always encodes
	fmt.Fprintf(w, "%s is %s, created %s (%s)\n  %s\n", plain(s.Name), state, when(s.Created), s.Managed, plainLines(string(spec)))
}

func (a *app) subscriptionAdd() *cobra.Command {
	var spec api.SubscriptionSpec
	var file, maxBlock, claim, expire string
	cmd := &cobra.Command{
		Use: "add NAME [TYPE…]", Short: "Add or change a subscription", Args: cobra.MinimumNArgs(1),
		Example: "  headgate subscription add triage ticket.opened --as triage --from beginning",
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				text, err := a.argument(file)
				if err != nil {
					return err
				}
				dec := json.NewDecoder(bytes.NewReader(text))
				dec.DisallowUnknownFields()
				if err := dec.Decode(&spec); err != nil {
					return usagef("%s: %w", file, err)
				}
			}
			spec.Types = append(spec.Types, args[1:]...)
			for text, into := range map[*string]*api.Duration{&maxBlock: &spec.MaxBlock, &claim: &spec.Claim, &expire: &spec.Expire} {
				if *text == "" {
					continue
				}
				d, err := api.ParseDuration(*text)
				if err != nil {
					return usageError{err}
				}
				*into = api.Duration(d)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			s, created, err := c.PutSubscription(cmd.Context(), args[0], spec)
			if err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) {
				verb := "changed"
				if created {
					verb = "added"
				}
				fmt.Fprintf(w, "%s subscription %s to %s\n", verb, plain(s.Name), plain(strings.Join(s.Types, ", ")))
				a.next("headgate doctor")
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "spec", "", "the whole specification as JSON, @FILE or -")
	f.StringVar(&spec.When, "when", "", "CEL condition over the event")
	f.StringVar(&spec.As, "as", "", "principal that consumes; default: you")
	f.StringVar(&spec.From, "from", "", "now (default), beginning, an RFC 3339 time, or STREAM/PARTITION:OFFSET")
	f.StringVar(&spec.Order, "order", "", "strict (default), release or none")
	f.StringVar(&spec.Dedupe, "dedupe", "", "durable (default), window or none")
	f.StringVar(&spec.Backoff, "backoff", "", "MIN..MAX; by default the node's defaults.backoff, 1s..10m")
	f.IntVar(&spec.Attempts, "attempts", 0, "attempts before an event is parked; by default the node's defaults.attempts, 8")
	f.IntVar(&spec.Concurrency, "concurrency", 0, "deliveries in flight; default 64")
	f.StringVar(&maxBlock, "max-block", "", "how long a failing event may block its key; default 10m")
	f.StringVar(&claim, "claim", "", "life of a claim; default 30s")
	f.StringVar(&expire, "expire", "", "events older than this expire")
	return cmd
}

func (a *app) subscriptionList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List subscriptions", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var all api.Subscriptions
			err = pages(func(p client.Page) (string, error) {
				page, err := c.Subscriptions(cmd.Context(), p)
				all.Subscriptions = append(all.Subscriptions, page.Subscriptions...)
				return page.Next, err
			})
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) {
				rows := make([][]string, len(all.Subscriptions))
				for i, s := range all.Subscriptions {
					state := "active"
					if s.Paused {
						state = "paused"
					}
					rows[i] = []string{s.Name, state, strings.Join(s.Types, ","), firstOf(s.As, "-"), firstOf(s.Order, "strict"), s.Managed}
				}
				table(w, "NAME STATE TYPES AS ORDER MANAGED", rows)
			})
		},
	}
}

func (a *app) subscriptionRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Remove a subscription with its progress", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if err := c.DeleteSubscription(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.print(map[string]string{"removed": args[0]}, func(w io.Writer) { fmt.Fprintf(w, "removed %s\n", plain(args[0])) })
		},
	}
}
