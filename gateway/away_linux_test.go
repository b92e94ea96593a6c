package gateway_test

import (
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/pgstore"
)

// TestAwayDatabaseIsNotDescribed asks every route while the node's database is
// away: no answer says where that is, and the log does.
func TestAwayDatabaseIsNotDescribed(t *testing.T) {
	server := pgtest.Start(t)
	at, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	var log record
	n := nodetest.Start(t, &nodetest.Opts{
		Store: func(store.Store) store.Store {
			st, err := pgstore.Open(t.Context(), pgstore.Config{URL: server.URL(), ConnectTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			return st
		},
		Gateway: func(c *gateway.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) },
	})
	if a := ask(t, n, "desk", http.MethodPost, "/v1/events", opened("e1", "1"), "Content-Type", "application/cloudevents+json"); a.status != http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
	server.Crash()
	defer server.Restart() // the parts of the node end in order
	down := 0
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	for _, r := range n.Gateway.Routes() {
		if strings.Contains(r.Path, "tail") || strings.Contains(r.Path, "watch") {
			continue // they stream
		}
		body := ""
		if r.Method != http.MethodGet && r.Method != http.MethodDelete {
			body = `{"max":1,"settle":[],"token":"t","kind":"agent","types":["ticket.opened"],"as":"triage"}`
		}
		path := parameter.ReplaceAllString(r.Path, "x")
		for range 2 { // the first may meet the connection that broke
			a := ask(t, n, "admin", r.Method, path, body, "Content-Type", "application/json")
			if a.status == http.StatusServiceUnavailable {
				down++
			}
			for _, hidden := range []string{at.Hostname(), at.Port(), "dial", "connection refused"} {
				if strings.Contains(string(a.body), hidden) {
					t.Errorf("%s %s says %q: %s", r.Method, path, hidden, a.body)
				}
			}
		}
	}
	ask(t, n, "triage", http.MethodPost, "/v1/leases/ticket%2F1/acquire", `{}`, "Content-Type", "application/json")
	if down < 10 {
		t.Errorf("only %d answers met the database that is away", down)
	}
	if !strings.Contains(log.String(), at.Host) {
		t.Errorf("the log does not say where the database is: %s", log.String())
	}
	if lines := strings.Count(log.String(), "unavailable"); lines > down/2 {
		t.Errorf("the log has %d lines of %d answers", lines, down)
	}
}
