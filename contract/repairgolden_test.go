package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
)

const goldenProposals = "testdata/proposals.txt"

// TestGoldenProposals fails when any report with its proposals, for the
// payloads of the golden verdicts, differs from what it was. A change is only
// right together with a new headgate.RepairVersion, or for the words of a
// report, with a line in the changelog; then -update writes the new ones.
func TestGoldenProposals(t *testing.T) {
	contracts := map[string]*Contract{}
	for _, r := range sampleSchemas(t) {
		contracts[r.Name] = compileOK(t, string(r.Schema))
	}
	sums, proposed := map[string][]byte{}, 0
	for _, row := range readGolden(t) {
		v, _ := contracts[row.Contract].Report(row.Payload)
		if v == nil {
			continue
		}
		proposed += min(len(v.Proposals), 1)
		sum := sha256.Sum256(append(sums[row.Contract], VerdictDigest(v)...))
		sums[row.Contract] = sum[:]
	}
	var out strings.Builder
	for _, name := range sortedKeys(sums) {
		fmt.Fprintf(&out, "%s %s\n", hex.EncodeToString(sums[name][:12]), name)
	}
	if *updateGolden {
		if err := os.WriteFile(goldenProposals, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenProposals)
	if err != nil {
		t.Fatal(err)
	}
	was := strings.Split(string(want), "\n")
	for i, line := range strings.Split(out.String(), "\n") {
		if i >= len(was) || was[i] != line {
			t.Errorf("reports of %q differ from what they were", line)
		}
	}
	if proposed < 20 {
		t.Errorf("%d payloads with proposals hold little", proposed)
	}
}
