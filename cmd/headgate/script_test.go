package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/client"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"headgate": func() {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			os.Exit(run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
		},
	})
}

// TestScripts runs the command as users type it: testdata/script/*.txtar.
// "ready DIR" waits for the node whose data folder is DIR.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready":   ready_,
			"status":  status,
			"named":   named,
			"capture": capture,
		},
		UpdateScripts: *update,
	})
}

// ready_ waits until the node of a data folder answers.
func ready_(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if url := readLine(filepath.Join(dir, "url")); url != "" {
			c, err := client.New(client.Config{URL: url})
			ts.Check(err)
			if c.Ready(ctx) == nil {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			ts.Fatalf("the node of %s is not ready", dir)
		}
	}
}

// capture sets a variable to what the first group of a pattern matches in the
// output of the last command: capture NAME PATTERN.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) < 2 {
		ts.Fatalf("no match for %s", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// status runs a command and demands its exit code: status CODE headgate ….
func status(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if exit, ok := err.(interface{ ExitCode() int }); ok {
		code = string(rune('0' + exit.ExitCode()))
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, want %s", code, args[0])
	}
}
