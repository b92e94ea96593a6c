package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/contract"
	"github.com/spf13/cobra"
)

func (a *app) contractCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "contract", Short: "Contracts: what payloads must look like"}
	cmd.AddCommand(a.contractAdd(), a.contractList(), a.contractShow(), a.contractCheck(), a.contractLint(), a.contractExport(), a.contractDiff(), a.contractRemove())
	return cmd
}

func (a *app) contractAdd() *cobra.Command {
	avro := false
	cmd := &cobra.Command{
		Use:   "add SUBJECT FILE[#POINTER]|-",
		Short: "Register a contract version",
		Long: "Register a JSON Schema, or the Avro schema of a file that ends in .avsc, as the next version of a\n" +
			"subject (by default an event type). With #POINTER one definition of a JSON Schema is cut out, with\n" +
			"all that it refers to.",
		Example: "  headgate contract add ticket.opened ticket.schema.json\n" +
			"  headgate contract add ticket.opened ticket.avsc\n" +
			"  headgate contract add github.issues.opened 'schema.json#/definitions/issues$opened'",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			schema, err := a.schemaArgument(args[1])
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			put := c.PutContract
			if avro || strings.HasSuffix(args[1], ".avsc") {
				put = c.PutAvroContract
			}
			got, created, err := put(cmd.Context(), args[0], schema)
			if err != nil {
				return err
			}
			return a.print(got, func(w io.Writer) { a.printRegistered(w, got, created) })
		},
	}
	cmd.Flags().BoolVar(&avro, "avro", false, "the schema is Avro, whatever the name of the file")
	return cmd
}

func (a *app) printRegistered(w io.Writer, c api.Contract, created bool) {
	what := "registered"
	if !created {
		what = "unchanged:"
	}
	fmt.Fprintf(w, "%s %s version %d\n  type    %s\n  engine  %s", what, plain(c.Subject), c.Version, c.Type, c.Engine)
	if c.Why != "" {
		fmt.Fprintf(w, " (%s)", plain(c.Why))
	}
	fmt.Fprintf(w, "\n  digest  %s\n", c.Digest)
	for _, warn := range c.Warnings {
		fmt.Fprintf(w, "  warning %s at %s: %s\n", warn.Code, plain(firstOf(warn.At, "(document)")), plain(warn.Detail))
	}
	a.next("headgate contract check %s PAYLOAD", c.Subject)
}

// schemaArgument reads a schema, or one definition of a larger document.
func (a *app) schemaArgument(arg string) ([]byte, error) {
	file, pointer, cut := strings.Cut(arg, "#")
	if file != "-" {
		file = "@" + file
	}
	text, err := a.argument(file)
	if err != nil || !cut {
		return text, err
	}
	return contract.Bundle(text, pointer)
}

func (a *app) contractList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the latest version of every subject", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var all api.Contracts
			err = pages(func(p client.Page) (string, error) {
				page, err := c.Contracts(cmd.Context(), p)
				all.Contracts = append(all.Contracts, page.Contracts...)
				return page.Next, err
			})
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) {
				rows := make([][]string, len(all.Contracts))
				for i, c := range all.Contracts {
					kind := string(c.Engine)
					if kind == "" { // the node has none in use: the version does not compile
						kind = "none, see doctor"
					}
					if c.Draft {
						kind += ", draft"
					}
					rows[i] = []string{c.Subject, fmt.Sprint(c.Version), c.Type, kind, when(c.Created), c.By}
				}
				table(w, "SUBJECT VERSION TYPE ENGINE CREATED BY", rows)
			})
		},
	}
}

// pages calls fn for every page of a list.
func pages(fn func(client.Page) (next string, err error)) error {
	p := client.Page{Limit: 500}
	for {
		next, err := fn(p)
		if err != nil || next == "" {
			return err
		}
		p.Cursor = next
	}
}

func (a *app) contractShow() *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use: "show SUBJECT", Short: "Show a contract with its schema", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			got, err := c.Contract(cmd.Context(), args[0], version)
			if err != nil {
				return err
			}
			return a.print(got, func(w io.Writer) {
				fmt.Fprintf(w, "%s version %d, registered %s by %s\n", plain(got.Subject), got.Version, when(got.Created), plain(got.By))
				fmt.Fprintf(w, "type %s\n", got.Type)
				if got.Engine != "" { // of versions in use only
					fmt.Fprintf(w, "engine %s\n", got.Engine)
				}
				fmt.Fprintf(w, "digest %s\n%s\n", got.Digest, got.Schema)
				printGuesses(w, got.Guesses)
			})
		},
	}
	cmd.Flags().IntVar(&version, "version", 0, "version; default: the latest")
	return cmd
}

