package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
)

// engineFile has, for each version of the engine, the digests of the golden
// files: VERSION FILE SHA-256.
const engineFile = "testdata/engines.txt"

// TestEngineVersionRises fails when the golden verdicts, reports or proposals
// changed and EngineVersion did not. With a new version -update adds its lines;
// it never changes those of a version that has them.
func TestEngineVersionRises(t *testing.T) {
	data, err := os.ReadFile(engineFile)
	if err != nil {
		t.Fatal(err)
	}
	was := map[string]string{}
	versions := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 3 || was[f[0]+" "+f[1]] != "" {
			t.Fatalf("%s: line %q", engineFile, line)
		}
		was[f[0]+" "+f[1]] = f[2]
		versions[f[0]] = true
	}
	var fresh strings.Builder
	for _, file := range []string{goldenFile, goldenProposals, avroGoldenFile} {
		golden, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(golden)
		got := hex.EncodeToString(sum[:])
		name := EngineVersion + " " + strings.TrimPrefix(file, "testdata/")
		if !versions[EngineVersion] {
			fmt.Fprintf(&fresh, "%s %s\n", name, got)
			continue
		}
		if was[name] != got {
			t.Errorf("%s is not what engine %s gives: verdicts or reports changed, so EngineVersion must rise", file, EngineVersion)
		}
	}
	if fresh.Len() == 0 {
		return
	}
	if !*updateGolden {
		t.Fatalf("engine %s has no lines in %s: run with -update", EngineVersion, engineFile)
	}
	if err := os.WriteFile(engineFile, append(data, fresh.String()...), 0o644); err != nil {
		t.Fatal(err)
	}
}
