package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/servertest"
)

// The example of orders does what its page says: the shop places orders, the
// workers charge each once while they are killed, and the charge is the order's
// child.
func TestOutsideOrdersExample(t *testing.T) {
	example, err := filepath.Abs(filepath.Join("..", "..", "examples", "orders"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, pkg := range map[string]string{"shop": ".", "billing": "./billing"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
		build.Dir = example
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	cluster := pgtest.Start(t, "wal_level=logical")
	owner := cluster.URL()
	schema, err := os.ReadFile(filepath.Join(example, "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, owner, string(schema))
	as := func(role string) string {
		u, err := url.Parse(owner)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(role)
		return u.String()
	}
	listen := freeAddr(t)
	token := "a-token-for-tests-0123456789abcdef"
	addr := freeAddr(t)
	for name, value := range map[string]string{
		"ORDERS_DB": owner, "SHOP_DB": as("shop"), "BILLING_DB": as("billing"), "HEADGATE_URL": "http://" + addr, "SHOP_LISTEN": listen,
		"HEADGATE_TOKEN": token, "BILLING_TOKEN": token + "-of-billing",
	} {
		t.Setenv(name, value)
	}
	for _, args := range [][]string{
		{"outbox", "init", "--url", "env:ORDERS_DB", "--writer", "shop", "--writer", "billing"},
		{"inbox", "init", "--url", "env:ORDERS_DB", "--consumer", "billing"},
	} {
		if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	config, err := os.ReadFile(filepath.Join(example, "headgate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(config), "contracts: { dir: contracts }", "contracts: { dir: "+filepath.Join(example, "contracts")+" }", 1)
	text = strings.Replace(text, "from: beginning }", "from: beginning, claim: 1s, backoff: 10ms..100ms }", 1) // so that it need not wait for killed ones
	text += fmt.Sprintf("\ndata: %s\nlisten: %s\n", filepath.Join(dir, "data"), addr)
	file := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := servertest.Start(t, binary, addr, "serve", "--config", file)

	program := func(name string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, name))
		cmd.Dir = example
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	end := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
	}
	shop := program("shop")
	t.Cleanup(func() { end(shop) })
	const orders = 12
	for n := range orders {
		placeOrder(t, listen, fmt.Sprintf(`{"customer":"ann","cents":%d}`, n+1), http.StatusCreated)
	}
	placeOrder(t, listen, `{"customer":"","cents":0}`, http.StatusUnprocessableEntity)
	charged := func() string {
		return pgtest.Exec(t, owner, `SELECT count(DISTINCT order_id) FROM public.charges`)[0][0]
	}
	deadline := time.Now().Add(90 * time.Second)
	for n := 0; charged() != fmt.Sprint(orders); n++ {
		if time.Now().After(deadline) {
			t.Fatalf("%s of %d orders are charged", charged(), orders)
		}
		worker := program("billing")
		wait := time.NewTimer(time.Duration(300+200*n) * time.Millisecond)
		<-wait.C
		end(worker)
	}
	all := orders
	if exec.Command("python3", "-c", "import psycopg").Run() == nil { // the same in Python, where its driver is
		placeOrder(t, listen, `{"customer":"bob","cents":7}`, http.StatusCreated)
		all++
		for n := 0; charged() != fmt.Sprint(all); n++ { // what killed workers left unsettled comes first
			cmd := exec.Command("python3", "billing.py", "1")
			cmd.Dir = example
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "charged") || n > 2*orders {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	}
	if twice := pgtest.Exec(t, owner, `SELECT count(*) FROM public.charges`)[0][0]; twice != fmt.Sprint(all) {
		t.Errorf("there are %s charges", twice)
	}
	id := pgtest.Exec(t, owner, `SELECT id FROM headgate.outbox WHERE type = 'order.placed' LIMIT 1`)[0][0]
	child := onlyChild(t.Context(), t, srv.Client(token), id)
	var e struct{ Type, Principal, CausationID string }
	if err := json.Unmarshal(child, &e); err != nil || e.Type != "order.charged" || e.Principal != "billing" || e.CausationID != id {
		t.Errorf("%s, %v", child, err)
	}
}

// placeOrder waits until the shop is there.
func placeOrder(t *testing.T, listen, body string, want int) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		resp, err := http.Post("http://"+listen+"/orders", "application/json", bytes.NewReader([]byte(body)))
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Fatalf("the shop answers %s to %s", resp.Status, body)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
