package principal_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/principal"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clock is a settable clock.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time          { return epoch.Add(time.Duration(c.at.Load())) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

func memory(t testing.TB) store.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func open(t testing.TB, s store.Store) (*principal.Directory, *clock) {
	t.Helper()
	c := &clock{}
	d, err := principal.Open(t.Context(), principal.Config{Store: s, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return d, c
}

func put(t testing.TB, d *principal.Directory, p headgate.Principal) {
	t.Helper()
	if err := d.Put(t.Context(), p, principal.ManagedAPI); err != nil {
		t.Fatal(err)
	}
}

func issue(t testing.TB, d *principal.Directory, name string, revoke bool, grace time.Duration) string {
	t.Helper()
	token, err := d.Issue(t.Context(), name, revoke, grace)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// who returns the name behind a token, "" if it is refused.
func who(t testing.TB, d *principal.Directory, token string) string {
	t.Helper()
	p, err := d.Authenticate(t.Context(), token)
	if err != nil {
		code(t, "Authenticate", err, headgate.CodeUnauthenticated)
		return ""
	}
	return p.Name
}

func code(t testing.TB, what string, err error, want headgate.Code) {
	t.Helper()
	if got := headgate.CodeOf(err); got != want {
		t.Errorf("%s: error %v has code %q, want %q", what, err, got, want)
	}
}

func agent(name string) headgate.Principal {
	return headgate.Principal{Name: name, Kind: headgate.KindAgent, Emit: []string{"ticket.*"}, Listen: []string{"*"}}
}

func admin(name string) headgate.Principal {
	return headgate.Principal{Name: name, Kind: headgate.KindHuman, Roles: []headgate.Role{headgate.RoleAdmin}}
}

func TestValidate(t *testing.T) {
	human := func(change func(*headgate.Principal)) headgate.Principal {
		p := headgate.Principal{Name: "ann", Kind: headgate.KindHuman}
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		p    headgate.Principal
		want string // part of the error; "" if valid
	}{
		"plain":              {human(func(*headgate.Principal) {}), ""},
		"longest name":       {human(func(p *headgate.Principal) { p.Name = strings.Repeat("a", 63) }), ""},
		"all characters":     {human(func(p *headgate.Principal) { p.Name = "0a.b_c-d" }), ""},
		"no name":            {human(func(p *headgate.Principal) { p.Name = "" }), "name:"},
		"name too long":      {human(func(p *headgate.Principal) { p.Name = strings.Repeat("a", 64) }), "name:"},
		"upper case":         {human(func(p *headgate.Principal) { p.Name = "Ann" }), "name:"},
		"begins with a dot":  {human(func(p *headgate.Principal) { p.Name = ".ann" }), "name:"},
		"NUL":                {human(func(p *headgate.Principal) { p.Name = "a\x00" }), "name:"},
		"not ASCII":          {human(func(p *headgate.Principal) { p.Name = "änn" }), "name:"},
		"path":               {human(func(p *headgate.Principal) { p.Name = "../x" }), "name:"},
		"no kind":            {human(func(p *headgate.Principal) { p.Kind = "" }), "kind:"},
		"unknown kind":       {human(func(p *headgate.Principal) { p.Kind = "robot" }), "kind:"},
		"unknown role":       {human(func(p *headgate.Principal) { p.Roles = []headgate.Role{"root"} }), "roles:"},
		"approver":           {human(func(p *headgate.Principal) { p.Roles = []headgate.Role{headgate.RoleApprover} }), ""},
		"system approver":    {headgate.Principal{Name: "s", Kind: headgate.KindSystem, Roles: []headgate.Role{headgate.RoleApprover}}, "approver"},
		"system admin":       {headgate.Principal{Name: "s", Kind: headgate.KindSystem, Roles: []headgate.Role{headgate.RoleAdmin}}, ""},
		"agent approver":     {headgate.Principal{Name: "a", Kind: headgate.KindAgent, Roles: []headgate.Role{headgate.RoleApprover}}, "approver"},
		"agent operator":     {headgate.Principal{Name: "a", Kind: headgate.KindAgent, Roles: []headgate.Role{headgate.RoleOperator}}, "operator"},
		"agent admin":        {headgate.Principal{Name: "a", Kind: headgate.KindAgent, Roles: []headgate.Role{headgate.RoleViewer, headgate.RoleAdmin}}, "admin"},
		"agent developer":    {headgate.Principal{Name: "a", Kind: headgate.KindAgent, Roles: []headgate.Role{headgate.RoleDeveloper}}, ""},
		"patterns":           {human(func(p *headgate.Principal) { p.Emit, p.Listen = []string{"a.*", "*"}, []string{"a.b"} }), ""},
		"bad emit pattern":   {human(func(p *headgate.Principal) { p.Emit = []string{"ok", "a*b"} }), "emit[1]"},
		"bad listen pattern": {human(func(p *headgate.Principal) { p.Listen = []string{""} }), "listen[0]"},
		"too many patterns":  {human(func(p *headgate.Principal) { p.Emit = make([]string, 1001) }), "emit: 1001"},
		"negative rate":      {human(func(p *headgate.Principal) { p.Roots.Rate = -1 }), "roots.rate"},
		"no number":          {human(func(p *headgate.Principal) { p.Roots.Rate = math.NaN() }), "roots.rate"},
		"endless rate":       {human(func(p *headgate.Principal) { p.Roots.Rate = math.Inf(1) }), "roots.rate"},
		"negative burst":     {human(func(p *headgate.Principal) { p.Roots.Burst = -1 }), "roots.burst"},
	} {
		err := principal.Validate(c.p)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v does not name %q", name, err, c.want)
		case c.want != "":
			code(t, name, err, headgate.CodeInvalidArgument)
		}
	}
	all := principal.Validate(headgate.Principal{Roles: []headgate.Role{"x"}, Emit: slices.Repeat([]string{"!"}, 500)})
	for _, want := range []string{"name:", "kind:", "roles:", "emit[0]", "more"} {
		if !strings.Contains(all.Error(), want) {
			t.Errorf("%v does not name %q", all, want)
		}
	}
	if n := len(all.Error()); n > 2000 {
		t.Errorf("the error has %d bytes", n)
	}
}

func TestTokens(t *testing.T) {
	s := memory(t)
	d, _ := open(t, s)
	put(t, d, agent("triage"))
	put(t, d, agent("helper"))
	token := issue(t, d, "triage", false, 0)
	parts := strings.SplitN(token, "_", 3)
	if len(parts) != 3 || parts[0] != "hg" || len(parts[1]) < 8 || len(parts[2]) < 27 {
		t.Errorf("token %q is not hg_ID_SECRET", token)
	}
	second := issue(t, d, "triage", false, 0)
	other := issue(t, d, "helper", false, 0)
	for tok, want := range map[string]string{token: "triage", second: "triage", other: "helper"} {
		if got := who(t, d, tok); got != want {
			t.Errorf("token of %s belongs to %q", want, got)
		}
	}
	again, _ := open(t, s)
	if who(t, again, token) != "triage" || who(t, again, other) != "helper" {
		t.Error("tokens are lost when the directory is opened again")
	}
	_, err := d.Issue(t.Context(), "nobody", false, 0)
	code(t, "token of nobody", err, headgate.CodeNotFound)
	_, err = d.Issue(t.Context(), "triage", true, -1)
	code(t, "negative grace", err, headgate.CodeInvalidArgument)
}

func TestHostileTokens(t *testing.T) {
	d, _ := open(t, memory(t))
	put(t, d, agent("triage"))
	token := issue(t, d, "triage", false, 0)
	adopted := "abcdefghijklmnopqrstuvwxyz"
	if err := d.Adopt(t.Context(), "triage", adopted); err != nil {
		t.Fatal(err)
	}
	id := strings.Split(token, "_")[1]
	hostile := []string{
		"", " ", "_", "__", "hg", "hg_", "hg__", "hg___", "hg_" + id, "hg_" + id + "_", token + " ", " " + token, token + "\x00", token + "\n",
		token[:len(token)-1], token + "A", "HG" + token[2:], strings.ToUpper(token), strings.Replace(token, "_", "\x00", 1),
		"Bearer " + token, "hg_" + id + "_" + strings.Repeat("A", 43), "hg_" + strings.Repeat("a", 16) + "_" + strings.SplitN(token, "_", 3)[2],
		adopted[:25], adopted + "z", "id" + adopted, strings.Repeat("A", 1<<20), token + strings.Repeat("_", 1<<20), "日本語", "\xff\xfe", "hg_\x00_\x00",
		"hg_adopted-" + id + "_x",
	}
	for _, h := range hostile {
		if got := who(t, d, h); got != "" {
			t.Errorf("%.40q is taken for %s", h, got)
		}
	}
	// One changed character anywhere is a refusal.
	for _, good := range []string{token, adopted} {
		for i := range len(good) {
			b := []byte(good)
			b[i] ^= 1
			if got := who(t, d, string(b)); got != "" {
				t.Errorf("%q with a changed character %d is taken for %s", good, i, got)
			}
		}
	}
	_, first := d.Authenticate(t.Context(), "")
	for _, h := range hostile {
		if _, err := d.Authenticate(t.Context(), h); err == nil || err.Error() != first.Error() {
			t.Errorf("%.40q gives an error of its own: %v", h, err)
		}
	}
}

// TestUnknownIDLooksLikeWrongSecret compares what can be compared without a
// clock: the work that is done for the two is the same, allocation by
// allocation. The hashes and comparisons stand before the first branch.
func TestUnknownIDLooksLikeWrongSecret(t *testing.T) {
	d, _ := open(t, memory(t))
	put(t, d, agent("triage"))
	token := issue(t, d, "triage", false, 0)
	wrong := token[:len(token)-4] + "AAAA"
	unknown := "hg_" + strings.Repeat("q", 16) + wrong[19:]
	work := func(token string) float64 {
		return testing.AllocsPerRun(200, func() { _, _ = d.Authenticate(context.Background(), token) })
	}
	if a, b := work(wrong), work(unknown); a != b {
		t.Errorf("a wrong secret takes %v allocations, an unknown id %v", a, b)
	}
}

func TestRotation(t *testing.T) {
	s := memory(t)
	d, c := open(t, s)
	put(t, d, agent("triage"))
	put(t, d, agent("helper"))
	adopted, bystander := "operator.chosen-token+0123", issue(t, d, "helper", false, 0)
	if err := d.Adopt(t.Context(), "triage", adopted); err != nil {
		t.Fatal(err)
	}
	first := issue(t, d, "triage", false, 0)
	second := issue(t, d, "triage", true, time.Hour)
	expect := func(what string, want ...bool) {
		t.Helper()
		reopened, rc := open(t, s)
		rc.at.Store(c.at.Load())
		for i, tok := range []string{adopted, first, second} {
			if got := who(t, d, tok) != ""; got != want[i] {
				t.Errorf("%s: token %d is valid: %v, want %v", what, i, got, want[i])
			}
			if got := who(t, reopened, tok) != ""; got != want[i] {
				t.Errorf("%s, reopened: token %d is valid: %v, want %v", what, i, got, want[i])
			}
		}
		if who(t, d, bystander) != "helper" {
			t.Errorf("%s: another principal's token ended", what)
		}
	}
	expect("within the grace", true, true, true)
	c.advance(time.Hour - 1)
	expect("at the end of the grace", true, true, true)
	c.advance(1)
	expect("after the grace", false, false, true)
	code(t, "adopting a revoked token", d.Adopt(t.Context(), "triage", adopted), headgate.CodeConflict)

	third := issue(t, d, "triage", true, time.Hour) // ends second in an hour
	c.advance(30 * time.Minute)
	issue(t, d, "triage", true, 10*time.Hour) // must not give second more time
	c.advance(30 * time.Minute)
	expect("after a shorter grace", false, false, false)
	if who(t, d, third) == "" {
		t.Error("a longer grace was cut")
	}
	issue(t, d, "triage", true, 0)
	if who(t, d, third) != "" {
		t.Error("a token outlived a rotation without grace")
	}
	tokens, err := d.Tokens(t.Context(), "triage")
	if err != nil || len(tokens) != 2 { // the newest, and the mark of the adopted one
		t.Errorf("tokens are kept for ever: %d, %v", len(tokens), err)
	}
	for _, tok := range tokens {
		if tok.Hash != nil {
			t.Error("Tokens gives hashes away")
		}
	}
}

func TestRevoke(t *testing.T) {
	d, _ := open(t, memory(t))
	put(t, d, agent("triage"))
	put(t, d, agent("helper"))
	keep, end := issue(t, d, "triage", false, 0), issue(t, d, "triage", false, 0)
	adopted := "abcdefghijklmnopqrstuvwxyz"
	if err := d.Adopt(t.Context(), "triage", adopted); err != nil {
		t.Fatal(err)
	}
	id := strings.Split(end, "_")[1]
	code(t, "of another", d.Revoke(t.Context(), "helper", id), headgate.CodeNotFound)
	if err := d.Revoke(t.Context(), "triage", id); err != nil {
		t.Fatal(err)
	}
	code(t, "twice", d.Revoke(t.Context(), "triage", id), headgate.CodeNotFound)
	if who(t, d, end) != "" || who(t, d, keep) != "triage" {
		t.Error("Revoke ended the wrong token")
	}
	tokens, err := d.Tokens(t.Context(), "triage")
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range tokens {
		if strings.HasPrefix(tok.ID, "adopted-") {
			if err := d.Revoke(t.Context(), "triage", tok.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if who(t, d, adopted) != "" {
		t.Error("a revoked adopted token is valid")
	}
	code(t, "adopting a revoked token", d.Adopt(t.Context(), "triage", adopted), headgate.CodeConflict)
}

func TestAdopt(t *testing.T) {
	s := memory(t)
	d, _ := open(t, s)
	put(t, d, agent("triage"))
	put(t, d, agent("helper"))
	for _, good := range []string{"0123456789abcdefghijkl", "c2VjcmV0LXRoYXQtaXMtbG9uZw==", "hg_looks_likeoneofthenodes", strings.Repeat("abcde", 100)} {
		for range 2 {
			if err := d.Adopt(t.Context(), "triage", good); err != nil {
				t.Errorf("%.30q: %v", good, err)
			}
		}
		if who(t, d, good) != "triage" {
			t.Errorf("%.30q is not valid", good)
		}
		code(t, "for another", d.Adopt(t.Context(), "helper", good), headgate.CodeConflict)
	}
	again, _ := open(t, s)
	if who(t, again, "hg_looks_likeoneofthenodes") != "triage" {
		t.Error("an adopted token is lost when the directory is opened again")
	}
	for _, bad := range []string{"", "0123456789abcdefghijk", strings.Repeat("a", 40), strings.Repeat("abcde", 103), "0123456789abcdefghij l", "0123456789abcdefghijé", "=====================0123", "0123456789abcdefghij\x00kl"} {
		err := d.Adopt(t.Context(), "triage", bad)
		code(t, fmt.Sprintf("%.30q", bad), err, headgate.CodeInvalidArgument)
		if len(bad) > 0 && err != nil && strings.Contains(err.Error(), bad) {
			t.Errorf("the error gives the token away: %v", err)
		}
	}
	code(t, "for nobody", d.Adopt(t.Context(), "nobody", "0123456789abcdefghijklm"), headgate.CodeNotFound)
	issued := issue(t, d, "triage", false, 0)
	code(t, "an issued token", d.Adopt(t.Context(), "helper", issued), headgate.CodeConflict)
}

func TestNoSecretIsStored(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Path: filepath.Join(dir, "state.db")})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := open(t, s)
	put(t, d, agent("triage"))
	issued, adopted := issue(t, d, "triage", false, 0), "operator-chosen-token-0123"
	if err := d.Adopt(t.Context(), "triage", adopted); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{strings.SplitN(issued, "_", 3)[2], adopted} {
		if bytes.Contains(raw, []byte(secret)) {
			t.Error("the database holds a secret")
		}
	}
	if !bytes.Contains(raw, []byte(strings.Split(issued, "_")[1])) {
		t.Error("the database does not hold the id, so the test looks in the wrong place")
	}
}

func TestLastAdmin(t *testing.T) {
	d, _ := open(t, memory(t))
	put(t, d, agent("triage"))
	put(t, d, admin("ann"))
	demoted := headgate.Principal{Name: "ann", Kind: headgate.KindHuman}
	refused := func(what string) {
		t.Helper()
		code(t, what+": disable", d.Disable(t.Context(), "ann"), headgate.CodeConflict)
		code(t, what+": delete", d.Delete(t.Context(), "ann"), headgate.CodeConflict)
		code(t, what+": demote", d.Put(t.Context(), demoted, principal.ManagedAPI), headgate.CodeConflict)
	}
	refused("alone")
	put(t, d, admin("bob"))
	if err := d.Disable(t.Context(), "bob"); err != nil {
		t.Fatal(err)
	}
	refused("beside a disabled admin")
	if err := d.Enable(t.Context(), "bob"); err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(t.Context(), "ann"); err != nil {
		t.Error(err)
	}
	code(t, "the one that is left", d.Delete(t.Context(), "bob"), headgate.CodeConflict)
	if err := d.Delete(t.Context(), "triage"); err != nil {
		t.Error(err)
	}
}

// TestConfigurationMovesAdmin: a configuration names its principals one after
// the other, the new admin perhaps behind the old one.
func TestConfigurationMovesAdmin(t *testing.T) {
	d, _ := open(t, memory(t))
	for _, p := range []headgate.Principal{admin("ann"), {Name: "ann", Kind: headgate.KindHuman}, admin("bob")} {
		if err := d.Put(t.Context(), p, principal.ManagedConfig); err != nil {
			t.Fatal(err)
		}
	}
	code(t, "disabling a configured last admin", d.Disable(t.Context(), "bob"), headgate.CodeConflict)
}

func TestOwnership(t *testing.T) {
	d, c := open(t, memory(t))
	put(t, d, agent("triage"))
	created, _ := d.Get(t.Context(), "triage")
	c.advance(time.Hour)
	if err := d.Put(t.Context(), agent("triage"), principal.ManagedConfig); err != nil {
		t.Fatal(err)
	}
	got, _ := d.Get(t.Context(), "triage")
	if got.Managed != principal.ManagedConfig || !got.Created.Equal(created.Created) {
		t.Errorf("taken over: %+v", got)
	}
	code(t, "API over configuration", d.Put(t.Context(), agent("triage"), principal.ManagedAPI), headgate.CodeConflict)
	code(t, "unknown owner", d.Put(t.Context(), agent("x"), "me"), headgate.CodeInvalidArgument)
	token := issue(t, d, "triage", false, 0)
	if err := d.Disable(t.Context(), "triage"); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(t.Context(), agent("triage"), principal.ManagedConfig); err != nil { // the next start
		t.Fatal(err)
	}
	if who(t, d, token) != "" {
		t.Error("a start enabled what an operator disabled")
	}
	if err := d.Enable(t.Context(), "triage"); err != nil {
		t.Fatal(err)
	}
	if who(t, d, token) != "triage" {
		t.Error("Enable did not enable")
	}
}

func TestCallersCannotChangeRecords(t *testing.T) {
	d, _ := open(t, memory(t))
	p := agent("triage")
	put(t, d, p)
	p.Emit[0] = "*"
	got, err := d.Get(t.Context(), "triage")
	if err != nil || got.Emit[0] != "ticket.*" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRolesOfStoredRecords(t *testing.T) {
	s := memory(t)
	bad := store.Principal{Principal: agent("rogue")}
	bad.Roles = []headgate.Role{headgate.RoleAdmin, headgate.RoleViewer, headgate.RoleApprover, headgate.RoleOperator}
	if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Principals.Put(ctx, bad) }); err != nil {
		t.Fatal(err)
	}
	d, _ := open(t, s)
	p, err := d.Get(t.Context(), "rogue")
	if err != nil || !slices.Equal(p.Roles, []headgate.Role{headgate.RoleViewer}) {
		t.Errorf("a stored agent has roles %v, %v", p.Roles, err)
	}
}

func TestGetAndList(t *testing.T) {
	d, _ := open(t, memory(t))
	for _, name := range []string{"b", "a", "c"} {
		put(t, d, agent(name))
	}
	all, err := d.List(t.Context())
	if err != nil || len(all) != 3 || all[0].Name != "a" || all[2].Name != "c" {
		t.Errorf("List: %+v, %v", all, err)
	}
	for what, err := range map[string]error{
		"Get":     func() error { _, err := d.Get(t.Context(), "x"); return err }(),
		"Disable": d.Disable(t.Context(), "x"), "Enable": d.Enable(t.Context(), "x"), "Delete": d.Delete(t.Context(), "x"),
	} {
		code(t, what, err, headgate.CodeNotFound)
	}
}

// TestDisableIsImmediate: from the moment that Disable returned nobody gets
// in, while everything else changes around it.
func TestDisableIsImmediate(t *testing.T) {
	d, _ := open(t, memory(t))
	put(t, d, agent("triage"))
	put(t, d, agent("noise"))
	token := issue(t, d, "triage", false, 0)
	var stop atomic.Bool
	var changers, readers sync.WaitGroup
	for range 2 {
		changers.Go(func() {
			for !stop.Load() { // revoking, or tokens would heap up
				if _, err := d.Issue(t.Context(), "noise", true, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var allowed, disabled atomic.Bool
	allowed.Store(true)
	for range 4 {
		readers.Go(func() {
			for !stop.Load() {
				off, on := disabled.Load(), allowed.Load()
				in := who(t, d, token) != ""
				if in && off && disabled.Load() {
					t.Error("a disabled principal got in")
				}
				if !in && on && allowed.Load() {
					t.Error("an enabled principal was refused")
				}
			}
		})
	}
	for range 20 {
		allowed.Store(false)
		if err := d.Disable(t.Context(), "triage"); err != nil {
			t.Error(err)
		}
		disabled.Store(true)
		if who(t, d, token) != "" {
			t.Error("a disabled principal got in")
		}
		disabled.Store(false)
		if err := d.Enable(t.Context(), "triage"); err != nil {
			t.Error(err)
		}
		allowed.Store(true)
		if who(t, d, token) == "" {
			t.Error("an enabled principal was refused")
		}
	}
	stop.Store(true)
	changers.Wait()
	readers.Wait()
}

// flaky fails writes and reads on demand.
type flaky struct {
	store.Store
	update func(apply func() error) error
	view   error
}

func (f *flaky) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	apply := func() error { return f.Store.Update(ctx, fn) }
	if f.update == nil {
		return apply()
	}
	return f.update(apply)
}

func (f *flaky) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	if f.view != nil {
		return f.view
	}
	return f.Store.View(ctx, fn)
}

func TestFailingStore(t *testing.T) {
	lost := headgate.NewError(headgate.CodeUnknownOutcome, "lost")
	full := headgate.NewError(headgate.CodeDiskFull, "full")
	setup := func(t *testing.T) (*principal.Directory, *flaky, string) {
		f := &flaky{Store: memory(t)}
		d, _ := open(t, f)
		put(t, d, agent("triage"))
		return d, f, issue(t, d, "triage", false, 0)
	}
	t.Run("not applied", func(t *testing.T) {
		d, f, token := setup(t)
		f.update = func(func() error) error { return full }
		code(t, "Disable", d.Disable(t.Context(), "triage"), headgate.CodeDiskFull)
		if _, err := d.Issue(t.Context(), "triage", true, 0); headgate.CodeOf(err) != headgate.CodeDiskFull {
			t.Errorf("Issue: %v", err)
		}
		if who(t, d, token) != "triage" {
			t.Error("a change that was not applied took effect")
		}
	})
	t.Run("applied, answer lost", func(t *testing.T) {
		d, f, token := setup(t)
		f.update = func(apply func() error) error { _ = apply(); return lost }
		code(t, "Disable", d.Disable(t.Context(), "triage"), headgate.CodeUnknownOutcome)
		if who(t, d, token) != "" {
			t.Error("the directory does not know what the store knows")
		}
	})
	t.Run("lost", func(t *testing.T) {
		d, f, token := setup(t)
		f.update = func(func() error) error { return lost }
		code(t, "Disable", d.Disable(t.Context(), "triage"), headgate.CodeUnknownOutcome)
		if who(t, d, token) != "triage" {
			t.Error("the directory does not know what the store knows")
		}
	})
	t.Run("lost, and the store cannot be read", func(t *testing.T) {
		d, f, token := setup(t)
		put(t, d, agent("helper"))
		other := issue(t, d, "helper", false, 0)
		f.update, f.view = func(func() error) error { return lost }, full
		code(t, "Disable", d.Disable(t.Context(), "triage"), headgate.CodeUnknownOutcome)
		if who(t, d, token) != "" {
			t.Error("a principal that may be disabled got in")
		}
		if who(t, d, other) != "helper" {
			t.Error("a principal that is not concerned was refused")
		}
		f.view = nil
		if err := d.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if who(t, d, token) != "triage" {
			t.Error("Reload did not reload")
		}
	})
}

type constant byte

func (c constant) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c)
	}
	return len(p), nil
}

func TestRepeatingRandomness(t *testing.T) {
	d, err := principal.Open(t.Context(), principal.Config{Store: memory(t), Random: constant(7)})
	if err != nil {
		t.Fatal(err)
	}
	put(t, d, agent("a"))
	put(t, d, agent("b"))
	token := issue(t, d, "a", false, 0)
	if _, err := d.Issue(t.Context(), "b", false, 0); err == nil {
		t.Error("an id was given twice")
	}
	if who(t, d, token) != "a" {
		t.Error("a token changed its principal")
	}
}

func TestOpenNeedsAStore(t *testing.T) {
	_, err := principal.Open(t.Context(), principal.Config{})
	code(t, "Open", err, headgate.CodeInvalidConfig)
}

func FuzzAuthenticate(f *testing.F) {
	for _, seed := range []string{"", "hg_a_b", "hg__", "_", "hg_adopted-0_x", "\x00", strings.Repeat("x", 600)} {
		f.Add(seed)
	}
	d, _ := open(f, memory(f))
	put(f, d, agent("triage"))
	issue(f, d, "triage", false, 0)
	f.Fuzz(func(t *testing.T, token string) {
		if got := who(t, d, token); got != "" {
			t.Errorf("%q is taken for %s", token, got)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	d, _ := open(b, memory(b))
	for i := range 1000 {
		put(b, d, agent(fmt.Sprint("a", i)))
	}
	token := issue(b, d, "a500", false, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Authenticate(b.Context(), token); err != nil {
			b.Fatal(err)
		}
	}
}

// Who leaves the configuration loses its access, also the last admin; who was
// made through the API, and who is still declared, keeps it.
func TestUndeclare(t *testing.T) {
	s := memory(t)
	d, _ := open(t, s)
	tokens := map[string]string{}
	for name, managed := range map[string]string{"stays": principal.ManagedConfig, "leaves": principal.ManagedConfig, "boss": principal.ManagedConfig, "guest": principal.ManagedAPI} {
		p := agent(name)
		if name == "boss" {
			p.Kind, p.Roles = headgate.KindHuman, []headgate.Role{headgate.RoleAdmin}
		}
		if err := d.Put(t.Context(), p, managed); err != nil {
			t.Fatal(err)
		}
		token, err := d.Issue(t.Context(), name, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = token
	}
	removed, err := d.Undeclare(t.Context(), []string{"stays", "new"})
	if err != nil || !slices.Equal(removed, []string{"boss", "leaves"}) {
		t.Fatalf("removed %q, %v", removed, err)
	}
	again, _ := open(t, s)
	for _, d := range []*principal.Directory{d, again} {
		for name, kept := range map[string]bool{"stays": true, "leaves": false, "boss": false, "guest": true} {
			if _, err := d.Authenticate(t.Context(), tokens[name]); (err == nil) != kept {
				t.Errorf("%s: %v, want kept %v", name, err, kept)
			}
		}
	}
}
