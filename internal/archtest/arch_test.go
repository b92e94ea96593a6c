package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/headgate/headgate"

// pkg is what go list says of one package.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	Doc        string
	GoFiles    []string
	Imports    []string
	Standard   bool
}

// rel returns the path below the module; "." for the root.
func (p pkg) rel() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Name,Dir,Doc,GoFiles,Imports,Standard"}, args...)...)
	cmd.Dir = repoRoot(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("go list output: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

func repoRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// ours returns the packages of the module that users get: examples are
// programs of their own and only have to compile.
func ours(t *testing.T) []pkg {
	t.Helper()
	return slices.DeleteFunc(list(t, "./..."), func(p pkg) bool { return strings.HasPrefix(p.rel(), "examples/") })
}

func ruleOf(rel string) (rule, bool) {
	i := slices.IndexFunc(table, func(r rule) bool { return r.pkg == rel })
	if i < 0 {
		return rule{}, false
	}
	return table[i], true
}

func TestImportsFollowTheTable(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range ours(t) {
		r, ok := ruleOf(p.rel())
		if !ok {
			t.Errorf("%s is not in the table of table_test.go: say what it is for and what it may import", p.rel())
			continue
		}
		seen[p.rel()] = true
		for _, imp := range p.Imports {
			checkImport(t, r, imp)
		}
	}
	for _, r := range table {
		if !seen[r.pkg] {
			t.Logf("the table lists %s, which does not exist yet", r.pkg)
		}
	}
}

func checkImport(t *testing.T, r rule, imp string) {
	t.Helper()
	switch {
	case imp == module:
	case strings.HasPrefix(imp, module+"/"):
		rel := strings.TrimPrefix(imp, module+"/")
		if !slices.Contains(r.imports, rel) && !slices.Contains(r.imports, "*") {
			t.Errorf("%s (%s) may not import %s", r.pkg, r.role, rel)
		}
	case !strings.Contains(strings.SplitN(imp, "/", 2)[0], "."):
		if imp == "testing" && !slices.Contains(mayImportTesting, r.pkg) {
			t.Errorf("%s imports testing outside its tests", r.pkg)
		}
	default:
		if !slices.ContainsFunc(r.vendors, func(v string) bool { return imp == v || strings.HasPrefix(imp, v+"/") }) {
			t.Errorf("%s (%s) may not import %s", r.pkg, r.role, imp)
		}
	}
}

// A writer of the vocabulary, the ports or the client must not compile a
// broker or a database.
func TestLightPackagesStayLight(t *testing.T) {
	for _, light := range []string{".", "./broker", "./store", "./api", "./client"} {
		for _, p := range list(t, "-deps", light) {
			if !p.Standard && p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
				t.Errorf("%s depends on %s", light, p.ImportPath)
			}
		}
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	for _, p := range ours(t) {
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.rel())
		}
	}
}