// printGuesses lists the names that senders guessed wrong.
func printGuesses(w io.Writer, guesses []headgate.Guess) {
	if len(guesses) == 0 {
		return
	}
	fmt.Fprintln(w, "\nnames that senders guessed wrong (consider x-headgate-aliases)")
	rows := make([][]string, len(guesses))
	for i, g := range guesses {
		rows[i] = []string{g.Name, fmt.Sprint(g.Count), firstOf(g.Meant, "-")}
	}
	table(w, "NAME TIMES MEANT", rows)
}

func (a *app) contractCheck() *cobra.Command {
	media, record, latest := "", "", false
	cmd := &cobra.Command{
		Use: "check SUBJECT JSON|@FILE|- | --record QID", Short: "Check a payload without publishing it, or a recorded one again",
		Long: "Check a payload by the contract of a subject, without publishing it.\n" +
			"With --record, check the payload of a quarantine record again, by the very version that refused it,\n" +
			"and say whether the verdict is the same byte for byte; with --latest, by the version in use.",
		Args: func(cmd *cobra.Command, args []string) error {
			if record != "" {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if record != "" {
				return a.recheck(cmd.Context(), record, latest)
			}
			payload, err := a.argument(args[1])
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			got, err := c.CheckContract(cmd.Context(), args[0], media, payload)
			if err != nil {
				return err
			}
			return a.print(got, func(w io.Writer) {
				if !got.WouldBeMended {
					fmt.Fprintf(w, "valid against %s\n", got.Contract)
					return
				}
				fmt.Fprintf(w, "valid against %s once it is mended, as publishing it does:\n", got.Contract)
				for _, p := range got.Proposals[:min(len(got.Proposals), 1)] {
					for _, s := range p.Steps {
						fmt.Fprintf(w, "  %s %s: %s\n", s.Step, strconv.Quote(s.At), s.Reason)
					}
				}
			})
		},
	}
	cmd.Flags().StringVar(&media, "content-type", "", "media type of the payload, such as avro/binary; default: JSON")
	cmd.Flags().StringVar(&record, "record", "", "id of a quarantine record whose payload is checked")
	cmd.Flags().BoolVar(&latest, "latest", false, "with --record: by the version in use")
	return cmd
}

func (a *app) contractDiff() *cobra.Command {
	var from, to int
	cmd := &cobra.Command{
		Use: "diff SUBJECT", Short: "Show what changed between two versions", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			b, err := c.Contract(cmd.Context(), args[0], to)
			if err != nil {
				return err
			}
			if from == 0 {
				from = b.Version - 1
			}
			if from < 1 {
				return headgate.NewError(headgate.CodeNotFound, "%s has no version before %d", args[0], b.Version)
			}
			old, err := c.Contract(cmd.Context(), args[0], from)
			if err != nil {
				return err
			}
			changes := diffJSON(old.Schema, b.Schema)
			return a.print(map[string]any{"subject": args[0], "from": from, "to": b.Version, "changes": changes}, func(w io.Writer) {
				if len(changes) == 0 {
					fmt.Fprintln(w, "no change in content")
				}
				for _, ch := range changes {
					fmt.Fprintln(w, ch)
				}
			})
		},
	}
	cmd.Flags().IntVar(&from, "from", 0, "older version; default: the one before --to")
	cmd.Flags().IntVar(&to, "to", 0, "newer version; default: the latest")
	return cmd
}

func (a *app) contractRemove() *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use: "rm SUBJECT", Short: "Delete a contract softly: it stays readable, and refuses all payloads", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			n, err := c.DeleteContract(cmd.Context(), args[0], version)
			if err != nil {
				return err
			}
			return a.print(api.Deleted{Deleted: n}, func(w io.Writer) { fmt.Fprintf(w, "deleted %d version(s) of %s\n", n, plain(args[0])) })
		},
	}
	cmd.Flags().IntVar(&version, "version", 0, "version; default: all")
	return cmd
}

// diffJSON lists the members that two JSON texts do not share, one line each:
// "- POINTER: VALUE" for what went and "+ POINTER: VALUE" for what came.
func diffJSON(old, now []byte) []string {
	a, b := flatten(old), flatten(now)
	var lines []string
	for _, p := range sortedKeys(a, b) {
		was, had := a[p]
		is, has := b[p]
		if had && has && bytes.Equal([]byte(was), []byte(is)) {
			continue
		}
		if had {
			lines = append(lines, plain("- "+p+": "+was))
		}
		if has {
			lines = append(lines, plain("+ "+p+": "+is))
		}
	}
	return lines
}
