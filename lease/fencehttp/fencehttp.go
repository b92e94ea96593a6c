// Package fencehttp lets an HTTP service refuse superseded workers: a
// middleware that verifies lease tokens and remembers, durably, the highest
// epoch that it has seen.
//
// # Model
//
// A worker sends its lease's token in the header Headgate-Fence. The
// middleware checks signature, issuer and audience by the issuer's public
// keys, then asks Seen, which must keep the highest epoch of each resource
// durably. [NewSeal] raises that before a new holder begins. What passed reaches the handler with its fence in the context
// ([FromContext]).
//
// # Invariants
//
//  1. No request reaches the handler without a genuine token for this target,
//     unless Optional is set and there is no token at all.
//  2. None whose epoch is below one that was let through before, also across
//     restarts, as far as Seen is durable.
//  3. While keys or Seen cannot be had, requests that need them are refused as
//     unavailable.
//
// # What it cannot do
//
// Between the middleware's check and the handler's effect a newer worker may
// come. Where the effect is a database transaction, check again in it:
// fencetable.Table.Check with the fence of the context. Effects that cannot be
// checked (a mail that leaves) belong behind the commit of one that can.
//
// # Concurrency
//
// Everything is safe for concurrent use.
package fencehttp

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fencetable"
)

// Seen remembers the highest epoch of each resource.
type Seen interface {
	// Admit passes a fence whose epoch is the highest so far, or rises to it,
	// durably before it returns nil. Else stale_fence or fence_conflict.
	Admit(ctx context.Context, f lease.Fence) error
}

// Keys are an issuer's public keys.
type Keys interface {
	// Get returns the issuer's name and its keys by id; one of id wanted is
	// among them if the issuer has it.
	Get(ctx context.Context, wanted string) (issuer string, keys map[string]ed25519.PublicKey, err error)
}

// Config configures a middleware. Audience, Keys and Seen are required.
type Config struct {
	// Audience is this service's name among the targets of a token.
	Audience string
	Keys     Keys
	Seen     Seen
	// Resource says which resource a request is about; a token of another is
	// refused. Nil: the handler compares, by FromContext.
	Resource func(*http.Request) string
	// Optional lets requests without any token through.
	Optional bool
}

// New returns the middleware.
func New(cfg Config) (func(http.Handler) http.Handler, error) {
	if cfg.Keys == nil || cfg.Seen == nil || !lease.ValidTarget(cfg.Audience) {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "fencehttp: Audience, Keys and Seen are required")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			values := r.Header.Values(api.HeaderFence)
			if len(values) == 0 && cfg.Optional {
				next.ServeHTTP(w, r)
				return
			}
			f, err := cfg.judge(r, values)
			if err != nil {
				refuse(w, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), fenceKey{}, f)))
		})
	}, nil
}

// NewSeal returns the handler of the service's seal endpoint: what a node calls
// with a new grant's token, by POST, before it returns the grant, and with the
// end of one that is revoked (leases.seal of its configuration). From its answer
// on, 204, no older grant passes the middleware. The token is all the right that
// it takes. A request that older holders have under way beyond the middleware is
// not waited for: what they do is checked in the transaction of their effect.
func NewSeal(cfg Config) (http.Handler, error) {
	cfg.Optional, cfg.Resource = false, nil
	guarded, err := New(cfg)
	if err != nil {
		return nil, err
	}
	sealed := guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		sealed.ServeHTTP(w, r)
	}), nil
}

type fenceKey struct{}

// FromContext returns the fence that the middleware let through.
func FromContext(ctx context.Context) (lease.Fence, bool) {
	f, ok := ctx.Value(fenceKey{}).(lease.Fence)
	return f, ok
}

