package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/node"
	"github.com/headgate/headgate/store"
	"github.com/spf13/cobra"
)

func (a *app) demoCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "demo", Short: "Scenarios that run here and show a guard working"}
	cmd.AddCommand(a.stormCommand(), a.poisonCommand(), a.demoAgentCommand())
	return cmd
}

// stage is a node of its own for one demo, in a folder that goes with it, with
// everything embedded and fsynced as in production.
type stage struct {
	node *node.Node
	url  string
	dir  string
	stop context.CancelFunc
	done chan error
}

// newStage starts a node from a configuration without data and listen.
func newStage(ctx context.Context, config string) (*stage, error) {
	dir, err := os.MkdirTemp("", "headgate-demo-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, done: make(chan error, 1)}
	cfg, problems := node.Parse([]byte(config))
	if len(problems) > 0 {
		return nil, errors.Join(errors.New(problems[0].String()), os.RemoveAll(dir))
	}
	cfg.Data, cfg.Listen = filepath.Join(dir, "data"), "127.0.0.1:0"
	if s.node, err = node.Open(ctx, cfg, node.Options{Drivers: drivers()}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ln, err := s.node.Listen(ctx)
	if err != nil {
		return nil, errors.Join(err, s.node.Close(ctx), os.RemoveAll(dir))
	}
	s.url = "http://" + ln.Addr().String()
	// The node outlives an interrupt until the agents are gone.
	var run context.Context
	run, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { s.done <- s.node.Run(run, ln) }()
	return s, nil
}

// close stops the node and removes its folder.
func (s *stage) close() error {
	s.stop()
	return errors.Join(<-s.done, os.RemoveAll(s.dir))
}

// as returns a client with a new token of the principal.
func (s *stage) as(ctx context.Context, name string) (*client.Client, string, error) {
	token, err := s.node.Principals.Issue(ctx, name, false, 0)
	if err != nil {
		return nil, "", err
	}
	c, err := client.New(client.Config{URL: s.url, Token: token})
	return c, token, err
}

// quiet waits until nothing is pending, in flight or on its way: the law shows
// the same empty state before and after the node outbox was seen empty.
func (s *stage) quiet(ctx context.Context) error {
	for {
		before, idle, err := s.accepted(ctx)
		if err != nil {
			return err
		}
		waiting := 0
		err = s.node.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
			var err error
			waiting, err = tx.Outbox.Count(ctx)
			return err
		})
		if err != nil {
			return err
		}
		after, still, err := s.accepted(ctx)
		if err != nil {
			return err
		}
		if idle && still && waiting == 0 && before == after {
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// accepted sums up what subscriptions accepted, and says whether all of it
// reached its end.
func (s *stage) accepted(ctx context.Context) (sum uint64, idle bool, err error) {
	law, err := s.node.Router.Conservation(ctx)
	if err != nil {
		return 0, false, err
	}
	idle = true
	for _, b := range law {
		if !b.Holds {
			return 0, false, fmt.Errorf("the conservation law of %s is broken: %s", b.Subscription, b.Detail)
		}
		sum += b.Accepted
		idle = idle && b.Pending == 0 && b.InFlight == 0
	}
	return sum, idle, nil
}

// agentArgs say what a demo agent does.
type agentArgs struct {
	subscription, emit string
	fanOut             int
	think              time.Duration
}

// startAgent starts an agent as a process of its own that speaks HTTP only.
func (a *app) startAgent(ctx context.Context, s *stage, token string, args agentArgs) (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "demo", "agent", "--subscription", args.subscription, "--emit", args.emit,
		"--fan-out", fmt.Sprint(args.fanOut), "--think", args.think.String())
	cmd.Env = append(os.Environ(), "HEADGATE_URL="+s.url, "HEADGATE_TOKEN="+token)
	cmd.Stderr = a.err
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return cmd.Wait()
	}, nil
}

func (a *app) demoAgentCommand() *cobra.Command {
	var args agentArgs
	cmd := &cobra.Command{
		Use: "agent", Short: "An agent that answers every event with others", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return runAgent(cmd.Context(), c, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&args.subscription, "subscription", "", "subscription to consume")
	f.StringVar(&args.emit, "emit", "", "type of the answers")
	f.IntVar(&args.fanOut, "fan-out", 1, "answers per event")
	f.DurationVar(&args.think, "think", 0, "time to think per event")
	return cmd
}

// runAgent answers every delivery, as a careless agent does: it never stops by
// itself.
func runAgent(ctx context.Context, c *client.Client, args agentArgs) error {
	for ctx.Err() == nil {
		deliveries, err := c.Pull(ctx, args.subscription, 1, 10*time.Second)
		if err != nil {
			if ctx.Err() != nil || headgate.CodeOf(err) == headgate.CodeDraining {
				return nil
			}
			return err
		}
		for _, d := range deliveries {
			if !pause(ctx, args.think) {
				return nil
			}
			s := api.Settlement{Claim: d.Claim, Outcome: "ack"}
			for i := range args.fanOut {
				s.Emit = append(s.Emit, fmt.Appendf(nil, `{"type":%q,"data":{"note":"answer %d to %s"}}`, args.emit, i+1, d.Position))
			}
			if _, err := c.Settle(ctx, args.subscription, s); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}
