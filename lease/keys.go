package lease

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	keyPrefix     = "lease/key/"
	issuerSetting = "lease/issuer"
	// A stored key is: version, created in Unix milliseconds, seed.
	keyVersion = 1
	keySize    = 1 + 8 + ed25519.SeedSize
)

const (
	// rotateEvery is how long a key signs. Renewals hand out tokens signed by
	// the newest key, so that holders and verifiers follow.
	rotateEvery = 30 * 24 * time.Hour
	// keyMemory is how many keys verify, the newest included.
	keyMemory = 4
	// activateAfter is how long a new key only verifies, so that nodes and
	// verifiers have seen it before the first token that it signs.
	activateAfter = 10 * time.Minute
	// refreshEvery bounds how often an unknown key id makes a node look for
	// new keys: anybody can make up key ids.
	refreshEvery = time.Second
)

// signingKey is one key.
type signingKey struct {
	id      string
	created time.Time
	private ed25519.PrivateKey
}

// ring is an immutable set of keys, oldest first.
type ring struct {
	issuer string
	keys   []signingKey
}

func (r *ring) find(id string) *signingKey {
	for i := range r.keys {
		if r.keys[i].id == id {
			return &r.keys[i]
		}
	}
	return nil
}

// signer is the newest key that has been known for long enough, else the
// oldest.
func (r *ring) signer(now time.Time) *signingKey {
	for i := range slices.Backward(r.keys) {
		if now.Sub(r.keys[i].created) >= activateAfter {
			return &r.keys[i]
		}
	}
	return &r.keys[0]
}

// PublicKey is a key by which tokens can be verified.
type PublicKey struct {
	ID      string
	Key     ed25519.PublicKey
	Created time.Time
}

// Keys returns the issuer's name and the keys that verify its tokens, oldest
// first.
func (s *Service) Keys() (issuer string, keys []PublicKey) {
	r := s.ring.Load()
	for _, k := range r.keys {
		keys = append(keys, PublicKey{ID: k.id, Key: k.private.Public().(ed25519.PublicKey), Created: k.created})
	}
	return r.issuer, keys
}

// readRing reads the keys; one without keys when there are none yet.
func readRing(ctx context.Context, tx *store.Tx) (*ring, error) {
	r := &ring{}
	issuer, err := tx.Settings.Get(ctx, issuerSetting)
	if err != nil && headgate.CodeOf(err) != headgate.CodeNotFound {
		return nil, err
	}
	r.issuer = string(issuer)
	settings, err := tx.Settings.List(ctx, keyPrefix)
	if err != nil {
		return nil, err
	}
	for name, v := range settings {
		if len(v) != keySize || v[0] != keyVersion {
			return nil, headgate.NewError(headgate.CodeInternal, "the lease key in setting %q is damaged", name)
		}
		r.keys = append(r.keys, signingKey{
			id: strings.TrimPrefix(name, keyPrefix), created: time.UnixMilli(int64(binary.BigEndian.Uint64(v[1:]))),
			private: ed25519.NewKeyFromSeed(v[9:]),
		})
	}
	slices.SortFunc(r.keys, func(a, b signingKey) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	return r, nil
}

// openKeys loads the keys and the issuer's name, and makes them in a new
// store.
func (s *Service) openKeys(ctx context.Context) error {
	var secret ringSecret
	if _, err := io.ReadFull(s.cfg.Rand, secret[:]); err != nil {
		return headgate.NewError(headgate.CodeInternal, "no randomness for a lease key: %v", err)
	}
	var r *ring
	err := s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		r, err = makeRing(ctx, tx, &secret)
		return err
	})
	if err == nil {
		s.ring.Store(r)
	}
	return err
}

// ringSecret is the randomness of an issuer's name and a key.
type ringSecret [8 + 4 + ed25519.SeedSize]byte

