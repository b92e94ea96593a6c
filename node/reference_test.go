package node

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite generated reference pages")

// docs/configuration.md is written from the comments of the fields that a file
// sets, so that neither can go stale without the other.
func TestConfigurationReferenceIsFresh(t *testing.T) {
	const path = "../docs/configuration.md"
	r := reference{t: t, docs: fieldDocs(t, ".", "../router"), defaults: map[string]string{}}
	for _, d := range defaults {
		r.defaults[d.Path] = d.Value
	}
	r.b.WriteString(`# Configuration

Generated from the fields; do not edit. A file is YAML, read strictly: unknown
and repeated settings are errors with line, column and the nearest known name.
` + "`headgate check FILE`" + ` validates one, ` + "`headgate config effective --config FILE`" + ` shows every
value and where it came from. Secrets stand elsewhere and are named by
` + "`env:NAME` or `file:PATH`" + `. Durations are written 30s, 10m, 7d; sizes 512KiB, 1MiB;
rates 100/s, 6000/m.

| setting | meaning |
|---|---|
`)
	r.fields(reflect.TypeFor[Config](), "")
	if *update {
		if err := os.WriteFile(path, r.b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, r.b.Bytes()) {
		t.Error("docs/configuration.md is stale: run make docs")
	}
}

type reference struct {
	t        *testing.T
	b        bytes.Buffer
	docs     map[string]string // "package.Type.Field" → comment
	defaults map[string]string
}

func (r *reference) fields(typ reflect.Type, path string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			r.fields(f.Type, path)
			continue
		}
		name := settingName(f)
		if name == "" {
			continue
		}
		at := name
		if path != "" {
			at = path + "." + name
		}
		doc := r.docs[filepath.Base(typ.PkgPath())+"."+typ.Name()+"."+f.Name]
		if doc == "" {
			r.t.Errorf("%s.%s has no comment", typ.Name(), f.Name)
		}
		fmt.Fprintf(&r.b, "| `%s` | %s |\n", at, strings.ReplaceAll(doc, "|", "\\|"))
		r.below(f.Type, at)
	}
}

// below descends into what a setting holds.
func (r *reference) below(typ reflect.Type, at string) {
	switch typ.Kind() {
	case reflect.Pointer:
		r.below(typ.Elem(), at)
	case reflect.Struct:
		if strings.HasSuffix(typ.PkgPath(), "headgate/node") || strings.HasSuffix(typ.PkgPath(), "headgate/router") {
			r.fields(typ, at)
		}
	case reflect.Map:
		r.below(typ.Elem(), at+".NAME")
	case reflect.Slice:
		r.below(typ.Elem(), at+"[]")
	}
}

// fieldDocs reads the comments of all struct fields of some packages.
func fieldDocs(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			pkg := strings.TrimSuffix(file.Name.Name, "_test")
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if st, ok := spec.Type.(*ast.StructType); ok {
					structDocs(docs, pkg+"."+spec.Name.Name, st)
				}
				return true
			})
		}
	}
	return docs
}

func structDocs(docs map[string]string, name string, st *ast.StructType) {
	comment := ""
	for _, f := range st.Fields.List {
		switch {
		case f.Doc != nil:
			comment = f.Doc.Text()
		case f.Comment != nil:
			comment = f.Comment.Text()
		}
		// A field without a comment of its own shares the one above it.
		for _, id := range f.Names {
			docs[name+"."+id.Name] = strings.Join(strings.Fields(comment), " ")
		}
	}
}
