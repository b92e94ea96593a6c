package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/node"
	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3
	exitNotFound    = 4
	exitUnavailable = 5
)

// streams are what a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is what all commands share.
type app struct {
	streams
	url, token, data string
	json, quiet      bool
	agent            bool
	suggested        bool // a next command was printed
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil {
		a.printError(err)
	} else {
		a.suggest(cmd)
	}
	return exitCode(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "Event backbone for fleets of AI agents",
		Long: "Headgate admits, stores and delivers events for fleets of AI agents, and makes sure that\n" +
			"a hallucinated payload, a retry, a crash or a feedback loop never becomes a cascade.\n\n" +
			"Start here: headgate dev",
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := root.PersistentFlags()
	f.StringVar(&a.url, "url", "", "URL of the node (HEADGATE_URL; default: the one running on --data)")
	f.StringVar(&a.token, "token", "", "bearer token (HEADGATE_TOKEN; default: the token file in --data)")
	f.StringVar(&a.data, "data", envOr("HEADGATE_DATA_DIR", ".headgate"), "data folder of a node on this machine")
	f.BoolVar(&a.json, "json", false, "print JSON")
	f.BoolVar(&a.agent, "agent", false, "print refusals as plain lines for a language model")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print no suggestions")
	root.AddCommand(
		a.devCommand(), a.serveCommand(), a.checkCommand(), a.configCommand(),
		a.emitCommand(), a.importCommand(), a.listenCommand(), a.tailCommand(),
		a.contractCommand(), a.subscriptionCommand(), a.principalCommand(),
		a.quarantineCommand(), a.leaseCommand(), a.explainCommand(), a.treeCommand(), a.doctorCommand(),
		a.outboxCommand(), a.inboxCommand(), a.brokerCommand(), a.demoCommand(), a.benchCommand(), a.versionCommand(),
	)
	usageErrors(root)
	return root
}

// usageErrors makes wrong arguments and missing flags of every command usage
// errors that show how the command is used.
func usageErrors(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		usageErrors(sub)
	}
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, given []string) error {
			if err := args(cmd, given); err != nil {
				return usagef("%w; usage: %s", err, cmd.UseLine())
			}
			if err := cmd.ValidateRequiredFlags(); err != nil {
				return usagef("%w; usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// client returns a client of the node that flags, environment or data folder
// name, in this order.
func (a *app) client() (*client.Client, error) {
	url := firstOf(a.url, os.Getenv("HEADGATE_URL"), readLine(filepath.Join(a.data, node.URLFile)), "http://127.0.0.1:7420")
	token := firstOf(a.token, os.Getenv("HEADGATE_TOKEN"), readLine(filepath.Join(a.data, node.TokenFile)))
	if token == "" {
		return nil, headgate.NewError(headgate.CodeUnauthenticated, "no token: set HEADGATE_TOKEN or --token, or run beside a node's data folder (--data)")
	}
	return client.New(client.Config{URL: url, Token: token})
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// readLine returns the first line of a small file, or nothing.
func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil || len(b) > 4096 {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}

// exitCode maps an error to the promised exit codes.
func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	}
	e := headgate.AsError(err)
	if e == nil {
		if strings.HasPrefix(err.Error(), "unknown command") {
			return exitUsage
		}
		return exitFailed
	}
	switch status := e.Info().Status; {
	case e.Code == headgate.CodeNotFound:
		return exitNotFound
	case e.Code == headgate.CodeInvalidArgument, e.Code == headgate.CodeInvalidConfig:
		return exitUsage
	case status == 503 || status == 429 || status == 408:
		return exitUnavailable
	case status >= 400 && status < 500:
		return exitRefused
	}
	return exitFailed
}
