package fencehttp_test

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fencehttp"
	"github.com/headgate/headgate/lease/fencetable"
)

func open(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := (fencetable.Table{Dialect: fencetable.SQLite}).Create(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

// crm is a service that changes something for who holds the lease.
func crm(t *testing.T, n *nodetest.Node, path string) *httptest.Server {
	t.Helper()
	wrap, err := fencehttp.New(fencehttp.Config{
		Audience: "crm", Keys: &fencehttp.RemoteKeys{URL: n.URL},
		Seen:     fencehttp.SQLSeen{DB: open(t, path), Table: fencetable.Table{Dialect: fencetable.SQLite}},
		Resource: func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := fencehttp.FromContext(r.Context())
		if !ok {
			t.Error("a request without a fence got through")
		}
		_, _ = w.Write([]byte(f.String()))
	})))
	t.Cleanup(s.Close)
	return s
}

func call(t *testing.T, s *httptest.Server, resource string, tokens ...string) (int, headgate.Code) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/"+resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range tokens {
		req.Header.Add(api.HeaderFence, token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var p api.Problem
	if resp.StatusCode != 200 {
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
			t.Fatal(err)
		}
		if p.Retryable == headgate.RetryLater && p.Code == headgate.CodeStaleFence {
			t.Error("a stale fence is called retryable")
		}
	}
	return resp.StatusCode, p.Code
}

func TestVerifier(t *testing.T) {
	n := nodetest.Start(t, nil)
	path := filepath.Join(t.TempDir(), "crm.db")
	s := crm(t, n, path)
	triage, admin := n.Client(t, "triage"), n.Client(t, "admin")
	first, err := triage.Acquire(t.Context(), "ticket/1", api.AcquireRequest{Audience: []string{"crm"}, TTLMS: 100})
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, status int, code headgate.Code, resource string, tokens ...string) {
		t.Helper()
		if st, c := call(t, s, resource, tokens...); st != status || c != code {
			t.Errorf("%s: %d %s, want %d %s", what, st, c, status, code)
		}
	}
	want("no token", 428, headgate.CodeFenceMissing, "ticket/1")
	want("garbage", 403, headgate.CodeFenceInvalid, "ticket/1", "hgl1.AAAA.AAAA")
	want("two tokens", 403, headgate.CodeFenceInvalid, "ticket/1", first.Token, first.Token)
	want("another resource", 403, headgate.CodeFenceForeign, "ticket/2", first.Token)
	want("holder", 200, "", "ticket/1", first.Token)
	want("holder again", 200, "", "ticket/1", first.Token)
	tampered := []byte(first.Token)
	tampered[len(tampered)-3] ^= 1
	want("tampered", 403, headgate.CodeFenceInvalid, "ticket/1", string(tampered))
	// The holder is paused, its lease runs out, another takes it.
	second, err := admin.Acquire(t.Context(), "ticket/1", api.AcquireRequest{Audience: []string{"crm"}, WaitMS: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	want("new holder", 200, "", "ticket/1", second.Token)
	want("old holder", 412, headgate.CodeStaleFence, "ticket/1", first.Token)
	// T13: what the verifier has seen survives it.
	s.Close()
	s = crm(t, n, path)
	want("old holder, after a restart", 412, headgate.CodeStaleFence, "ticket/1", first.Token)
	want("new holder, after a restart", 200, "", "ticket/1", second.Token)
	other, err := admin.Acquire(t.Context(), "ticket/9", api.AcquireRequest{Audience: []string{"erp"}})
	if err != nil {
		t.Fatal(err)
	}
	want("another target", 403, headgate.CodeFenceForeign, "ticket/9", other.Token)
}

// TestKeysOutOfReach: without keys nothing passes; with known ones the node
// may be away.
func TestKeysOutOfReach(t *testing.T) {
	n := nodetest.Start(t, nil)
	keys := &fencehttp.RemoteKeys{URL: n.URL, HTTP: &http.Client{Timeout: time.Second}}
	got, err := n.Client(t, "triage").Acquire(t.Context(), "ticket/1", api.AcquireRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, known, err := keys.Get(t.Context(), lease.KeyIDOf(got.Token)); err != nil || len(known) == 0 {
		t.Fatal(err)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, known, err := keys.Get(t.Context(), lease.KeyIDOf(got.Token)); err != nil || len(known) == 0 {
		t.Error(err)
	}
	away := &fencehttp.RemoteKeys{URL: n.URL, HTTP: &http.Client{Timeout: time.Second}}
	if _, _, err := away.Get(t.Context(), "x"); headgate.CodeOf(err) != headgate.CodeUnavailable {
		t.Error(err)
	}
}
