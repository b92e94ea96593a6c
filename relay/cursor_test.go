package relay

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Rows of one transaction may share a position of the log, and transactions do
// not come in the order of their rows' positions: nothing may be decided by
// them. A row carries no position, and the readers of the log use none but those of
// a transaction's commit, in whose order the log is read, and of the log's end.
func TestTrap40NoPositionOfARowIsUsed(t *testing.T) {
	for f := range reflect.TypeFor[Row]().Fields() {
		name := strings.ToLower(f.Type.String() + f.Name)
		if strings.Contains(name, "position") || strings.Contains(name, "lsn") {
			t.Errorf("Row.%s is a position", f.Name)
		}
	}
	// What messages of the log say about where their rows stand.
	forbidden := map[string]bool{"WALStart": true, "CommitLSN": true, "LSN": true, "WALEnd": true}
	files, err := filepath.Glob(filepath.Join("*", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	own, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, own...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range positionsUsed(t, name, text, forbidden) {
			t.Errorf("%s uses the position of a row", at)
		}
	}
	control := "package x\nfunc f(m M) bool { return m.WALStart < m.CommitLSN }\n"
	if n := len(positionsUsed(t, "control.go", []byte(control), forbidden)); n != 2 {
		t.Errorf("%d of 2 uses were found", n)
	}
}

func positionsUsed(t *testing.T, name string, text []byte, forbidden map[string]bool) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || !forbidden[s.Sel.Name] {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == "pglogrepl" {
			return true // the type
		}
		found = append(found, set.Position(n.Pos()).String())
		return true
	})
	return found
}
