package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "rewrite generated reference pages")

// docs/cli.md is written from the commands themselves.
func TestCLIReferenceIsFresh(t *testing.T) {
	const path = "../../docs/cli.md"
	var b bytes.Buffer
	fmt.Fprint(&b, "# Command line\n\nGenerated from the commands; do not edit. Exit codes: 0 ok, 1 failed, 2 usage, 3 refused,\n4 not found, 5 unavailable.\n")
	root := (&app{}).root()
	fmt.Fprint(&b, "\n## Flags of every command\n\n")
	writeFlags(&b, root.PersistentFlags())
	writeCommands(&b, root)
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, b.Bytes()) {
		t.Error("docs/cli.md is stale: run make docs")
	}
}

func writeCommands(b *bytes.Buffer, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.Runnable() {
			fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
			fmt.Fprintf(b, "\n```\n%s\n```\n", c.UseLine())
			if c.Long != "" {
				fmt.Fprintf(b, "\n%s\n", c.Long)
			}
			if c.Example != "" {
				fmt.Fprintf(b, "\n```\n%s\n```\n", strings.ReplaceAll(c.Example, "  headgate", "headgate"))
			}
			if c.LocalNonPersistentFlags().HasAvailableFlags() {
				fmt.Fprintln(b)
				writeFlags(b, c.LocalNonPersistentFlags())
			}
		}
		writeCommands(b, c)
	}
}

func writeFlags(b *bytes.Buffer, flags *pflag.FlagSet) {
	fmt.Fprint(b, "| flag | meaning |\n|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		usage := f.Usage
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" && !strings.Contains(usage, "default") {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", name, strings.ReplaceAll(usage, "|", "\\|"))
	})
}
