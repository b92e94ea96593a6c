// Package outside finds test data written by others, which is read where it
// lies and never copied into the project.
package outside

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Suites returns the path of a file or folder of the outside test suites
// (HEADGATE_SUITES, by default ../shared/suites beside the repository). When
// it is absent the test is skipped, or fails if HEADGATE_REQUIRE_SUITES is 1.
func Suites(t testing.TB, elem ...string) string {
	t.Helper()
	return find(t, "HEADGATE_SUITES", "suites", elem)
}

// Data returns the path of a file or folder of real input (HEADGATE_DATA, by
// default ../shared/data beside the repository), with the rule of [Suites].
func Data(t testing.TB, elem ...string) string {
	t.Helper()
	return find(t, "HEADGATE_DATA", "data", elem)
}

func find(t testing.TB, env, name string, elem []string) string {
	t.Helper()
	base := os.Getenv(env)
	if base == "" {
		_, file, _, _ := runtime.Caller(0)
		root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
		base = filepath.Join(filepath.Dir(root), "shared", name)
	}
	path := filepath.Join(append([]string{base}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("HEADGATE_REQUIRE_SUITES") == "1" {
			t.Fatalf("outside data is required: %v", err)
		}
		t.Skipf("outside data is absent: %v", err)
	}
	return path
}
