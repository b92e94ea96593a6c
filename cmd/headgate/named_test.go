package main

import (
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// named asks the node of a data folder under a name, as a proxy hands it on,
// and demands a status: named STATUS DIR NAME.
func named(ts *testscript.TestScript, _ bool, args []string) {
	req, err := http.NewRequest(http.MethodGet, readLine(filepath.Join(ts.MkAbs(args[1]), "url"))+"/v1/whoami", nil)
	ts.Check(err)
	req.Host = args[2]
	req.Header.Set("Authorization", "Bearer "+ts.Getenv("OPS_TOKEN"))
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	ts.Check(resp.Body.Close())
	if got := strconv.Itoa(resp.StatusCode); got != args[0] {
		ts.Fatalf("as %s: status %s, want %s", args[2], got, args[0])
	}
}
