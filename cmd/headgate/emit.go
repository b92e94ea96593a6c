package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/spf13/cobra"
)

// maxArgument bounds a payload read from a file or standard input.
const maxArgument = 8 << 20

func (a *app) emitCommand() *cobra.Command {
	var e headgate.Event
	var causes, fences []string
	cmd := &cobra.Command{
		Use:   "emit TYPE JSON|@FILE|-",
		Short: "Publish one event",
		Example: "  headgate emit ticket.opened '{\"ticket_id\":\"T-1\"}' --key T-1\n" +
			"  headgate emit ticket.opened @ticket.json\n" +
			"  headgate emit ticket.opened @ticket.avro --content-type avro/binary",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(fences, "") {
				return usagef("--fence is empty: give the token of the lease, or leave the flag out")
			}
			if slices.Contains(causes, "") {
				return usagef("--cause is empty: give the token of the delivery that the event reacts to, or leave the flag out to start a causal tree")
			}
			data, err := a.argument(args[1])
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			e.Type, e.Data = args[0], data
			p, err := c.Fenced(fences...).Publish(cmd.Context(), &e, causes...)
			if err != nil {
				return err
			}
			return a.print(p, func(w io.Writer) { a.printPublished(w, p) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.Key, "key", "", "ordering key")
	f.StringVar(&e.ID, "id", "", "event id; default: a new one")
	f.StringVar(&e.Source, "source", "", "source; default: the principal")
	f.StringVar(&e.Subject, "subject", "", "subject")
	f.StringVar(&e.DataContentType, "content-type", "", "media type of the payload, such as avro/binary; default: JSON")
	f.StringArrayVar(&causes, "cause", nil, "causal token of the delivery that this event reacts to (repeatable)")
	f.StringArrayVar(&fences, "fence", nil, "token of the lease that the event is written under (repeatable)")
	return cmd
}

func (a *app) printPublished(w io.Writer, p api.Published) {
	what := "admitted"
	if p.Duplicate {
		what = "duplicate of"
	}
	where := p.Position
	if p.Pending {
		where = "a position that is still to come"
	}
	contract := p.Contract
	if p.Draft {
		contract += " (draft)"
	}
	fmt.Fprintf(w, "%s %s\n  stream    %s at %s\n  ttl       %d (hop %d)\n  contract  %s\n", what, plain(p.ID), p.Stream, where, p.TTL, p.Hop, contract)
	if len(p.Ignored) > 0 {
		fmt.Fprintf(w, "  ignored   %s (only the perimeter sets these)\n", strings.Join(p.Ignored, ", "))
	}
	a.next("headgate explain %s", p.ID)
}

// argument returns JSON text, the content of @FILE, or standard input for "-".
func (a *app) argument(arg string) ([]byte, error) {
	switch {
	case arg == "-":
		return readBounded(a.in)
	case strings.HasPrefix(arg, "@"):
		f, err := os.Open(arg[1:])
		if err != nil {
			return nil, usageError{err}
		}
		defer f.Close()
		return readBounded(f)
	}
	return []byte(arg), nil
}

func readBounded(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxArgument+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxArgument {
		return nil, headgate.NewError(headgate.CodeTooLarge, "the input is larger than %d bytes", maxArgument)
	}
	return b, nil
}
