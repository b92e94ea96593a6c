package causal

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// keyPrefix starts the settings that hold token keys; the key's id in
// hexadecimal follows.
const keyPrefix = "causal/key/"

// A stored key is: version, created and active in Unix milliseconds, secret.
const (
	keyVersion = 1
	secretSize = 32
	keySize    = 1 + 8 + 8 + secretSize
)

const (
	// activateAfter is how long a new key only verifies, so that every node
	// has seen it (keyRefresh) before the first token that it signs.
	activateAfter = time.Minute
	// clockMargin is how far apart the clocks of nodes may be before a token
	// is refused too early because its key was retired.
	clockMargin = 5 * time.Minute
	// keyMemory is how long a key is kept after its last token expired, so
	// that an old token is told from a forged one.
	keyMemory = 7 * 24 * time.Hour
)

// key signs and verifies tokens.
type key struct {
	id              uint32
	created, active time.Time
	// until is when the last token that it signed has expired; zero while it
	// has no successor. A token that claims to live longer was made by someone
	// who got hold of an old key.
	until time.Time
	macs  sync.Pool // *mac
}

// mac is a keyed hash with room for its sum. Once a keyed hash was reset it
// keeps its padded key, so that reusing it saves half of the work.
type mac struct {
	hash hash.Hash
	sum  [sha256.Size]byte
}

func newKey(id uint32, created, active time.Time, secret []byte) *key {
	k := &key{id: id, created: created, active: active}
	k.macs.New = func() any { return &mac{hash: hmac.New(sha256.New, secret)} }
	return k
}

// appendMAC appends the MAC of msg to dst.
func (k *key) appendMAC(dst, msg []byte) []byte {
	m := k.macs.Get().(*mac)
	m.hash.Reset()
	m.hash.Write(msg)
	dst = append(dst, m.hash.Sum(m.sum[:0])[:macSize]...)
	k.macs.Put(m)
	return dst
}

// ring is an immutable set of keys, oldest first. It is never empty.
type ring struct{ keys []*key }

// find returns the key with the id, or nil.
func (r *ring) find(id uint32) *key {
	for _, k := range r.keys {
		if k.id == id {
			return k
		}
	}
	return nil
}

// newest returns the key that was created last.
func (r *ring) newest() *key { return r.keys[len(r.keys)-1] }

// signer returns the newest key that may sign by now. Before any may (a clock
// that went back) the oldest does: every node has it.
func (r *ring) signer(now time.Time) *key {
	for _, k := range slices.Backward(r.keys) {
		if !k.active.After(now) {
			return k
		}
	}
	return r.keys[0]
}

// parseRing reads the keys from their settings. Life is that of tokens.
func parseRing(settings map[string][]byte, life time.Duration) (*ring, error) {
	r := new(ring)
	for name, v := range settings {
		id, err := hex.DecodeString(strings.TrimPrefix(name, keyPrefix))
		if err != nil || len(id) != 4 || len(v) != keySize || v[0] != keyVersion {
			return nil, headgate.NewError(headgate.CodeInternal, "the token key in setting %q is damaged", name)
		}
		created := time.UnixMilli(int64(binary.BigEndian.Uint64(v[1:])))
		active := time.UnixMilli(int64(binary.BigEndian.Uint64(v[9:])))
		r.keys = append(r.keys, newKey(binary.BigEndian.Uint32(id), created, active, slices.Clone(v[17:])))
	}
	slices.SortFunc(r.keys, func(a, b *key) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return int(int64(a.id) - int64(b.id))
	})
	for i := range max(0, len(r.keys)-1) {
		r.keys[i].until = r.keys[i+1].active.Add(life + clockMargin)
	}
	return r, nil
}

// openKeys loads the keys, and makes the first one of a new store.
func (e *Engine) openKeys(ctx context.Context) error {
	err := e.refreshKeys(ctx)
	if !errors.Is(err, errNoKeys) {
		return err
	}
	return e.changeKeys(ctx, func(r *ring) (add bool, retire []*key) {
		return len(r.keys) == 0, nil
	})
}

var errNoKeys = errors.New("causal: the store holds no token keys")

// refreshKeys reads the keys that other nodes may have added or retired.
func (e *Engine) refreshKeys(ctx context.Context) error {
	var r *ring
	err := e.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		settings, err := tx.Settings.List(ctx, keyPrefix)
		if err != nil {
			return err
		}
		r, err = parseRing(settings, e.cfg.TokenLife)
		return err
	})
	if err != nil {
		return err
	}
	if len(r.keys) == 0 {
		return errNoKeys
	}
	// The present keys have warm keyed hashes.
	same := func(a, b *key) bool { return a.id == b.id && a.created.Equal(b.created) }
	if have := e.ring.Load(); have == nil || !slices.EqualFunc(have.keys, r.keys, same) {
		e.ring.Store(r)
	}
	return nil
}

// Rotate adds a new token key and deletes the oldest ones, a week after the
// last of their tokens has expired. The new key verifies at once and signs
// after a minute, when every node that runs has seen it.
func (e *Engine) Rotate(ctx context.Context) error {
	now := e.cfg.Now()
	return e.changeKeys(ctx, func(r *ring) (bool, []*key) {
		var retire []*key
		for _, k := range r.keys {
			if !k.until.IsZero() && now.Sub(k.until) > keyMemory {
				retire = append(retire, k)
			}
		}
		// Another node's rotation a moment ago counts as this one.
		return len(r.keys) == 0 || now.Sub(r.newest().created) >= activateAfter, retire
	})
}

// changeKeys lets decide see the stored keys in a transaction, does what it
// says and puts the result in force.
func (e *Engine) changeKeys(ctx context.Context, decide func(*ring) (add bool, retire []*key)) error {
	var secret [4 + secretSize]byte
	if _, err := io.ReadFull(e.cfg.Rand, secret[:]); err != nil {
		return headgate.NewError(headgate.CodeInternal, "no randomness for a token key: %v", err)
	}
	now := e.cfg.Now()
	var next *ring
	err := e.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		settings, err := tx.Settings.List(ctx, keyPrefix)
		if err != nil {
			return err
		}
		r, err := parseRing(settings, e.cfg.TokenLife)
		if err != nil {
			return err
		}
		add, retire := decide(r)
		for _, k := range retire {
			if err := tx.Settings.Delete(ctx, keyName(k.id)); err != nil {
				return err
			}
			delete(settings, keyName(k.id))
		}
		if add {
			id := binary.BigEndian.Uint32(secret[:4])
			for r.find(id) != nil {
				id++
			}
			active := now
			if len(r.keys) > 0 {
				active = now.Add(activateAfter)
			}
			v := encodeKey(now, active, secret[4:])
			if err := tx.Settings.Put(ctx, keyName(id), v); err != nil {
				return err
			}
			settings[keyName(id)] = v
		}
		next, err = parseRing(settings, e.cfg.TokenLife)
		return err
	})
	if err != nil {
		return err
	}
	e.ring.Store(next)
	return nil
}

func keyName(id uint32) string { return fmt.Sprintf("%s%08x", keyPrefix, id) }

func encodeKey(created, active time.Time, secret []byte) []byte {
	v := make([]byte, 0, keySize)
	v = append(v, keyVersion)
	v = binary.BigEndian.AppendUint64(v, uint64(created.UnixMilli()))
	v = binary.BigEndian.AppendUint64(v, uint64(active.UnixMilli()))
	return append(v, secret...)
}
