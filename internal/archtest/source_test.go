package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	maxFileLines = 900
	maxFuncLines = 120
)

// source is one parsed Go file.
type source struct {
	path string // below the root
	test bool
	file *ast.File
	fset *token.FileSet
	text string
}

func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

func sources(t *testing.T) []source {
	t.Helper()
	root := repoRoot(t)
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || rel == "tools") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{path: rel, test: strings.HasSuffix(rel, "_test.go"), file: file, fset: fset, text: string(text)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		if n := strings.Count(s.text, "\n"); n > maxFileLines {
			t.Errorf("%s has %d lines; the limit is %d", s.path, n, maxFileLines)
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && !s.test {
				if n := s.line(f.End()) - s.line(f.Pos()); n > maxFuncLines {
					t.Errorf("%s: %s has %d lines; the limit is %d", s.path, f.Name.Name, n, maxFuncLines)
				}
			}
		}
	}
}

func TestExportsAreDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.path, "examples/") {
			continue
		}
		for _, d := range s.file.Decls {
			checkDoc(t, s, d)
		}
	}
}

func checkDoc(t *testing.T, s source, d ast.Decl) {
	t.Helper()
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && exportedReceiver(d) && d.Doc == nil {
			t.Errorf("%s:%d: %s is not documented", s.path, s.line(d.Pos()), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && d.Doc == nil && spec.Doc == nil {
					t.Errorf("%s:%d: %s is not documented", s.path, s.line(spec.Pos()), spec.Name.Name)
				}
			case *ast.ValueSpec:
				if spec.Names[0].IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
					t.Errorf("%s:%d: %s is not documented", s.path, s.line(spec.Pos()), spec.Names[0].Name)
				}
			}
		}
	}
}

func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	expr := f.Recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	if idx, ok := expr.(*ast.IndexExpr); ok {
		expr = idx.X
	}
	id, ok := expr.(*ast.Ident)
	return ok && id.IsExported()
}

// State that is not a value in somebody's hand makes programs that cannot be
// embedded twice.
func TestNoHiddenState(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		globals := map[string]bool{}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s:%d: init function", s.path, s.line(f.Pos()))
			}
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				for _, spec := range g.Specs {
					for _, n := range spec.(*ast.ValueSpec).Names {
						globals[n.Name] = n.Name != "_" // an assertion of a type, no variable
					}
				}
			}
		}
		for _, imp := range s.file.Imports {
			if imp.Name != nil && imp.Name.Name == "_" && imp.Path.Value != `"embed"` {
				t.Errorf("%s: blank import of %s", s.path, imp.Path.Value)
			}
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				checkAssignments(t, s, f, globals)
			}
		}
	}
}

// checkAssignments reports assignments to package variables. A name that the
// function declares anywhere is taken as its own.
func checkAssignments(t *testing.T, s source, f *ast.FuncDecl, globals map[string]bool) {
	t.Helper()
	locals := localNames(f)
	ast.Inspect(f.Body, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok || a.Tok == token.DEFINE {
			return true
		}
		for _, lhs := range a.Lhs {
			if name := base(lhs); name != nil && globals[name.Name] && !locals[name.Name] {
				t.Errorf("%s:%d: assignment to package variable %s", s.path, s.line(a.Pos()), name.Name)
			}
		}
		return true
	})
}

func localNames(f *ast.FuncDecl) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, id := range n.Names {
				names[id.Name] = true
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				names[id.Name] = true
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, lhs := range n.Lhs {
					if id := base(lhs); id != nil {
						names[id.Name] = true
					}
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok {
					names[id.Name] = true
				}
			}
		}
		return true
	})
	return names
}

func base(e ast.Expr) *ast.Ident {
	switch e := e.(type) {
	case *ast.Ident:
		return e
	case *ast.IndexExpr:
		return base(e.X)
	case *ast.SelectorExpr:
		return base(e.X)
	}
	return nil
}

func TestInterfacesStandAtPorts(t *testing.T) {
	for _, s := range sources(t) {
		dir := filepath.Dir(s.path)
		if s.test || strings.HasPrefix(s.path, "examples/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			iface, ok := spec.Type.(*ast.InterfaceType)
			if !ok {
				return true
			}
			if methods := len(iface.Methods.List); methods > 8 {
				t.Errorf("%s: %s has %d methods; the limit is 8", s.path, spec.Name.Name, methods)
			}
			port := dir == "broker" || dir == "store"
			if _, listed := interfaces[filepath.Base(dir)+"."+spec.Name.Name]; !port && !listed {
				t.Errorf("%s: exported interface %s outside a port, without a reason in table_test.go", s.path, spec.Name.Name)
			}
			return true
		})
	}
}

// banned lists calls that a better one exists for.
var banned = []struct {
	call, instead string
	tests, code   bool
	except        []string
}{
	{"time.Sleep", "wait for a signal, or use testing/synctest", true, false, nil},
	{"fmt.Println", "slog, or the command's writer", false, true, []string{"examples/"}},
	{"fmt.Printf", "slog, or the command's writer", false, true, []string{"examples/"}},
	{"log.Printf", "slog", true, true, nil},
	{"log.Fatal", "return an error", true, true, []string{"examples/"}},
	{"os.Exit", "return an error; only main exits", false, true, []string{"cmd/headgate/main.go", "examples/", "internal/powerloss/"}},
	{"io.ReadAll", "a bounded read", false, true, []string{"client/", "cmd/", "examples/", "internal/powerloss/", "internal/bench/"}},
}

func TestBannedCalls(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			for _, b := range banned {
				if b.call != x.Name+"."+sel.Sel.Name || (s.test && !b.tests) || (!s.test && !b.code) {
					continue
				}
				if b.call == "time.Sleep" && imports(s.file, "testing/synctest") {
					continue // virtual time
				}
				if !slices.ContainsFunc(b.except, func(e string) bool { return strings.HasPrefix(s.path, e) }) {
					t.Errorf("%s:%d: %s: use %s", s.path, s.line(call.Pos()), b.call, b.instead)
				}
			}
			return true
		})
	}
}

func imports(f *ast.File, path string) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(path) })
}
