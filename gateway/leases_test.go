package gateway_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/lease"
)

func wantCode(t *testing.T, what string, err error, code headgate.Code) {
	t.Helper()
	if got := headgate.CodeOf(err); got != code {
		t.Errorf("%s: %v, want %q", what, err, code)
	}
}

// Pages of leases, and their cursors, hold what the caller may see and nothing
// else.
func TestLeasePagesNameNothingHidden(t *testing.T) {
	n := nodetest.Start(t, nil)
	ctx := t.Context()
	admin, triage, desk := n.Client(t, "admin"), n.Client(t, "triage"), n.Client(t, "desk")
	for _, resource := range []string{"secret/a", "secret/b", "ticket/1", "ticket/2", "zone/c"} {
		if _, err := admin.Acquire(ctx, resource, api.AcquireRequest{TTLMS: 60_000}); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := desk.Leases(ctx, "", false, client.Page{Limit: 1}); err != nil || len(l.Leases) != 0 || l.Next != "" {
		t.Errorf("without any right: %+v, %v", l, err)
	}
	first, err := triage.Leases(ctx, "", false, client.Page{Limit: 1})
	if err != nil || len(first.Leases) != 1 || first.Leases[0].Resource != "ticket/1" || first.Next != "ticket/1" {
		t.Fatalf("%+v, %v", first, err)
	}
	rest, err := triage.Leases(ctx, "", false, client.Page{Limit: 1, Cursor: first.Next})
	if err != nil || len(rest.Leases) != 1 || rest.Leases[0].Resource != "ticket/2" || rest.Next != "" {
		t.Errorf("%+v, %v", rest, err)
	}
	if all, err := admin.Leases(ctx, "", false, client.Page{}); err != nil || len(all.Leases) != 5 || all.Next != "" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestLeasesOverHTTP(t *testing.T) {
	n := nodetest.Start(t, nil)
	ctx := t.Context()
	triage, admin, desk, viewer := n.Client(t, "triage"), n.Client(t, "admin"), n.Client(t, "desk"), n.Client(t, "viewer")
	const resource = "ticket/42 ä/x"
	_, err := desk.Acquire(ctx, resource, api.AcquireRequest{})
	wantCode(t, "without the right", err, headgate.CodeForbidden)
	got, err := triage.Acquire(ctx, resource, api.AcquireRequest{TTLMS: 60_000, RequestID: "r1", Worker: "w7", Audience: []string{"crm"}})
	if err != nil {
		t.Fatal(err)
	}
	if got.Resource != resource || got.EpochText == "" || got.Epoch == 0 || got.ExpiresInMS < 59_000 || got.ExpiresInMS > 60_000 {
		t.Errorf("%+v", got)
	}
	again, err := triage.Acquire(ctx, resource, api.AcquireRequest{TTLMS: 60_000, RequestID: "r1", Worker: "w7", Audience: []string{"crm"}})
	if err != nil || again.Epoch != got.Epoch || !again.Again {
		t.Errorf("%+v, %v", again, err)
	}
	_, err = triage.Acquire(ctx, resource, api.AcquireRequest{TTLMS: 60_000, RequestID: "r1"})
	wantCode(t, "the id of another request", err, headgate.CodeConflict)
	_, err = admin.Acquire(ctx, "ticket/0", api.AcquireRequest{Also: []string{resource}, WaitMS: 10})
	wantCode(t, "held", err, headgate.CodeLeaseHeld)
	e := headgate.AsError(err)
	if e.RetryAfter <= 0 || e.Info().Retry != headgate.RetryLater || len(e.Held) != 1 || e.Held[0].Resource != resource ||
		e.Held[0].Holder != "triage" || e.Held[0].Worker != "w7" || e.Held[0].ExpiresIn < 50*time.Second {
		t.Errorf("%+v", e)
	}
	if r := api.NewRefusal(e); r.Holder != "triage" || r.RetryAfterMS < 50_000 || len(r.Held) != 1 {
		t.Errorf("%+v", r)
	}
	if st, err := viewer.Lease(ctx, resource); err != nil || !st.Held || st.Holder != "triage" || st.Worker != "w7" {
		t.Errorf("%+v, %v", st, err)
	}
	_, err = desk.Lease(ctx, resource)
	wantCode(t, "show without any right", err, headgate.CodeForbidden)
	if l, err := desk.Leases(ctx, "", true, client.Page{}); err != nil || len(l.Leases) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := viewer.Leases(ctx, "ticket/", true, client.Page{}); err != nil || len(l.Leases) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	if v, err := desk.VerifyFence(ctx, got.Token, "crm"); err != nil || v.Epoch != got.Epoch || v.Holder != "triage" {
		t.Errorf("%+v, %v", v, err)
	}
	renewed, err := triage.Renew(ctx, resource, api.LeaseRequest{Token: got.Token, TTLMS: 1000})
	if err != nil || renewed.Epoch != got.Epoch || renewed.ExpiresInMS > 1000 {
		t.Errorf("%+v, %v", renewed, err)
	}
	_, err = admin.Renew(ctx, resource, api.LeaseRequest{Token: got.Token})
	wantCode(t, "renewal by another", err, headgate.CodeFenceForeign)
	if err := triage.Release(ctx, resource, renewed.Token); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "release again", triage.Release(ctx, resource, renewed.Token), headgate.CodeLeaseLost)
	_, err = desk.VerifyFence(ctx, got.Token, "")
	wantCode(t, "verify after release", err, headgate.CodeStaleFence)
	if headgate.AsError(err).Info().Status != 412 || headgate.AsError(err).Info().Retry != headgate.RetryNever {
		t.Errorf("%+v", headgate.AsError(err).Info())
	}
}

func TestRevokeAndWatchOverHTTP(t *testing.T) {
	n := nodetest.Start(t, nil)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	triage, admin := n.Client(t, "triage"), n.Client(t, "admin")
	watch, err := triage.WatchLease(ctx, "ticket/1")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	next := func(want string, ok func(api.LeaseState) bool) {
		t.Helper()
		st, err := watch.Next()
		if err != nil || !ok(st) {
			t.Fatalf("%s: %+v, %v", want, st, err)
		}
	}
	next("never leased", func(s api.LeaseState) bool { return s.Epoch == 0 && !s.Held })
	got, err := triage.Acquire(ctx, "ticket/1", api.AcquireRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next("held", func(s api.LeaseState) bool { return s.Epoch == got.Epoch && s.Held })
	_, err = triage.Revoke(ctx, "ticket/1", api.RevokeRequest{})
	wantCode(t, "revoke without the role", err, headgate.CodeForbidden)
	done := make(chan api.Revoked, 1)
	go func() {
		out, err := admin.Revoke(ctx, "ticket/1", api.RevokeRequest{DeadlineMS: 60_000})
		if err != nil {
			t.Error(err)
		}
		done <- out
	}()
	next("closing", func(s api.LeaseState) bool { return s.Closing })
	_, err = triage.Renew(ctx, "ticket/1", api.LeaseRequest{Token: got.Token})
	wantCode(t, "renew while closing", err, headgate.CodeLeaseClosing)
	if err := triage.Release(ctx, "ticket/1", got.Token); err != nil {
		t.Fatal(err)
	}
	next("free", func(s api.LeaseState) bool { return !s.Held && s.Epoch > got.Epoch })
	if out := <-done; out.Killed || out.Epoch <= got.Epoch {
		t.Errorf("%+v", out)
	}
}

// TestKeysVerifyTokens: what the node publishes is enough to check a token.
func TestKeysVerifyTokens(t *testing.T) {
	n := nodetest.Start(t, nil)
	got, err := n.Client(t, "triage").Acquire(t.Context(), "ticket/1", api.AcquireRequest{Audience: []string{"crm"}})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := n.Client(t, "desk").FenceKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := lease.Verifier{Keys: map[string]ed25519.PublicKey{}, Issuer: keys.Issuer, Audience: "crm"}
	for _, k := range keys.Keys {
		if v.Keys[k.ID], err = base64.RawURLEncoding.DecodeString(k.X); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := v.Verify(got.Token); err != nil || f.Epoch != got.Epoch || f.Resource != "ticket/1" {
		t.Errorf("%+v, %v", f, err)
	}
	v.Audience = "erp"
	_, err = v.Verify(got.Token)
	wantCode(t, "another target", err, headgate.CodeFenceForeign)
}

// TestWaitingAcquireIsToldWhyItEnded: its principal was edited, and the caller
// is still there.
func TestWaitingAcquireIsToldWhyItEnded(t *testing.T) {
	n := nodetest.Start(t, nil)
	ctx := t.Context()
	admin := n.Client(t, "admin")
	added, err := admin.AddPrincipal(ctx, api.Principal{Name: "edited", Kind: headgate.KindAgent, Lease: []string{"ticket/1"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Tokens["edited"] = added.Token
	edited := n.Client(t, "edited")
	if _, err := admin.Acquire(ctx, "ticket/1", api.AcquireRequest{}); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := edited.Acquire(ctx, "ticket/1", api.AcquireRequest{WaitMS: 60_000})
		waited <- err
	}()
	for n.Leases.Waiting() == 0 {
		runtime.Gosched()
	}
	if _, err := admin.PutPrincipal(ctx, api.Principal{Name: "edited", Kind: headgate.KindAgent, Lease: []string{"ticket/2"}}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "the wait of an edited principal", <-waited, headgate.CodeForbidden)
}

// TestLeaseEdges: what names no resource is refused before it is sent, a body
// of another kind is told without a hole, and nothing is left of what ran out.
func TestLeaseEdges(t *testing.T) {
	n := nodetest.Start(t, nil)
	ctx := t.Context()
	admin := n.Client(t, "admin")
	for _, resource := range []string{"", ".", "..", "a/../b", "a//b", strings.Repeat("a", 257)} {
		_, err := admin.Lease(ctx, resource)
		wantCode(t, "show "+resource, err, headgate.CodeInvalidArgument)
		_, err = admin.Acquire(ctx, resource, api.AcquireRequest{})
		wantCode(t, "acquire "+resource, err, headgate.CodeInvalidArgument)
		_, err = admin.Renew(ctx, resource, api.LeaseRequest{Token: "t"})
		wantCode(t, "renew "+resource, err, headgate.CodeInvalidArgument)
		_, err = admin.Revoke(ctx, resource, api.RevokeRequest{})
		wantCode(t, "revoke "+resource, err, headgate.CodeInvalidArgument)
		wantCode(t, "release "+resource, admin.Release(ctx, resource, "t"), headgate.CodeInvalidArgument)
		_, err = admin.WatchLease(ctx, resource)
		wantCode(t, "watch "+resource, err, headgate.CodeInvalidArgument)
	}
	for body, kind := range map[string]string{"[]": "array", "7": "number", `"a"`: "string"} {
		a := ask(t, n, "admin", "POST", "/v1/leases/r/acquire", body, "Content-Type", "application/json")
		if a.status != 400 || !strings.Contains(string(a.body), "The body must be a JSON object, not "+kind) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if _, err := admin.Acquire(ctx, "r", api.AcquireRequest{TTLMS: 100}); err != nil {
		t.Fatal(err)
	}
	st, err := admin.Lease(ctx, "r")
	for err == nil && st.Held {
		st, err = admin.Lease(ctx, "r")
	}
	if err != nil || st.Holder != "admin" || st.ExpiresInMS != 0 {
		t.Errorf("%+v, %v", st, err)
	}
}
