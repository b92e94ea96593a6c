package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/servertest"
)

const leasesConfig = `
version: 1
data: %s
listen: %s
%s
principals:
  - { name: first, kind: agent, lease: ["*"], token: env:TOKEN_FIRST }
  - { name: second, kind: agent, lease: ["*"], token: env:TOKEN_SECOND }
`

// TestRequestIDsSurviveKills kills the node while it grants, and repeats each
// request whose answer was lost: it names the same grant, or conflict when that
// has ended, never another one. So it is also for what rows have forgotten.
func TestRequestIDsSurviveKills(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { requestIDsSurviveKills(t, "") })
	t.Run("postgres", func(t *testing.T) {
		t.Setenv("HEADGATE_DB", pgtest.Start(t).URL())
		requestIDsSurviveKills(t, "store: { driver: postgres, url: env:HEADGATE_DB }")
	})
}

// moment is when to kill: after the answer, or at any time before.
func moment(i int) <-chan time.Time {
	if i%2 == 0 {
		return nil
	}
	return time.After(time.Duration(rand.Int64N(int64(8 * time.Millisecond))))
}

func requestIDsSurviveKills(t *testing.T, store string) {
	dir, addr := t.TempDir(), freeAddr(t)
	tokens := map[string]string{}
	for _, name := range []string{"FIRST", "SECOND"} {
		tokens[name] = "a-token-for-tests-of-" + name + "-0123456789"
		t.Setenv("TOKEN_"+name, tokens[name])
	}
	config := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, leasesConfig, filepath.Join(dir, "data"), addr, store), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := servertest.Start(t, binary, addr, "serve", "--config", config)
	first, second := srv.Client(tokens["FIRST"]), srv.Client(tokens["SECOND"])
	take := func(c *client.Client, id, resource string, also ...string) (api.Lease, error) {
		return c.Acquire(t.Context(), resource, api.AcquireRequest{Also: also, RequestID: id, TTLMS: 600_000})
	}

	again := 0
	for i := range 4 {
		id, name, also := fmt.Sprint("request-", i), fmt.Sprint("ticket/", i), fmt.Sprint("order/", i)
		lost := make(chan struct{})
		go func() {
			defer close(lost)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			// Its answer is thrown away, if there is one.
			_, _ = first.Acquire(ctx, name, api.AcquireRequest{Also: []string{also}, RequestID: id, TTLMS: 600_000})
		}()
		select {
		case <-lost:
		case <-moment(i):
		}
		srv.Kill()
		<-lost
		srv.Restart()
		got, err := take(first, id, name, also)
		if err != nil || len(got.Also) != 1 || i%2 == 0 && !got.Again {
			t.Fatalf("%s repeated: %+v, %v", id, got, err)
		}
		if got.Again {
			again++
		}
		same, err := take(first, id, name, also)
		if err != nil || same.Epoch != got.Epoch || same.Also[0].Epoch != got.Also[0].Epoch || !same.Again {
			t.Errorf("%s once more: %+v, %v, want epoch %d", id, same, err, got.Epoch)
		}
		if _, err := take(first, id, name); headgate.CodeOf(err) != headgate.CodeConflict {
			t.Errorf("%s for another request: %v", id, err)
		}
		if _, err := first.Renew(t.Context(), name, api.LeaseRequest{Token: got.Token}); err != nil {
			t.Errorf("%s is not good: %v", id, err)
		}
		for _, l := range []api.Lease{got, got.Also[0]} {
			if err := first.Release(t.Context(), l.Resource, l.Token); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		if _, err := take(second, "", name, also); err != nil { // now the rows have forgotten
			t.Errorf("the next holder of %s: %v", name, err)
		}
	}
	if again < 2 {
		t.Errorf("%d of the requests had been granted before", again)
	}

	srv.Kill()
	srv.Restart()
	for i := range 4 {
		id := fmt.Sprint("request-", i)
		if _, err := take(first, id, fmt.Sprint("ticket/", i), fmt.Sprint("order/", i)); headgate.CodeOf(err) != headgate.CodeConflict {
			t.Errorf("%s after its grant ended: %v", id, err)
		}
		if _, err := take(first, id, "free/"+id); headgate.CodeOf(err) != headgate.CodeConflict {
			t.Errorf("%s for another resource: %v", id, err)
		}
		if _, err := take(second, id, "free/"+id); err != nil {
			t.Errorf("%s of another principal: %v", id, err)
		}
	}
}
