package admin_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/internal/nodetest"
)

var update = flag.Bool("update", false, "write docs/openapi.json anew")

// docs/openapi.json is the document of this very code, so that a change of the
// API is seen in review, and clients can be generated without a node.
func TestOpenAPIReferenceIsFresh(t *testing.T) {
	n := nodetest.Start(t, nil)
	raw, err := admin.Document(n.Gateway.Routes(), "1")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	path := filepath.Join("..", "docs", "openapi.json")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Error("docs/openapi.json is stale: run go test ./admin -run ReferenceIsFresh -update, and look at the difference")
	}
}
