package main

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fencehttp"
	"github.com/headgate/headgate/lease/fencetable"
	"github.com/headgate/headgate/node"
	"github.com/headgate/headgate/store/sqlitestore"
)

// crm is a service of the user's behind the middleware, with a seal endpoint
// and a memory that outlasts it.
type crm struct{ *httptest.Server }

func startCRM(t *testing.T, keys fencehttp.Keys, db *sql.DB) *crm {
	t.Helper()
	table := fencetable.Table{Dialect: fencetable.SQLite}
	if err := table.Create(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	cfg := fencehttp.Config{Audience: "crm.example", Keys: keys, Seen: fencehttp.SQLSeen{DB: db, Table: table}}
	guard, err := fencehttp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	seal, err := fencehttp.NewSeal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/seal", seal)
	mux.Handle("/work", guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })))
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/seal", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "secret of the service", http.StatusInternalServerError)
	})
	mux.HandleFunc("/nothing", http.NotFound)
	mux.HandleFunc("/newer", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", api.TypeProblem)
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = w.Write([]byte(`{"code":"stale_fence","detail":"secret of the service"}`))
	})
	c := &crm{Server: httptest.NewServer(mux)}
	t.Cleanup(c.Close)
	return c
}

func (c *crm) work(t *testing.T, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL+"/work", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(api.HeaderFence, token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestSealServices: an acquisition that seals a service returns once the
// service refuses older holders, although the new one has not been there; so
// does a revocation. What the service answers otherwise is a failed seal, of
// which nothing is repeated.
func TestSealServices(t *testing.T) {
	ctx := t.Context()
	st, err := sqlitestore.Open(ctx, sqlitestore.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	targets := map[string]lease.Target{}
	s, err := lease.Open(ctx, lease.Config{Store: st, Seal: targets})
	if err != nil {
		t.Fatal(err)
	}
	db, err := driver.Open("file:" + filepath.Join(t.TempDir(), "crm.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	service := startCRM(t, ownKeys{s}, db)
	for _, name := range []string{"seal", "moved", "broken", "nothing", "newer"} {
		target, done, err := sealHTTP(node.SealOptions{URL: service.URL + "/" + name, Audience: "crm.example"})
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		targets[name] = target
	}
	take := func(resource string, seal ...string) (lease.Grant, error) {
		g, err := s.Acquire(ctx, &headgate.Principal{Name: "w", Kind: headgate.KindAgent, Lease: []string{"*"}},
			lease.Request{Resources: []string{resource}, Seal: seal, TTL: 200 * time.Millisecond, Wait: 20 * time.Second})
		if err != nil {
			return lease.Grant{}, err
		}
		return g[0], nil
	}
	old, err := take("order/1", "seal")
	if err != nil {
		t.Fatal(err)
	}
	if got := service.work(t, old.Token); got != http.StatusOK {
		t.Errorf("the holder's request: %d", got)
	}
	fresh, err := take("order/1", "seal") // once the first one has run out
	if err != nil {
		t.Fatal(err)
	}
	if got := service.work(t, old.Token); got != http.StatusPreconditionFailed {
		t.Errorf("the superseded holder's request: %d", got)
	}
	if got := service.work(t, fresh.Token); got != http.StatusOK {
		t.Errorf("the new holder's request: %d", got)
	}
	got, err := s.Revoke(ctx, "order/1", lease.Revocation{Terminate: true})
	if err != nil || len(got.Untold) != 0 {
		t.Errorf("revoke: %+v, %v", got, err)
	}
	if got := service.work(t, fresh.Token); got != http.StatusPreconditionFailed {
		t.Errorf("the revoked holder's request: %d", got)
	}
	for _, name := range []string{"moved", "broken", "nothing", "newer"} {
		_, err := take("order/"+name, name)
		if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeSealFailed || strings.Contains(e.Detail, "secret") || e.Info().Outcome != headgate.NotApplied {
			t.Errorf("%s: %v", name, err)
		}
	}
	service.Close()
	if _, err := take("order/2", "seal"); headgate.CodeOf(err) != headgate.CodeSealFailed {
		t.Errorf("a service that is down: %v", err)
	}
}

// ownKeys are those of a service of this process.
type ownKeys struct{ s *lease.Service }

func (k ownKeys) Get(context.Context, string) (string, map[string]ed25519.PublicKey, error) {
	issuer, all := k.s.Keys()
	keys := map[string]ed25519.PublicKey{}
	for _, key := range all {
		keys[key.ID] = key.Key
	}
	return issuer, keys, nil
}

// TestSealTargetsAreWhatWasConfigured: only the host of the URL is reached, and
// addresses that hand out credentials only when they themselves are the URL's.
func TestSealTargetsAreWhatWasConfigured(t *testing.T) {
	for _, u := range []string{"https://user:secret@crm.example/seal", "https://crm.example/#x", "ftp://crm.example/", "https://", "https://crm.example:0/"} {
		if _, _, err := sealHTTP(node.SealOptions{URL: u, Audience: "crm"}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", u, err)
		}
	}
}
