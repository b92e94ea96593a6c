package contract

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate/internal/outside"
)

// exception is a test of the outside suite whose answer we do not share, and
// why. A row names a file and optionally a case and a test in it.
type exception struct {
	file, group, test string
	reason            string
}

type suiteGroup struct {
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Tests       []struct {
		Description string          `json:"description"`
		Data        json.RawMessage `json:"data"`
		Valid       bool            `json:"valid"`
	} `json:"tests"`
}

var suiteDrafts = []struct {
	dir   string
	draft int
}{{"draft4", 4}, {"draft6", 6}, {"draft7", 7}, {"draft2019-09", 2019}, {"draft2020-12", 2020}}

// suiteRemotes loads the documents that the suite serves at localhost:1234.
func suiteRemotes(t *testing.T) map[string]any {
	t.Helper()
	root := outside.Suites(t, "json-schema", "remotes")
	docs := map[string]any{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		doc, err := jsonschema.UnmarshalJSON(f)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		docs["http://localhost:1234/"+filepath.ToSlash(rel)] = doc
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// runSuite runs the files of one folder and reports every answer that differs
// and is not listed, and every listed one that no longer differs.
func runSuite(t *testing.T, dir string, exceptions []exception, hooks func(file string) compileHooks) {
	t.Helper()
	runSuiteFiles(t, dir, func(string) bool { return true }, exceptions, hooks)
}

func runSuiteFiles(t *testing.T, dir string, want func(file string) bool, exceptions []exception, hooks func(file string) compileHooks) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(outside.Suites(t, "json-schema", "tests", dir), "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	used := make([]bool, len(exceptions))
	ran, passed := 0, 0
	var count engineCount
	for _, path := range files {
		if !want(filepath.Base(path)) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var groups []suiteGroup
		if err := json.Unmarshal(data, &groups); err != nil {
			t.Fatal(err)
		}
		file := filepath.Base(path)
		for _, g := range groups {
			c, _, cerr := Compile("suite", 1, g.Schema, &CompileOpts{hooks: hooks(file)})
			for _, tc := range g.Tests {
				ran++
				got := "refused to compile"
				if cerr == nil {
					got = "valid"
					count.add(c)
					sameEngines(t, file+" "+g.Description, c, tc.Data)
					if v := c.Check(tc.Data); v != nil {
						got = "invalid"
						checkReport(t, tc.Data, v)
					}
				}
				want := "invalid"
				if tc.Valid {
					want = "valid"
				}
				listed := slices.IndexFunc(exceptions, func(e exception) bool {
					return e.file == file && (e.group == "" || e.group == g.Description) && (e.test == "" || e.test == tc.Description)
				})
				switch {
				case got == want:
					passed++
				case listed >= 0:
					used[listed] = true
				default:
					t.Errorf("%s/%s | %s | %s: %s, want %s %v", dir, file, g.Description, tc.Description, got, want, cerr)
				}
			}
		}
	}
	for i, e := range exceptions {
		if !used[i] {
			t.Errorf("%s: the exception %s | %s | %s is no longer needed", dir, e.file, e.group, e.test)
		}
		if strings.TrimSpace(e.reason) == "" {
			t.Errorf("%s: the exception %s | %s | %s has no reason", dir, e.file, e.group, e.test)
		}
	}
	count.log(t, dir)
	t.Logf("%s: %d of %d tests, %d exceptions", dir, passed, ran, len(exceptions))
}

func TestSuiteRequired(t *testing.T) {
	remotes := suiteRemotes(t)
	for _, d := range suiteDrafts {
		t.Run(d.dir, func(t *testing.T) {
			t.Parallel()
			runSuite(t, d.dir, requiredExceptions[d.draft], func(string) compileHooks {
				// Formats are annotations here, as the required tests have it.
				return compileHooks{documents: remotes, draft: d.draft, noFormat: d.draft >= 2019}
			})
		})
	}
}