// makeRing reads the keys and the issuer's name, and makes what is missing.
func makeRing(ctx context.Context, tx *store.Tx, secret *ringSecret) (*ring, error) {
	r, err := readRing(ctx, tx)
	if err != nil || r.issuer != "" && len(r.keys) > 0 {
		return r, err
	}
	if r.issuer == "" {
		if err := tx.Settings.Put(ctx, issuerSetting, []byte("headgate-"+hex.EncodeToString(secret[:8]))); err != nil {
			return nil, err
		}
	}
	if len(r.keys) == 0 {
		if err := addKey(ctx, tx, secret[8:], time.Time{}); err != nil {
			return nil, err
		}
	}
	return readRing(ctx, tx)
}

// addKey adds a key that is younger than the last one, whatever the clock
// says: the order of the keys is that of their times.
func addKey(ctx context.Context, tx *store.Tx, secret []byte, last time.Time) error {
	now, err := tx.Leases.Now(ctx)
	if err != nil {
		return err
	}
	if !now.After(last.Add(time.Millisecond)) {
		now = last.Add(time.Millisecond)
	}
	v := make([]byte, 0, keySize)
	v = append(v, keyVersion)
	v = binary.BigEndian.AppendUint64(v, uint64(now.UnixMilli()))
	v = append(v, secret[4:]...)
	return tx.Settings.Put(ctx, keyPrefix+hex.EncodeToString(secret[:4]), v)
}

// Rotate adds a key and drops the oldest ones. The new key verifies at once
// and signs ten minutes later. Force adds one although the newest still is
// young. A store that was restored to before the first key gets one that signs
// at once.
func (s *Service) Rotate(ctx context.Context, force bool) error {
	var secret ringSecret
	if _, err := io.ReadFull(s.cfg.Rand, secret[:]); err != nil {
		return headgate.NewError(headgate.CodeInternal, "no randomness for a lease key: %v", err)
	}
	var r *ring
	err := s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if r, err = readRing(ctx, tx); err != nil {
			return err
		}
		if len(r.keys) == 0 {
			r, err = makeRing(ctx, tx, &secret)
			return err
		}
		now, err := tx.Leases.Now(ctx)
		if err != nil {
			return err
		}
		if !force && now.Sub(r.keys[len(r.keys)-1].created) < rotateEvery {
			return nil
		}
		for i := range max(0, len(r.keys)+1-keyMemory) {
			if err := tx.Settings.Delete(ctx, keyPrefix+r.keys[i].id); err != nil {
				return err
			}
		}
		if err := addKey(ctx, tx, secret[8:], r.keys[len(r.keys)-1].created); err != nil {
			return err
		}
		r, err = readRing(ctx, tx)
		return err
	})
	if err == nil {
		s.ring.Store(r)
	}
	return err
}

// refreshKeys reads the keys that other nodes may have added.
func (s *Service) refreshKeys(ctx context.Context) error {
	var r *ring
	err := s.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		r, err = readRing(ctx, tx)
		return err
	})
	if err == nil && len(r.keys) > 0 {
		s.ring.Store(r)
	}
	return err
}

// Read returns what a genuine token of this issuer says, meant for Headgate
// itself or for the target. It says nothing about whether the lease is still
// current: see [Service.Guard] and [Service.Verify].
func (s *Service) Read(ctx context.Context, token, target string) (Fence, error) {
	p, refusal := parse(token)
	if refusal != nil {
		return Fence{}, refusal
	}
	r := s.ring.Load()
	key := r.find(p.KeyID)
	if key == nil && s.mayRefresh() {
		if err := s.refreshKeys(ctx); err != nil {
			return Fence{}, err
		}
		r = s.ring.Load()
		key = r.find(p.KeyID)
	}
	if key == nil || p.Issuer != r.issuer || !p.verify(key.private.Public().(ed25519.PublicKey)) {
		return Fence{}, notGenuine("no known key signed it")
	}
	if target == "" {
		target = OwnAudience
	}
	if !slices.Contains(p.Audience, target) {
		return Fence{}, headgate.NewError(headgate.CodeFenceForeign, "The token is not meant for this target.")
	}
	return p.Fence, nil
}

func (s *Service) mayRefresh() bool {
	now := time.Now().UnixNano()
	last := s.refreshed.Load()
	return now-last >= int64(refreshEvery) && s.refreshed.CompareAndSwap(last, now)
}
