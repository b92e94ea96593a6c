package peers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkAjv measures Ajv on the same fixtures, in a process of Node.js. The
// packages come from scripts/opinions.
func BenchmarkAjv(b *testing.B) {
	node, err := exec.LookPath("node")
	if err != nil {
		b.Skip("Node.js is absent")
	}
	modules, err := filepath.Abs(filepath.Join("..", "..", "..", ".services", "validators", "node_modules"))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "ajv")); err != nil {
		b.Skip("Ajv is absent: scripts/opinions installs it")
	}
	for _, f := range fixtures(b) {
		b.Run(f.name, func(b *testing.B) {
			dir := b.TempDir()
			schema, payload := filepath.Join(dir, "schema.json"), filepath.Join(dir, "payload.json")
			if err := os.WriteFile(schema, f.schema, 0o600); err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(payload, f.payload, 0o600); err != nil {
				b.Fatal(err)
			}
			cmd := exec.Command(node, filepath.Join("testdata", "ajv.cjs"), schema, payload, strconv.Itoa(max(b.N, 20_000)))
			cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
			out, err := cmd.CombinedOutput()
			if err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(ns, "cpu-ns/op")
		})
	}
}
