package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// installedClient returns the path of a client that scripts/registry-clients
// installed.
func installedClient(t *testing.T, elem ...string) string {
	t.Helper()
	dir := os.Getenv("HEADGATE_SERVICES_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", ".services")
	}
	path, err := filepath.Abs(filepath.Join(append([]string{dir, "registry-clients"}, elem...)...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("HEADGATE_REQUIRE_SUITES") == "1" {
			t.Fatalf("the registry clients are required; scripts/registry-clients installs them: %v", err)
		}
		t.Skipf("the registry clients are absent; scripts/registry-clients installs them: %v", err)
	}
	return path
}

// Clients of other languages, as their makers ship them, do their daily work
// against a node: register, look up, serialise, read back, and be refused.
func TestRegistryServesOtherLanguages(t *testing.T) {
	for _, c := range []struct {
		name, script string
		command      func(t *testing.T, script string) *exec.Cmd
	}{
		{"Confluent for JavaScript", "confluent.js", nodeScript},
		{"KafkaJS", "kafkajs.js", nodeScript},
		{"Confluent for Python", "client.py", pythonScript},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := c.command(t, c.script)
			srv, tokens := registryNode(t)
			cmd.Env = append(os.Environ(), "REGISTRY_URL="+srv.URL()+"/registry", "REGISTRY_TOKEN="+tokens["keeper"])
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "ok") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func clientScript(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", "registry-clients", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// nodeScript runs a script with the packages that were installed: those of a
// script that comes over the standard input are looked for in the folder that
// it runs in.
func nodeScript(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	modules := installedClient(t, "node", "node_modules")
	text, err := os.ReadFile(clientScript(t, name))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "-")
	cmd.Dir = filepath.Dir(modules)
	cmd.Stdin = strings.NewReader(string(text))
	return cmd
}

func pythonScript(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), installedClient(t, "python", "bin", "python"), clientScript(t, name))
}
