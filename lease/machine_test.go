package lease

import (
	"crypto/ed25519"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
)

// machine is the lease table, tokens and a verifier of another service, beside
// a model of what they must say. Times are those of the store's clock, which
// jumps either way; nodes restart and forget what they have seen.
type machine struct {
	*rig
	leases map[string]*modelLease
	tokens []modelToken // all that were ever given
	// verified is the highest epoch that the other service let write, by
	// resource: what it keeps beside its data.
	verified map[string]int64
	// asked are the request ids that were granted, also in earlier lives.
	asked map[string]bool
}

// modelLease is what the table must hold for a resource.
type modelLease struct {
	epoch   int64 // highest ever given
	holder  string
	expires time.Time
	ttl     time.Duration
	closing bool
	request string
}

type modelToken struct {
	resource, holder, text string
	epoch                  int64
}

var (
	machineHolders   = []string{"a", "b"}
	machineResources = []string{"r/1", "r/2"}
)

func newMachine(t *rapid.T) *machine {
	m := &machine{rig: newRigOver(t), leases: map[string]*modelLease{}, verified: map[string]int64{}, asked: map[string]bool{}}
	for _, r := range machineResources {
		m.leases[r] = &modelLease{}
	}
	return m
}

func (m *machine) free(l *modelLease) bool { return l.holder == "" || !l.expires.After(m.st.now) }

// corrected is the end of a lease as whoever asks for it corrects it: never
// further off than its TTL, for then the clock went back.
func (m *machine) corrected(l *modelLease) {
	if most := m.st.now.Add(l.ttl); l.holder != "" && l.expires.After(most) {
		l.expires = most
	}
}

func (m *machine) acquire(t *rapid.T) {
	who := rapid.SampledFrom(machineHolders).Draw(t, "holder")
	resource := rapid.SampledFrom(machineResources).Draw(t, "resource")
	id := rapid.SampledFrom([]string{"", "", "q1", "q2"}).Draw(t, "request id")
	const ttl = 10 * time.Second
	l := m.leases[resource]
	g, err := m.Acquire(t.Context(), worker(who), Request{Resources: []string{resource}, TTL: ttl, RequestID: id})
	if id != "" && l.request == who+id {
		if l.holder == "" || l.closing || m.free(l) {
			want := headgate.CodeConflict
			if headgate.CodeOf(err) != want {
				t.Fatalf("a request id that has ended: %v", err)
			}
		} else if err != nil || g[0].Epoch != l.epoch || !g[0].Again {
			t.Fatalf("a request id repeated: %+v, %v, want epoch %d", g, err, l.epoch)
		}
		return
	}
	if id != "" && m.asked[who+id] {
		m.must(t, "a request id of what has ended", err, headgate.CodeConflict)
		return
	}
	if !m.free(l) {
		if headgate.CodeOf(err) != headgate.CodeLeaseHeld {
			t.Fatalf("%s acquires what %s holds: %v", who, l.holder, err)
		}
		m.corrected(l)
		return
	}
	if err != nil {
		t.Fatalf("what nobody holds: %v", err)
	}
	if g[0].Epoch <= l.epoch { // T14, T16: also for the same holder, also after restarts
		t.Fatalf("epoch %d was given after %d", g[0].Epoch, l.epoch)
	}
	if l.request != "" {
		m.asked[l.request] = true
	}
	if id != "" {
		m.asked[who+id] = true
	}
	*l = modelLease{epoch: g[0].Epoch, holder: who, expires: m.st.now.Add(ttl), ttl: ttl}
	if id != "" {
		l.request = who + id
	}
	m.tokens = append(m.tokens, modelToken{resource, who, g[0].Token, g[0].Epoch})
}

// token draws one of the tokens that were given, however long ago.
func (m *machine) token(t *rapid.T) (modelToken, *modelLease, bool) {
	if len(m.tokens) == 0 {
		t.Skip("no token yet")
	}
	k := m.tokens[max(0, len(m.tokens)-1-rapid.IntRange(0, 5).Draw(t, "age"))]
	l := m.leases[k.resource]
	return k, l, l.holder != "" && l.epoch == k.epoch
}

func (m *machine) renew(t *rapid.T) {
	k, l, current := m.token(t)
	n, err := m.Renew(t.Context(), worker(k.holder), "", k.text, 0)
	switch {
	case !current:
		m.must(t, "renewal of what was superseded", err, headgate.CodeLeaseLost)
	case l.closing:
		m.must(t, "renewal while the gate is closed", err, headgate.CodeLeaseClosing)
	default:
		m.must(t, "renewal", err, "")
		if n.Epoch != k.epoch || n.ExpiresIn != l.ttl || n.Late != m.free(l) {
			t.Fatalf("renewed as %+v, the model has %+v at %s", n, l, m.st.now)
		}
		l.expires = m.st.now.Add(l.ttl)
		m.tokens = append(m.tokens, modelToken{k.resource, k.holder, n.Token, n.Epoch})
	}
}

