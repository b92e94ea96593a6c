package principal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	tokenPrefix   = "hg_"
	adoptedPrefix = "adopted-" // of ids: no made token's id has a "-"
	idBytes       = 10
	secretBytes   = 32
	maxToken      = 512 // longer ones are refused unread
	minAdopted    = 22  // characters: 128 bits in base64
	minDistinct   = 5   // different characters in an adopted token
)

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// credential is what is kept of a token.
type credential struct {
	id, principal string
	hash          [sha256.Size]byte
	expires       time.Time // zero: never
	created       time.Time
}

func credentialOf(t store.Token) *credential {
	c := &credential{id: t.ID, principal: t.Principal, expires: t.Expires, created: t.Created}
	if copy(c.hash[:], t.Hash) != len(c.hash) {
		c.expires = time.Unix(0, 0) // a damaged row admits nobody
	}
	return c
}

func (c *credential) stored() store.Token {
	return store.Token{ID: c.id, Principal: c.principal, Hash: c.hash[:], Expires: c.expires, Created: c.created}
}

func (c *credential) endsBy(now time.Time) bool { return !c.expires.IsZero() && !now.Before(c.expires) }

// nobody stands in for a token that is not known. No secret hashes to it.
var nobody = &credential{expires: time.Unix(0, 0)}

// Authenticate returns the principal of a bearer token. The error is always
// the same unauthenticated. The principal is shared: do not modify it.
func (d *Directory) Authenticate(_ context.Context, token string) (*headgate.Principal, error) {
	if len(token) > maxToken {
		token = "" // which nobody has
	}
	p := d.picture.Load()
	now := d.now()
	var buf [len(idDomain) + maxToken]byte // on the stack: this runs for every request
	all := append(append(buf[:0], idDomain...), token...)
	whole := all[len(idDomain):]
	// A made and an adopted token are looked for alike, whatever this one
	// looks like, and both are compared to the end.
	id, secret := splitToken(whole)
	made, madeOK := p.check(id, sha256.Sum256(secret), now)
	adoptedID := deriveID(all)
	adopted, adoptedOK := p.check(adoptedID[:], sha256.Sum256(whole), now)
	switch 2*adoptedOK + madeOK {
	case 1:
		return &made.Principal, nil
	case 2, 3:
		return &adopted.Principal, nil
	}
	return nil, errUnauthenticated()
}

// check returns the principal behind an id, and 1 if the hash and its state
// admit it.
func (p *picture) check(id []byte, hash [sha256.Size]byte, now time.Time) (*store.Principal, int) {
	c, known := p.tokens[string(id)]
	if !known {
		c = nobody
	}
	ok := subtle.ConstantTimeCompare(c.hash[:], hash[:])
	owner := p.principals[c.principal]
	if owner == nil || owner.Disabled || c.endsBy(now) {
		return nil, 0
	}
	return owner, ok
}

func errUnauthenticated() error {
	return headgate.NewError(headgate.CodeUnauthenticated, "the token is not valid")
}

// splitToken returns the parts of hg_ID_SECRET; empty ones when it is not of
// that form. An id holds no "_", a secret may.
func splitToken(token []byte) (id, secret []byte) {
	rest, ok := bytes.CutPrefix(token, []byte(tokenPrefix))
	if !ok {
		return nil, nil
	}
	id, secret, _ = bytes.Cut(rest, []byte("_"))
	return id, secret
}

// idDomain, put before an adopted token, keeps the hash that its id is derived
// from apart from the hash that is compared.
const idDomain = "id"

// deriveID returns the id of the adopted token that follows idDomain in b.
func deriveID(b []byte) (id [len(adoptedPrefix) + 32]byte) {
	sum := sha256.Sum256(b)
	hex.Encode(id[copy(id[:], adoptedPrefix):], sum[:16])
	return id
}

// Issue creates a token for a principal and returns it; it is shown this once.
// With revoke, earlier tokens end after grace (0: at once), if they do not end
// sooner. A disabled principal may get one, which is of use once it is enabled.
func (d *Directory) Issue(ctx context.Context, name string, revoke bool, grace time.Duration) (string, error) {
	d.change.Lock()
	defer d.change.Unlock()
	now := d.picture.Load()
	if now.principals[name] == nil {
		return "", unknown(name)
	}
	if grace < 0 {
		return "", headgate.NewError(headgate.CodeInvalidArgument, "a grace of %s", grace)
	}
	c, token, err := d.mint(now, name)
	if err != nil {
		return "", err
	}
	changed, gone := []*credential{c}, []string{}
	for _, t := range now.tokens {
		if t.principal != name {
			continue
		}
		if revoke {
			t = t.endingAt(d.now().Add(grace))
			changed = append(changed, t)
		}
		// The end of an adopted token is remembered, or the next start would
		// adopt it again.
		if t.endsBy(d.now()) && !strings.HasPrefix(t.id, adoptedPrefix) {
			gone = append(gone, t.id)
		}
	}
	if err := d.writeTokens(ctx, name, changed, gone); err != nil {
		return "", err
	}
	return token, nil
}

