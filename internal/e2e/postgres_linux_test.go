package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/servertest"
)

const postgresConfig = `
version: 1
data: %s
listen: %s
store: { driver: postgres, url: env:HEADGATE_DB }
principals:
  - { name: operator, kind: human, roles: [developer, operator], listen: ["*"], token: env:TOKEN_OPERATOR }
  - { name: shop, kind: system, emit: ["order.placed"], roots: 100000/s, token: env:TOKEN_SHOP }
  - { name: charger, kind: agent, emit: ["order.charged"], listen: ["order.placed"], token: env:TOKEN_CHARGER }
subscriptions:
  charger: { types: ["order.placed"], as: charger, from: beginning, claim: 2s, backoff: 10ms..100ms }
`

// A node whose state is in PostgreSQL is killed, and the database stops and
// crashes under it. Whoever publishes, pulls or settles meanwhile is told to
// come back, nothing that was acknowledged is missing, and each order is
// charged once.
func TestOutsidePostgresNode(t *testing.T) {
	db := pgtest.Start(t)
	dir := t.TempDir()
	addr := freeAddr(t)
	t.Setenv("HEADGATE_DB", db.URL())
	tokens := map[string]string{}
	for _, name := range []string{"operator", "shop", "charger"} {
		tokens[name] = "a-token-for-tests-of-" + name + "-0123456789"
		t.Setenv("TOKEN_"+strings.ToUpper(name), tokens[name])
	}
	config := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, postgresConfig, filepath.Join(dir, "data"), addr), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := servertest.Start(t, binary, addr, "serve", "--config", config)
	operator := srv.Client(tokens["operator"])
	for _, subject := range []string{"order.placed", "order.charged"} {
		if _, _, err := operator.PutContract(t.Context(), subject, []byte(noteContract)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := operator.Doctor(t.Context())
	if err != nil || d.Durability.Store != "postgres" || !strings.Contains(d.Durability.State, "PostgreSQL") {
		t.Fatalf("doctor says %+v, %v", d.Durability, err)
	}

	work, stop := context.WithCancel(t.Context())
	var agents sync.WaitGroup
	effects := &effectLog{seen: map[string]int{}}
	charger := srv.Client(tokens["charger"])
	agents.Go(func() { effects.run(work, charger, "charger", "order.charged") })
	defer agents.Wait()
	defer stop()

	const orders = 240
	disasters := map[int]func(){
		30:  func() { srv.Kill(); srv.Restart() },
		60:  func() { db.Crash(); awaitUnavailable(t, operator); db.Restart() },
		90:  func() { db.Stop(); awaitUnavailable(t, operator); db.Restart() },
		120: func() { srv.Kill(); db.Crash(); db.Restart(); srv.Restart() },
		150: func() { db.Crash(); db.Restart() },
		180: func() { srv.Stop(); srv.Restart() },
	}
	placeOrders(t, srv.Client(tokens["shop"]), orders, disasters)
	waitCharged(t, operator, orders)
	waitQuiet(t, operator)
	stop()
	agents.Wait()
	for n := range orders {
		if effects.seen[orderID(n)] == 0 {
			t.Errorf("%s was acknowledged and never delivered", orderID(n))
		}
	}
	if d, err := operator.Doctor(t.Context()); err != nil || !d.OK {
		t.Errorf("doctor: %+v, %v", d, err)
	}
}

func orderID(n int) string { return fmt.Sprintf("order-%03d", n) }

// placeOrders publishes until every order has been acknowledged, from four
// clients at once, with a disaster after so many of them.
func placeOrders(t *testing.T, shop *client.Client, orders int, disasters map[int]func()) {
	t.Helper()
	jobs, answered := make(chan int), make(chan struct{}, orders)
	var publishers sync.WaitGroup
	for range 4 {
		publishers.Go(func() {
			for n := range jobs {
				h := &webhook{id: orderID(n), subject: "order.placed", payload: fmt.Appendf(nil, `{"about":"order %d"}`, n)}
				if ok, err := publishUntilFinal(t.Context(), shop, h); !ok {
					t.Errorf("%s: %v", h.id, err)
				}
				answered <- struct{}{}
			}
		})
	}
	go func() {
		defer close(jobs)
		for n := range orders {
			select {
			case jobs <- n:
			case <-t.Context().Done():
				return
			}
		}
	}()
	for n := 1; n <= orders; n++ {
		<-answered
		if strike := disasters[n]; strike != nil {
			strike()
		}
	}
	publishers.Wait()
}

// awaitUnavailable waits until the node notices that its database is gone, and
// checks how it says so.
func awaitUnavailable(t *testing.T, c *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		_, err := c.Contracts(ctx, client.Page{})
		if err == nil {
			_, err = c.QuarantineGroups(ctx, client.QuarantineFilter{})
		}
		if e := headgate.AsError(err); e != nil {
			if e.Code != headgate.CodeUnavailable || e.Info().Retry != headgate.RetryLater {
				t.Errorf("without its database the node says %v", err)
			}
			return
		}
		if !wait(ctx, 10*time.Millisecond) {
			t.Error("the node does not notice that its database is gone")
			return
		}
	}
}

// waitCharged waits until the stream holds each order and one charge for it.
func waitCharged(t *testing.T, c *client.Client, orders int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		d, err := c.Doctor(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var stored uint64
		for _, s := range d.Streams {
			stored += s.Stored
		}
		if stored == uint64(2*orders) {
			return
		}
		if stored > uint64(2*orders) {
			t.Fatalf("%d events stored, want %d: something happened twice", stored, 2*orders)
		}
		if !wait(ctx, 50*time.Millisecond) {
			t.Fatalf("%d events stored, want %d", stored, 2*orders)
		}
	}
}
