package admin_test

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/internal/nodetest"
)

// fetchDocument gets the document as a client does.
func fetchDocument(t *testing.T, n *nodetest.Node) map[string]any {
	t.Helper()
	resp, err := http.Get(n.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// Every route is in the document, and the document describes nothing else.
func TestDocumentIsTheRoutes(t *testing.T) {
	n := nodetest.Start(t, nil)
	doc := fetchDocument(t, n)
	if doc["openapi"] != "3.1.0" {
		t.Errorf("openapi %v", doc["openapi"])
	}
	described := map[string]bool{}
	ids := map[string]bool{}
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			described[strings.ToUpper(method)+" "+path] = true
			o := op.(map[string]any)
			id, _ := o["operationId"].(string)
			if id == "" || ids[id] {
				t.Errorf("%s %s: operationId %q is missing or taken", method, path, id)
			}
			ids[id] = true
			if o["summary"] == nil || len(o["responses"].(map[string]any)) < 2 {
				t.Errorf("%s %s: described without summary or answers", method, path)
			}
		}
	}
	served := map[string]bool{}
	for _, r := range n.Gateway.Routes() {
		served[r.Pattern()] = true
		if !described[r.Pattern()] {
			t.Errorf("%s is served and not described", r.Pattern())
		}
	}
	for p := range described {
		if !served[p] {
			t.Errorf("%s is described and not served", p)
		}
	}
	// What the surface promises.
	for _, p := range []string{
		"POST /v1/events", "PUT /v1/subscriptions/{name}", "GET /v1/subscriptions/{name}", "DELETE /v1/subscriptions/{name}",
		"POST /v1/subscriptions/{name}/pull", "POST /v1/subscriptions/{name}/settle", "GET /v1/events/{id}", "GET /v1/events/{id}/explain",
		"GET /v1/roots/{id}", "GET /v1/tail", "PUT /v1/contracts/{subject}", "GET /v1/contracts/{subject}", "DELETE /v1/contracts/{subject}",
		"GET /v1/contracts/{subject}/versions", "POST /v1/contracts/{subject}/check", "GET /v1/quarantine", "GET /v1/quarantine/groups",
		"GET /v1/quarantine/{qid}", "GET /v1/principals", "POST /v1/principals", "GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json",
	} {
		if !served[p] {
			t.Errorf("%s is promised and not served", p)
		}
	}
}

// Every reference in the document leads somewhere, every path parameter is
// declared, and every security name is defined.
func TestDocumentIsSound(t *testing.T) {
	n := nodetest.Start(t, nil)
	doc := fetchDocument(t, n)
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				if name, ok := strings.CutPrefix(ref, "#/components/schemas/"); !ok || schemas[name] == nil {
					t.Errorf("%s: reference %s leads nowhere", at, ref)
				}
			}
			for k, x := range v {
				walk(at+"/"+k, x)
			}
		case []any:
			for _, x := range v {
				walk(at, x)
			}
		}
	}
	walk("", doc)
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			var declared []string
			params, _ := op.(map[string]any)["parameters"].([]any)
			for _, p := range params {
				if m := p.(map[string]any); m["in"] == "path" {
					declared = append(declared, m["name"].(string))
				}
			}
			for _, m := range regexp.MustCompile(`\{(.+?)\}`).FindAllStringSubmatch(path, -1) {
				if !slices.Contains(declared, m[1]) {
					t.Errorf("%s %s: parameter %s is not declared", method, path, m[1])
				}
			}
		}
	}
	for _, want := range []string{"Problem", "Results", "SettleRequest", "PullResponse", "Contract", "Doctor"} {
		if schemas[want] == nil {
			t.Errorf("schema %s is missing", want)
		}
	}
}

func TestDocumentIsStable(t *testing.T) {
	n := nodetest.Start(t, nil)
	first, err := admin.Document(n.Gateway.Routes(), "1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := admin.Document(n.Gateway.Routes(), "1")
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Error("two documents of the same routes differ")
	}
}
