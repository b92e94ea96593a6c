package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryCommandSuggests finds commands that have no next command, and next
// commands that do not exist.
func TestEveryCommandSuggests(t *testing.T) {
	root := (&app{}).root()
	table := nextCommands()
	seen := map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		if c.Hidden || !c.Runnable() || path == "" {
			return
		}
		seen[path] = true
		if table[path] == "" {
			t.Errorf("headgate %s suggests no next command", path)
		}
	}
	walk(root)
	for path, next := range table {
		if !seen[path] {
			t.Errorf("there is no command headgate %s", path)
		}
		_, line, _ := strings.Cut(next, "headgate ")
		words := strings.Fields(line)
		if found, _, err := root.Find(words); err != nil || !found.Runnable() {
			t.Errorf("after headgate %s: %q is no command", path, next)
		}
	}
}
