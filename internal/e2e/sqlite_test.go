package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/servertest"
)

const sqliteConfig = `
version: 1
data: %s
listen: %s
principals:
  - { name: operator, kind: human, roles: [developer, operator], listen: ["*"], token: env:TOKEN_OPERATOR }
  - { name: shop, kind: system, emit: ["order.*", "orders.*"], listen: ["order.placed"], roots: 100000/s, token: env:TOKEN_SHOP }
subscriptions:
  shop: { types: ["order.placed"], as: shop, from: beginning }
outbox:
  - { name: local, url: "sqlite:%s", principal: shop }
`

// sqliteWriter is a program in another language, with an SQLite library of its
// own, which knows nothing but SQL. Each order is a row of a watched table and
// an event.
const sqliteWriter = `
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
db.execute("PRAGMA foreign_keys = ON")
if sys.argv[2] == "make":
    db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)")
elif sys.argv[2] == "place":
    for n in range(int(sys.argv[3]), int(sys.argv[4])):
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO orders (id, state) VALUES (?, 'placed')", (n,))
        db.execute("INSERT INTO headgate_outbox (id, type, key, data) VALUES (?, 'order.placed', ?, ?)",
                   ("order-%d" % n, "k%d" % (n % 5), json.dumps({"n": n})))
        db.execute("ROLLBACK" if n % 10 == 9 else "COMMIT")
else:
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO headgate_cause (token) VALUES (?)", (sys.argv[4],))
    db.execute("UPDATE orders SET state = 'handled' WHERE id = ?", (int(sys.argv[3]),))
    db.execute("DELETE FROM headgate_cause")
    db.execute("COMMIT")
`

// A node relays the outbox of an SQLite file that a program in another language
// writes, and is killed meanwhile. Every committed event arrives once and in
// order per key, no other does, and a row change that reacts to an event is its
// child.
func TestSQLiteOutbox(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "shop.db")
	tokens := map[string]string{}
	for _, name := range []string{"operator", "shop"} {
		tokens[name] = "a-token-for-tests-of-" + name + "-0123456789"
		t.Setenv("TOKEN_"+strings.ToUpper(name), tokens[name])
	}
	call := func(ok bool, name string, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); (err == nil) != ok {
			t.Fatalf("%s %v: %v\n%s", name, args[:1], err, out.String())
		}
		return out.String()
	}
	write := func(args ...string) {
		t.Helper()
		call(true, "python3", append([]string{"-c", sqliteWriter, db}, args...)...)
	}
	write("make")
	call(true, binary, "outbox", "init", "--url", "sqlite:"+db)
	call(true, binary, "outbox", "watch", "orders", "--url", "sqlite:"+db)
	addr := freeAddr(t)
	config := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, sqliteConfig, filepath.Join(dir, "data"), addr, db), 0o600); err != nil {
		t.Fatal(err)
	}
	call(true, binary, "check", config)
	srv := servertest.Start(t, binary, addr, "serve", "--config", config)
	operator, shop := srv.Client(tokens["operator"]), srv.Client(tokens["shop"])
	for subject, schema := range map[string]string{
		"order.placed":    `{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`,
		"orders.inserted": `{"type":"object","required":["after"]}`, "orders.updated": `{"type":"object","required":["after"]}`,
	} {
		if _, _, err := operator.PutContract(t.Context(), subject, []byte(schema)); err != nil {
			t.Fatal(err)
		}
	}
	srv.Stop()
	write("place", "0", "100") // while no node runs
	srv.Restart()
	for n := 100; n < 300; n += 50 {
		write("place", fmt.Sprint(n), fmt.Sprint(n+50))
		srv.Kill()
		srv.Restart()
	}
	first := pullOrders(t, shop, 300)
	write("handle", fmt.Sprint(first.n), first.cause)
	awaitChild(t, operator, first.id, "orders.updated")
	status := call(true, binary, "outbox", "status", "--url", "sqlite:"+db, "--json")
	if !strings.Contains(status, `"active":true`) && !strings.Contains(status, `"active": true`) {
		t.Error(status)
	}
	call(true, binary, "outbox", "doctor", "--url", "sqlite:"+db)
	srv.Stop()
	if out := call(false, binary, "outbox", "doctor", "--url", "sqlite:"+db); !strings.Contains(out, "no relay reads this outbox") {
		t.Error(out)
	}
}

// order is one delivered order.
type order struct {
	id, cause string
	n         int
}

// pullOrders pulls until every committed order was delivered, each once and
// those of a key in order, and returns the first.
func pullOrders(t *testing.T, shop *client.Client, placed int) (first order) {
	t.Helper()
	seen, last := map[int]bool{}, map[string]int{}
	deadline := time.Now().Add(2 * time.Minute)
	for len(seen) < placed/10*9 {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d orders were delivered", len(seen), placed/10*9)
		}
		deliveries, err := shop.Pull(t.Context(), "shop", 50, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var settle []api.Settlement
		for _, d := range deliveries {
			var e struct {
				ID           string
				PartitionKey string
				Data         struct{ N int }
			}
			if err := json.Unmarshal(d.Event, &e); err != nil {
				t.Fatal(err)
			}
			n := e.Data.N
			before, some := last[e.PartitionKey]
			if seen[n] || n%10 == 9 || some && n < before {
				t.Errorf("order %d behind %d; seen %t", n, before, seen[n])
			}
			seen[n], last[e.PartitionKey] = true, n
			if first.id == "" {
				first = order{e.ID, d.Cause, n}
			}
			settle = append(settle, api.Settlement{Claim: d.Claim, Outcome: "ack"})
		}
		if len(settle) == 0 {
			continue
		}
		if _, err := shop.Settle(t.Context(), "shop", settle...); err != nil {
			t.Fatal(err)
		}
	}
	return first
}

// awaitChild waits until the tree of a root has a child of the type.
func awaitChild(t *testing.T, operator *client.Client, root, kind string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		tree, err := operator.Tree(t.Context(), root, 10, true)
		if err != nil {
			t.Fatal(err)
		}
		if tree.Root != nil {
			for _, c := range tree.Root.Children {
				if c.Type == kind {
					return
				}
			}
		}
		wait(t.Context(), 20*time.Millisecond)
	}
	t.Errorf("%s has no child of type %s", root, kind)
}
