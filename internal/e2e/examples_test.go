package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/servertest"
)

// The examples do what they say, against a real node.
func TestExamples(t *testing.T) {
	data, addr := filepath.Join(t.TempDir(), "data"), freeAddr(t)
	srv := servertest.Start(t, binary, addr, "dev", "--data", data, "--listen", addr)
	token, err := os.ReadFile(filepath.Join(data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	admin := srv.Client(strings.TrimSpace(string(token)))
	publish := func(id, typ, payload string) {
		t.Helper()
		if _, err := admin.Publish(t.Context(), &headgate.Event{ID: id, Type: typ, Data: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = filepath.Join("..", "..")
		cmd.Env = append(os.Environ(), "HEADGATE_URL="+srv.URL(), "HEADGATE_TOKEN="+strings.TrimSpace(string(token)),
			"PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out.String())
		}
		return out.String()
	}

	publish("T-1", "ticket.opened", `{"ticket_id":"T-1"}`)
	run(binary, "listen", "ticket.opened", "--as", "triage-sh", "--from", "beginning", "--max", "1", "--exec", "examples/agent-shell/triage.sh")
	run("python3", "examples/agent-python/triage.py", "1")

	tree, err := admin.Tree(t.Context(), "T-1", 10, true)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Events != 3 || len(tree.Root.Children) != 2 {
		t.Errorf("the tree has %d events, want the ticket and what both agents said of it", tree.Events)
	}
	q, err := admin.Quarantine(t.Context(), client.QuarantineFilter{}, client.Page{})
	if err != nil || len(q.Records) != 0 {
		t.Errorf("quarantine: %v, %v", q.Records, err)
	}

	if out := run("go", "run", "./examples/embedded"); !strings.Contains(out, "handled ticket.opened T-1") {
		t.Errorf("embedded printed %q", out)
	}
}