func (m *machine) release(t *rapid.T) {
	k, l, current := m.token(t)
	err := m.Release(t.Context(), worker(k.holder), "", k.text)
	if !current {
		m.must(t, "release of what was superseded", err, headgate.CodeLeaseLost)
		return
	}
	m.must(t, "release", err, "")
	m.ended(t, k.resource, l)
}

// ended: the epoch is above that of the grant, and nobody holds it.
func (m *machine) ended(t *rapid.T, resource string, l *modelLease) {
	st, err := m.Get(t.Context(), resource)
	if err != nil || st.Holder != "" || st.Epoch <= l.epoch {
		t.Fatalf("after its end: %+v, %v", st, err)
	}
	*l = modelLease{epoch: st.Epoch, request: l.request}
}

func (m *machine) revoke(t *rapid.T) {
	resource := rapid.SampledFrom(machineResources).Draw(t, "resource")
	l := m.leases[resource]
	got, err := m.Revoke(t.Context(), resource, Revocation{Terminate: true})
	if l.holder == "" {
		m.must(t, "revocation of what nobody holds", err, headgate.CodeNotFound)
		return
	}
	m.must(t, "revocation", err, "")
	if !got.Killed || got.Epoch <= l.epoch {
		t.Fatalf("revoked as %+v at epoch %d", got, l.epoch)
	}
	m.ended(t, resource, l)
}

func (m *machine) shutGate(t *rapid.T) {
	resource := rapid.SampledFrom(machineResources).Draw(t, "resource")
	l := m.leases[resource]
	_, _, leave, err := m.shut(t.Context(), resource)
	leave()
	if l.holder == "" {
		m.must(t, "closing what nobody holds", err, headgate.CodeNotFound)
	} else {
		m.must(t, "closing", err, "")
		l.closing = true
	}
}

// writeUnder: the guard, the negative memory and the other service agree with
// the model about one token.
func (m *machine) writeUnder(t *rapid.T) {
	k, l, current := m.token(t)
	f, err := m.Read(t.Context(), k.text, "")
	if err != nil {
		t.Fatal(err)
	}
	if known := m.Superseded(&f); known != nil && current {
		t.Fatalf("the current grant is remembered as superseded: %v", known)
	}
	var code headgate.Code
	switch {
	case !current:
		code = headgate.CodeStaleFence
	case l.closing:
		code = headgate.CodeLeaseClosing
	case m.free(l):
		code = headgate.CodeLeaseExpired
	}
	m.must(t, "write", write(t.Context(), m.Service, m.st, k.text), code)
	issuer, keys := m.Keys()
	v := Verifier{Keys: map[string]ed25519.PublicKey{}, Issuer: issuer, Audience: OwnAudience}
	for _, key := range keys {
		v.Keys[key.ID] = key.Key
	}
	seen, err := v.Verify(k.text)
	if err != nil || seen.Epoch != k.epoch || seen.Resource != k.resource || seen.Holder != k.holder {
		t.Fatalf("the verifier reads %+v, %v", seen, err)
	}
	if code == "" {
		// What the guard lets pass, nobody who keeps the highest epoch that it
		// has seen may refuse.
		if k.epoch < m.verified[k.resource] {
			t.Fatalf("epoch %d passes the guard after %d wrote elsewhere", k.epoch, m.verified[k.resource])
		}
		m.verified[k.resource] = k.epoch
	}
}

func (m *machine) clock(t *rapid.T) {
	m.pass(rapid.SampledFrom(jumps).Draw(t, "jump"))
}

// restart is another node over the same store, which has seen nothing.
func (m *machine) restart(t *rapid.T) {
	s, err := Open(t.Context(), Config{Store: m.st})
	if err != nil {
		t.Fatal(err)
	}
	m.Service = s
}

func (m *machine) must(t *rapid.T, what string, err error, code headgate.Code) {
	t.Helper()
	if got := headgate.CodeOf(err); got != code {
		t.Fatalf("%s: %v, want %q", what, err, code)
	}
}

// agree: what the service shows is what the model has.
func (m *machine) agree(t *rapid.T) {
	all, err := m.List(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		st, l := &all[i], m.leases[all[i].Resource]
		if st.Epoch != l.epoch || st.Holder != l.holder || st.Held() != (l.holder != "" && !m.free(l)) || st.Closing != (l.closing && l.holder != "") {
			t.Fatalf("the service shows %+v, the model has %+v at %s", *st, *l, m.st.now)
		}
	}
}

// TestMachine (R10): any sequence of calls, clock jumps and restarts agrees
// with the model.
func TestMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"": m.agree, "acquire": m.acquire, "renew": m.renew, "release": m.release, "revoke": m.revoke, "close": m.shutGate,
			"write": m.writeUnder, "clock": m.clock, "restart": m.restart,
		})
	})
}
