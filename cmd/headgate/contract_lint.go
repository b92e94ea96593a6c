package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/contract"
	"github.com/spf13/cobra"
)

func (a *app) contractLint() *cobra.Command {
	closed, avro := false, false
	cmd := &cobra.Command{
		Use: "lint FILE[#POINTER]|-", Short: "Say what is weak in a schema, without a node",
		Long: "Compile a JSON Schema, or the Avro schema of a file that ends in .avsc, as a node would, and print\n" +
			"what it warns of, and beyond that advice on what senders and other tools will meet. Nothing is\n" +
			"registered, and no node is asked.\n" +
			"The exit code is 3 for a schema that is refused, else 0.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			opts := &contract.CompileOpts{Policy: contract.Policy{CloseObjects: closed}}
			if avro || strings.HasSuffix(args[0], ".avsc") {
				opts.Type = contract.TypeAvro
			}
			schema, err := a.schemaArgument(args[0])
			if err != nil {
				return err
			}
			list, err := contract.Lint(schema, opts)
			if err != nil {
				return err
			}
			out := api.Linted{Warnings: []api.Warning{}}
			for _, w := range list {
				out.Warnings = append(out.Warnings, api.Warning{Code: w.Code, At: w.At, Detail: w.Detail, Advice: w.IsAdvice()})
			}
			return a.print(out, func(w io.Writer) { printLint(w, out.Warnings) })
		},
	}
	cmd.Flags().BoolVar(&avro, "avro", false, "the schema is Avro, whatever the name of the file")
	cmd.Flags().BoolVar(&closed, "closed", false, "as under contracts.unknown_fields: refuse")
	return cmd
}

func printLint(w io.Writer, list []api.Warning) {
	for _, x := range list {
		kind := "warning"
		if x.Advice {
			kind = "advice "
		}
		fmt.Fprintf(w, "%s %s at %s: %s\n", kind, x.Code, plain(firstOf(x.At, "(document)")), plain(x.Detail))
	}
	if len(list) == 0 {
		fmt.Fprintln(w, "nothing to say")
	}
}

func (a *app) contractExport() *cobra.Command {
	version, strict := 0, false
	cmd := &cobra.Command{
		Use: "export SUBJECT --strict", Short: "Write a contract for decoders of constrained output",
		Long: "Write the part of a contract that decoders which hold a model to a schema take: every object closed,\n" +
			"every property required, null where a property is left out. What the export narrows and loosens goes\n" +
			"to standard error. Of an Avro contract it is its form in JSON. Take the nulls that stand for absent properties (--json lists them) out of what\n" +
			"the model sends; it is checked against the contract either way.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strict {
				return usagef("name the form: --strict; contract show prints the schema itself")
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			got, err := c.ExportContract(cmd.Context(), args[0], "strict", version)
			if err != nil {
				return err
			}
			for _, l := range got.Losses {
				fmt.Fprintf(a.err, "%s at %s: %s\n", l.Effect, plain(firstOf(l.At, "(document)")), plain(l.Detail))
			}
			for _, over := range got.Exceeds {
				fmt.Fprintf(a.err, "too large: %s\n", plain(over))
			}
			return a.print(got, func(w io.Writer) { fmt.Fprintf(w, "%s\n", safeJSON(got.Schema)) })
		},
	}
	cmd.Flags().IntVar(&version, "version", 0, "version; default: the latest")
	cmd.Flags().BoolVar(&strict, "strict", false, "the form that strict modes take")
	return cmd
}

// recheck replays the verdict of a quarantine record.
func (a *app) recheck(ctx context.Context, qid string, latest bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	got, err := c.Recheck(ctx, qid, latest)
	if err != nil {
		return err
	}
	err = a.print(got, func(w io.Writer) { printRecheck(w, &got) })
	if err == nil && !latest && !got.Same {
		return headgate.NewError(headgate.CodeConflict, "the verdict is not the one that was recorded")
	}
	return err
}

func printRecheck(w io.Writer, r *api.Rechecked) {
	verdict := "refused"
	if r.Valid {
		verdict = "valid"
	}
	fmt.Fprintf(w, "%s by %s\n", verdict, r.Contract)
	same := "the verdict is the recorded one, byte for byte"
	if !r.Same {
		same = "the verdict differs from the recorded one"
	}
	fmt.Fprintf(w, "  %s\n", same)
	if !r.SameContract {
		fmt.Fprintf(w, "  contract %s then, %s now: schema, policy or engine differ\n", r.Recorded.Digest, r.Contract.Digest)
	}
	fmt.Fprintf(w, "  verdict  %s\n  payload  sha256:%s\n", r.Digest, r.BodySHA256)
	printViolations(w, api.Refusal{Violations: r.Violations, Truncated: r.Truncated, Proposals: r.Proposals})
}