// endingAt returns the token with its end brought forward.
func (c *credential) endingAt(end time.Time) *credential {
	if c.endsBy(end) {
		return c
	}
	next := *c
	next.expires = end
	return &next
}

// mint makes a token whose id is new.
func (d *Directory) mint(now *picture, name string) (*credential, string, error) {
	for range 8 {
		var raw [idBytes + secretBytes]byte
		if _, err := io.ReadFull(d.random, raw[:]); err != nil {
			return nil, "", headgate.NewError(headgate.CodeInternal, "the source of randomness failed: %v", err)
		}
		id, secret := idEncoding.EncodeToString(raw[:idBytes]), base64.RawURLEncoding.EncodeToString(raw[idBytes:])
		if now.tokens[id] != nil {
			continue
		}
		c := &credential{id: id, principal: name, hash: sha256.Sum256([]byte(secret)), created: d.now()}
		return c, tokenPrefix + id + "_" + secret, nil
	}
	return nil, "", headgate.NewError(headgate.CodeInternal, "the source of randomness repeats itself")
}

// Adopt registers a token chosen by the operator (configuration, environment)
// for a principal. It must have at least 128 bits: 22 characters or more, of
// those that a bearer token may have. Adopting it again changes nothing;
// adopting it for another principal, or after it was revoked, is a conflict.
func (d *Directory) Adopt(ctx context.Context, name, token string) error {
	if err := checkAdopted(token); err != nil {
		return err
	}
	d.change.Lock()
	defer d.change.Unlock()
	now := d.picture.Load()
	if now.principals[name] == nil {
		return unknown(name)
	}
	derived := deriveID([]byte(idDomain + token))
	id := string(derived[:])
	switch have := now.tokens[id]; {
	case have == nil:
	case have.principal != name:
		return headgate.NewError(headgate.CodeConflict, "the token for %s already belongs to another principal", name)
	case have.endsBy(d.now()):
		return &headgate.Error{
			Code: headgate.CodeConflict, Detail: "the token for " + name + " was revoked",
			Fix: "Choose a new token for it.",
		}
	default:
		return nil
	}
	if made, secret := splitToken([]byte(token)); now.tokens[string(made)] != nil && now.tokens[string(made)].hash == sha256.Sum256(secret) {
		return headgate.NewError(headgate.CodeConflict, "the token for %s was issued by this node already", name)
	}
	c := &credential{id: id, principal: name, hash: sha256.Sum256([]byte(token)), created: d.now()}
	return d.writeTokens(ctx, name, []*credential{c}, nil)
}

// checkAdopted refuses tokens that are too short, too plain to be random, or
// that no Authorization header can carry. Source: RFC 6750, section 2.1.
func checkAdopted(token string) error {
	bad := func(format string, args ...any) error {
		return headgate.NewError(headgate.CodeInvalidArgument, "the token "+format, args...)
	}
	if len(token) < minAdopted || len(token) > maxToken {
		return bad("has %d characters, want %d to %d", len(token), minAdopted, maxToken)
	}
	distinct := map[byte]bool{}
	body := strings.TrimRight(token, "=")
	for i := range len(body) {
		c := body[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~+/", c) >= 0:
			distinct[c] = true
		default:
			return bad("has a character at position %d that a bearer token cannot have", i)
		}
	}
	if len(distinct) < minDistinct {
		return bad("is not random: it has %d different characters", len(distinct))
	}
	return nil
}

// Tokens returns the tokens of a principal, without what could admit anyone:
// ids, times and the end of each. Ended adopted tokens are among them.
func (d *Directory) Tokens(ctx context.Context, name string) ([]store.Token, error) {
	var all []store.Token
	err := d.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if _, err = tx.Principals.Get(ctx, name); err != nil {
			return err
		}
		all, err = tx.Principals.Tokens(ctx, name)
		return err
	})
	for i := range all {
		all[i].Hash = nil
	}
	return all, err
}

// Revoke ends one token of a principal at once, or fails with not_found.
func (d *Directory) Revoke(ctx context.Context, name, id string) error {
	d.change.Lock()
	defer d.change.Unlock()
	c := d.picture.Load().tokens[id]
	if c == nil || c.principal != name {
		return headgate.NewError(headgate.CodeNotFound, "%s has no token %q", clip(name), clip(id))
	}
	if strings.HasPrefix(id, adoptedPrefix) {
		return d.writeTokens(ctx, name, []*credential{c.endingAt(d.now())}, nil)
	}
	return d.writeTokens(ctx, name, nil, []string{id})
}

// writeTokens keeps the changed tokens and removes those that are gone, also
// when they are among the changed: first in the store, then in the picture.
func (d *Directory) writeTokens(ctx context.Context, name string, changed []*credential, gone []string) error {
	err := d.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		for _, c := range changed {
			if err := tx.Principals.PutToken(ctx, c.stored()); err != nil {
				return err
			}
		}
		for _, id := range gone {
			if err := tx.Principals.DeleteToken(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return d.failed(ctx, name, err)
	}
	p := d.picture.Load().copy()
	for _, c := range changed {
		p.tokens[c.id] = c
	}
	for _, id := range gone {
		delete(p.tokens, id)
	}
	d.show(p)
	return nil
}
