package sqlitestore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/powerloss"
	"github.com/headgate/headgate/store/storetest"
)

// tracedVariable makes a process the victim of TestTracedPowerLoss; it holds
// "full" or "relaxed" and the folder.
const tracedVariable = "HEADGATE_SQLITESTORE_TRACED"

// TestTracedPowerLoss looks at the same promise as TestPowerLoss from outside:
// it follows the system calls of a whole process, also those that name files,
// which a file system under SQLite cannot see.
func TestTracedPowerLoss(t *testing.T) {
	if v := os.Getenv(tracedVariable); v != "" {
		mode, dir, _ := strings.Cut(v, ":")
		s := openTest(t, Config{Path: filepath.Join(dir, "data", "state.db"), Relaxed: mode == "relaxed"})
		storetest.Flood(t.Context(), t, s, os.Stdout)
		return
	}
	powerloss.Require(t)
	for _, mode := range []string{"full", "relaxed"} {
		t.Run(mode, func(t *testing.T) {
			// The relaxed run ends before the first checkpoint, which syncs the
			// log once: the harness takes overwrites of it for durable.
			faults, syncs := traced(t, mode, map[string]int{"full": 300, "relaxed": 40}[mode])
			if mode == "full" {
				for _, f := range faults {
					t.Error(f)
				}
				return
			}
			if len(faults) == 0 {
				t.Errorf("answers without a sync, %d syncs in all, and no loss was seen", syncs)
			}
		})
	}
}

func traced(t *testing.T, mode string, most int) (faults []string, syncs int) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTracedPowerLoss$", "-test.count=1")
	cmd.Env = append(os.Environ(), tracedVariable+"="+mode+":"+dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answered := make([]uint64, 8)
	lines := 0
	trace, err := powerloss.Record(ctx, cmd, dir, func(line string) bool {
		var w int
		var n uint64
		if _, err := fmt.Sscanf(line, "answered %d %d", &w, &n); err == nil {
			answered[w] = max(answered[w], n)
			lines++
		}
		return lines < most
	})
	if err != nil {
		t.Fatal(err)
	}
	report, err := trace.Cut(powerloss.Options{LoseUnsyncedNames: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d answers, %d syncs; the cut took %+v", lines, trace.Syncs, report)
	left := map[string][]byte{}
	for _, name := range []string{"state.db", "state.db-wal", "state.db-journal"} {
		b, err := os.ReadFile(filepath.Join(dir, "data", name))
		if err == nil {
			left[name] = b
		}
	}
	return inspect(t, left, answered), trace.Syncs
}