func (cfg *Config) judge(r *http.Request, values []string) (lease.Fence, error) {
	if len(values) == 0 || strings.TrimSpace(values[0]) == "" {
		return lease.Fence{}, headgate.NewError(headgate.CodeFenceMissing, "The request carries no lease token.")
	}
	if len(values) > 1 || strings.Contains(values[0], ",") {
		return lease.Fence{}, headgate.NewError(headgate.CodeFenceInvalid, "The request carries several lease tokens; one is expected.")
	}
	token := strings.TrimSpace(values[0])
	id := lease.KeyIDOf(token)
	if id == "" {
		return lease.Fence{}, headgate.NewError(headgate.CodeFenceInvalid, "The fence is no lease token.")
	}
	issuer, keys, err := cfg.Keys.Get(r.Context(), id)
	if err != nil {
		return lease.Fence{}, err
	}
	v := lease.Verifier{Keys: keys, Issuer: issuer, Audience: cfg.Audience}
	f, err := v.Verify(token)
	if err != nil {
		return lease.Fence{}, err
	}
	if cfg.Resource != nil && cfg.Resource(r) != f.Resource {
		return lease.Fence{}, headgate.NewError(headgate.CodeFenceForeign, "The token is of another resource.")
	}
	return f, cfg.Seen.Admit(r.Context(), f)
}

// refuse answers with problem+json. What is not of our own type is a failure
// of the service behind, and closed is how a fence fails.
func refuse(w http.ResponseWriter, err error) {
	e := headgate.AsError(err)
	if e == nil {
		e = &headgate.Error{Code: headgate.CodeUnavailable, Detail: "The fence could not be checked.", Err: err}
	}
	b, merr := json.Marshal(api.NewProblem(e, ""))
	if merr != nil { // no value of Problem does this
		b = []byte(`{"code":"internal","status":500}`)
	}
	w.Header().Set("Content-Type", api.TypeProblem)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(e.Info().Status)
	_, _ = w.Write(append(b, '\n')) // else the client is gone
}

// SQLSeen remembers in a fence table.
type SQLSeen struct {
	DB    *sql.DB
	Table fencetable.Table
}

// Admit implements Seen.
func (s SQLSeen) Admit(ctx context.Context, f lease.Fence) error { return s.Table.Seal(ctx, s.DB, f) }

// RemoteKeys reads an issuer's keys from a node, and keeps them. Its zero
// value with URL set is ready to use.
type RemoteKeys struct {
	URL  string       // of the node, such as http://127.0.0.1:7420
	HTTP *http.Client // default: one with a time limit of 10s

	mu     sync.Mutex
	issuer string
	keys   map[string]ed25519.PublicKey
	read   time.Time
	failed error
}

const (
	// keysAgain bounds how often an unknown key makes it ask: anybody can make
	// up key ids.
	keysAgain = 5 * time.Second
	// keysOld is when known keys are read anew, so that a dropped key ends.
	keysOld = 10 * time.Minute
	// maxKeys bounds an answer, in bytes.
	maxKeys = 64 << 10
)

// Get implements Keys. When the node cannot be reached, keys that are known
// stay good.
func (k *RemoteKeys) Get(ctx context.Context, wanted string) (string, map[string]ed25519.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, known := k.keys[wanted]
	age := time.Since(k.read)
	if k.read.IsZero() || age > keysOld || !known && age > keysAgain {
		k.read = time.Now()
		issuer, keys, err := k.fetch(ctx)
		if k.failed = err; err == nil {
			k.issuer, k.keys = issuer, keys
			_, known = keys[wanted]
		}
	}
	if !known && k.failed != nil {
		return "", nil, headgate.NewError(headgate.CodeUnavailable, "The issuer's keys cannot be read: %v", k.failed)
	}
	return k.issuer, k.keys, nil
}

func (k *RemoteKeys) fetch(ctx context.Context) (string, map[string]ed25519.PublicKey, error) {
	hc := k.HTTP
	if hc == nil {
		hc = &http.Client{Timeout: 10 * time.Second}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(k.URL, "/")+"/v1/fence/keys", nil)
	if err != nil {
		return "", nil, err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", nil, fmt.Errorf("the node answered %d", resp.StatusCode)
	}
	var set api.FenceKeys
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxKeys)).Decode(&set); err != nil {
		return "", nil, err
	}
	keys := map[string]ed25519.PublicKey{}
	for _, key := range set.Keys {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(key.X)
		if err != nil || key.KeyType != "OKP" || key.Curve != "Ed25519" || len(raw) != ed25519.PublicKeySize {
			continue // of a kind that tokens of this version are not signed by
		}
		keys[key.ID] = raw
	}
	if len(keys) == 0 || set.Issuer == "" {
		return "", nil, errors.New("the node has no keys")
	}
	return set.Issuer, keys, nil
}
