package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/servertest"
)

const outboxConfig = `
version: 1
data: %s
listen: %s
principals:
  - { name: operator, kind: human, roles: [developer, operator], listen: ["*"], token: env:TOKEN_OPERATOR }
  - { name: helpdesk, kind: system, emit: ["order.*"], roots: 100000/s, token: env:TOKEN_HELPDESK }
outbox:
  - { name: orders, url: env:ORDERS_DB, roles: { shop: helpdesk } }
`

// The whole way with the real command: a database is prepared, a role that may
// do nothing else writes events by SQL, listen gets them, a refused one is in
// quarantine, status, doctor and metrics say how it stands, and replay carries
// a row again.
func TestOutsidePostgresOutbox(t *testing.T) {
	db := pgtest.Start(t, "wal_level=logical", "max_slot_wal_keep_size=1GB")
	dir, addr := t.TempDir(), freeAddr(t)
	tokens := map[string]string{}
	for _, name := range []string{"operator", "helpdesk"} {
		tokens[name] = "a-token-for-tests-of-" + name + "-0123456789"
		t.Setenv("TOKEN_"+strings.ToUpper(name), tokens[name])
	}
	t.Setenv("ORDERS_DB", db.URL())
	t.Setenv("HEADGATE_URL", "http://"+addr)
	t.Setenv("HEADGATE_TOKEN", tokens["operator"])
	call := func(ok bool, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
		if (err == nil) != ok {
			t.Fatalf("headgate %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	pgtest.Exec(t, db.URL(), `CREATE ROLE shop LOGIN; CREATE TABLE public.orders (id int PRIMARY KEY); GRANT ALL ON public.orders TO shop`)
	call(true, "outbox", "init", "--url", "env:ORDERS_DB", "--writer", "shop")
	if out := call(false, "outbox", "doctor", "--url", "env:ORDERS_DB"); !strings.Contains(out, "no relay reads the slot") {
		t.Error(out)
	}
	config := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, outboxConfig, filepath.Join(dir, "data"), addr), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := servertest.Start(t, binary, addr, "serve", "--config", config)
	if _, _, err := srv.Client(tokens["operator"]).PutContract(t.Context(), "order.placed", []byte(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)); err != nil {
		t.Fatal(err)
	}
	var heard bytes.Buffer
	listen := exec.CommandContext(t.Context(), binary, "listen", "order.placed", "--from", "beginning", "--max", "4", "--json")
	listen.Stdout, listen.Stderr = &heard, os.Stderr
	if err := listen.Start(); err != nil {
		t.Fatal(err)
	}

	u, err := url.Parse(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User("shop")
	for _, sql := range []string{
		`BEGIN; INSERT INTO public.orders VALUES (1); SELECT headgate.emit('order.placed', '{"n": 1}', 'k'); COMMIT`,
		`BEGIN; INSERT INTO public.orders VALUES (2); SELECT headgate.emit('order.placed', '{"n": 99}', 'k'); ROLLBACK`,
		`SELECT headgate.emit('order.placed', '{"n": "two"}', 'k')`,
		`SELECT headgate.emit('order.placed', jsonb_build_object('n', i), 'k') FROM generate_series(2, 3) i`,
	} {
		pgtest.Exec(t, u.String(), sql)
	}
	awaitRefused(t, srv.Client(tokens["operator"]))
	id := pgtest.Exec(t, db.URL(), `SELECT id FROM headgate.outbox WHERE data = convert_to('{"n": 1}', 'UTF8')`)[0][0]
	call(true, "outbox", "replay", "--url", "env:ORDERS_DB", "--id", id)
	if err := listen.Wait(); err != nil {
		t.Fatalf("listen: %v\n%s", err, heard.String())
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(heard.String()), "\n") {
		var e struct {
			Principal, ReplayOf string
			Data                struct{ N int }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got = append(got, fmt.Sprint(e.Principal, " ", e.Data.N, " ", e.ReplayOf))
	}
	if want := fmt.Sprint([]string{"helpdesk 1 ", "helpdesk 2 ", "helpdesk 3 ", "helpdesk 1 " + id}); fmt.Sprint(got) != want {
		t.Errorf("listen heard %v, want %s", got, want)
	}
	checkOutboxSays(t, addr, call)
	srv.Stop()
	if out := call(false, "outbox", "doctor", "--url", "env:ORDERS_DB"); !strings.Contains(out, "no relay reads the slot") {
		t.Error(out)
	}
}

// awaitRefused waits until the event that matches no contract is kept.
func awaitRefused(t *testing.T, c *client.Client) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		q, err := c.Quarantine(t.Context(), client.QuarantineFilter{}, client.Page{})
		if err != nil {
			t.Fatal(err)
		}
		if len(q.Records) == 1 && q.Records[0].Type == "order.placed" && q.Records[0].Reason == "contract_violation" && q.Records[0].Principal == "helpdesk" {
			return
		}
		if time.Now().After(deadline) || !wait(t.Context(), 20*time.Millisecond) {
			t.Fatalf("in quarantine: %+v", q.Records)
		}
	}
}

// checkOutboxSays compares what status, doctor and metrics say.
func checkOutboxSays(t *testing.T, addr string, call func(ok bool, args ...string) string) {
	t.Helper()
	if out := call(true, "outbox", "doctor", "--url", "env:ORDERS_DB"); !strings.Contains(out, "nothing is wrong") {
		t.Error(out)
	}
	var s struct {
		Mode, Slot_Status string
		Active            bool
		Epoch, Rows       int64
		Confirmed_LSN     string
		Received_LSN      string
	}
	out := call(true, "outbox", "status", "--url", "env:ORDERS_DB", "--json")
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Mode != "stream" || s.Slot_Status != "reserved" || !s.Active || s.Epoch != 1 || s.Rows != 5 || s.Confirmed_LSN == "" || s.Received_LSN == "" {
		t.Errorf("status says %+v, %v: %s", s, err, out)
	}
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`headgate_outbox_rows_total{code="",outbox="orders",outcome="stored"} 4`,
		`headgate_outbox_rows_total{code="contract_violation",outbox="orders",outcome="kept"} 1`,
		`headgate_outbox_commit_to_ack_seconds_count{outbox="orders"} 4`,
		`headgate_outbox_leads{outbox="orders"} 1`,
		`headgate_outbox_repairing{outbox="orders"} 0`,
		`headgate_outbox_epoch{outbox="orders"} 1`,
		`headgate_outbox_in_flight_rows{outbox="orders"} 0`,
		`headgate_outbox_oldest_unacked_seconds{outbox="orders"} 0`,
		`headgate_outbox_log_endangered{outbox="orders"} 0`,
	} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
}
