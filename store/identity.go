package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/headgate/headgate"
)

// identitySetting holds the store's identity, in ASCII.
const identitySetting = "store/identity"

// identityBytes is how much randomness is in an identity.
const identityBytes = 16

// Identity returns what tells a store from every other: 32 hexadecimal digits,
// drawn at random when it is first asked for, and the same ever after, for every
// node of the store and in every backup of it. What is kept outside of a store
// and belongs to it, as a broker's streams do, is marked with it.
func Identity(ctx context.Context, s Store) (string, error) {
	var id string
	read := func(ctx context.Context, tx *Tx) error {
		v, err := tx.Settings.Get(ctx, identitySetting)
		if id = string(v); err == nil && len(id) != 2*identityBytes {
			return headgate.NewError(headgate.CodeInternal, "the store's identity is damaged: setting %q has %d bytes", identitySetting, len(id))
		}
		return err
	}
	err := s.View(ctx, read)
	if headgate.CodeOf(err) != headgate.CodeNotFound {
		return id, err
	}
	var drawn [identityBytes]byte
	if _, err := rand.Read(drawn[:]); err != nil {
		return "", headgate.NewError(headgate.CodeInternal, "no randomness for the store's identity: %v", err)
	}
	err = s.Update(ctx, func(ctx context.Context, tx *Tx) error {
		err := read(ctx, tx) // another node may have been faster
		if headgate.CodeOf(err) != headgate.CodeNotFound {
			return err
		}
		id = hex.EncodeToString(drawn[:])
		return tx.Settings.Put(ctx, identitySetting, []byte(id))
	})
	return id, err
}
