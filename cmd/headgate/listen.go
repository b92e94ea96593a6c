package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/spf13/cobra"
)

// listener consumes a subscription from the command line.
type listener struct {
	*app
	client *client.Client
	name   string
	exec   string
	most   int // events to consume; 0: without end
	done   int
}

func (a *app) listenCommand() *cobra.Command {
	l := &listener{app: a}
	spec, data := api.SubscriptionSpec{}, ""
	cmd := &cobra.Command{
		Use:   "listen TYPE…",
		Short: "Consume events: print each, or run a command for each",
		Long: "Consume events of the given types. Each is printed and acked; with --exec a command runs for\n" +
			"each event, with the event on its standard input: exit 0 acks, anything else retries.\n" +
			"The command finds HEADGATE_CAUSE, HEADGATE_ATTEMPT, HEADGATE_EVENT_ID and HEADGATE_TYPE in its\n" +
			"environment; headgate emit --cause \"$HEADGATE_CAUSE\" publishes children of the event.\n\n" +
			"With --as the subscription is kept and goes on where it stopped; one that exists keeps its other\n" +
			"settings. Without --as it is temporary: it is removed when the command ends.",
		Example: "  headgate listen ticket.opened --as triage --exec './triage.sh'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if l.client, err = a.client(); err != nil {
				return err
			}
			l.client = l.client.Reading(data)
			spec.Types = args
			return l.run(cmd.Context(), spec)
		},
	}
	dataFlag(cmd, &data)
	f := cmd.Flags()
	f.StringVar(&l.name, "as", "", "name of a subscription to keep")
	f.StringVar(&l.exec, "exec", "", "shell command to run for each event")
	f.IntVar(&l.most, "max", 0, "stop after so many events")
	f.StringVar(&spec.From, "from", "", "now (default), beginning, an RFC 3339 time, or STREAM/PARTITION:OFFSET")
	f.StringVar(&spec.When, "when", "", "CEL condition over the event")
	return cmd
}

// inactive is how long the node keeps a temporary subscription without us. A
// command of --exec has no longer than a claim lasts.
const inactive = api.Duration(10 * time.Minute)

func (l *listener) run(ctx context.Context, spec api.SubscriptionSpec) error {
	if l.name == "" {
		l.name = "listen-" + strings.ToLower(rand.Text()[:10])
		spec.Inactive = inactive // should this process be killed
		defer l.remove(ctx)
	}
	if err := l.subscribe(ctx, spec); err != nil {
		return err
	}
	if !l.quiet && !l.json {
		fmt.Fprintf(l.err, "listening to %s as %s; stop with Ctrl-C\n", strings.Join(spec.Types, ", "), l.name)
	}
	for ctx.Err() == nil && (l.most == 0 || l.done < l.most) {
		if err := l.round(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// subscribe makes the subscription. One that exists keeps what its owner set,
// attempts and order for instance, and its progress: only types and condition
// become those of the command line.
func (l *listener) subscribe(ctx context.Context, spec api.SubscriptionSpec) error {
	have, err := l.client.Subscription(ctx, l.name)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		_, _, err = l.client.PutSubscription(ctx, l.name, spec)
		return err
	}
	if err != nil {
		return err
	}
	if have.Paused {
		fmt.Fprintf(l.err, "subscription %s is paused: headgate subscription resume %s\n", l.name, l.name)
	}
	if spec.From != "" {
		fmt.Fprintf(l.err, "subscription %s goes on where it stopped; --from is for new ones\n", l.name)
	}
	if slices.Equal(have.Types, spec.Types) && (spec.When == "" || spec.When == have.When) {
		return nil
	}
	changed := have.SubscriptionSpec
	changed.Types = spec.Types
	if spec.When != "" {
		changed.When = spec.When
	}
	_, _, err = l.client.PutSubscription(ctx, l.name, changed)
	return err
}

// remove deletes a temporary subscription, also after an interrupt.
func (l *listener) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := l.client.DeleteSubscription(ctx, l.name); err != nil && headgate.CodeOf(err) != headgate.CodeNotFound {
		fmt.Fprintf(l.err, "the temporary subscription %s was not removed: %s\n", l.name, plain(err.Error()))
	}
}

func (l *listener) round(ctx context.Context) error {
	limit := 16
	if l.exec != "" {
		limit = 1
	}
	if l.most > 0 {
		limit = min(limit, l.most-l.done)
	}
	deliveries, err := l.client.Pull(ctx, l.name, limit, 30*time.Second)
	if headgate.CodeOf(err) == headgate.CodeUnavailable || headgate.CodeOf(err) == headgate.CodeDraining {
		fmt.Fprintln(l.err, "the node is away; trying again")
		pause(ctx, time.Second)
		return nil
	}
	if err != nil {
		return err
	}
	settle := make([]api.Settlement, 0, len(deliveries))
	for i := range deliveries {
		settle = append(settle, l.handle(ctx, &deliveries[i]))
	}
	if len(settle) == 0 {
		return nil
	}
	// What was handled is settled even when the user stops us right now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	resp, err := l.client.Settle(ctx, l.name, settle...)
	if err != nil {
		return err
	}
	for _, r := range resp.Results {
		if !r.Settled {
			fmt.Fprintf(l.err, "not settled: %s: %s\n", r.Code, plain(r.Detail))
		}
	}
	return nil
}

// handle processes one delivery and says how it ends.
func (l *listener) handle(ctx context.Context, d *api.Delivery) api.Settlement {
	s := api.Settlement{Claim: d.Claim, Outcome: "ack"}
	switch {
	case l.exec != "":
		if err := l.command(ctx, d); err != nil {
			s.Outcome, s.Reason = "retry", err.Error()
			fmt.Fprintf(l.err, "retry: %s\n", plain(err.Error()))
			return s
		}
	case l.json:
		fmt.Fprintf(l.out, "%s\n", safeJSON(d.Event))
	default:
		l.printEvent(d.Stream+"/"+d.Position, d.Event)
	}
	l.done++
	return s
}

// command runs the user's command with the event on its standard input.
func (l *listener) command(ctx context.Context, d *api.Delivery) error {
	ctx, cancel := context.WithDeadline(ctx, d.Deadline)
	defer cancel()
	got, err := l.decode(d.Event)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", l.exec)
	cmd.Stdin = bytes.NewReader(append(bytes.Clone(d.Event), '\n'))
	cmd.Stdout, cmd.Stderr = l.out, l.streams.err
	cmd.WaitDelay = 5 * time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "HEADGATE_CAUSE="+d.Cause, "HEADGATE_ATTEMPT="+strconv.Itoa(d.Attempt),
		"HEADGATE_EVENT_ID="+got.Event.ID, "HEADGATE_TYPE="+got.Event.Type)
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("the command ended with %s", exit.ProcessState)
	}
	return err
}
