package fence

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// Sizes of what a fence is made of.
const (
	// NonceSize is how long a nonce is, in bytes.
	NonceSize = 16
	// MaxEpoch is the greatest epoch: what JavaScript keeps exact.
	MaxEpoch = 1<<53 - 1
	maxToken = 4096
)

var encoding = base64.RawURLEncoding.Strict()

// Fence is one grant of a lease as its holder presents it.
type Fence struct {
	Resource string
	Epoch    int64
	Nonce    []byte
	// Deadline is when the lease ends by the holder's monotonic clock: when
	// the last acquire or renewal was sent plus what it granted. Zero means
	// unknown. It only ever makes a guard stricter.
	Deadline time.Time
}

// String returns "resource@epoch".
func (f Fence) String() string { return f.Resource + "@" + strconv.FormatInt(f.Epoch, 10) }

// NonceText is the nonce as tokens and SQL spell it: base64url, unpadded.
func (f Fence) NonceText() string { return encoding.EncodeToString(f.Nonce) }

// Check returns fence_invalid when the fence cannot be of any grant, and
// lease_expired when the holder's own deadline has passed.
func (f Fence) Check(now time.Time) error {
	if !headgate.ValidResource(f.Resource) || f.Epoch <= 0 || f.Epoch > MaxEpoch || len(f.Nonce) != NonceSize {
		return headgate.NewError(headgate.CodeFenceInvalid, "The fence has no valid resource, epoch or nonce.")
	}
	if !f.Deadline.IsZero() && !now.Before(f.Deadline) {
		return headgate.NewError(headgate.CodeLeaseExpired, "The lease on %s ran out by its holder's clock.", f.Resource)
	}
	return nil
}

// Left returns how long a transaction under the fence may take: until the
// holder's deadline, at most limit, at least a millisecond.
func (f Fence) Left(now time.Time, limit time.Duration) time.Duration {
	if !f.Deadline.IsZero() {
		limit = min(limit, f.Deadline.Sub(now))
	}
	return max(limit, time.Millisecond)
}

// Parse reads a lease token. It does not verify the signature: the storage
// compares the nonce. Errors: fence_invalid.
func Parse(token string) (Fence, error) {
	bad := headgate.NewError(headgate.CodeFenceInvalid, "The fence is no lease token.")
	text, ok := strings.CutPrefix(token, "hgl1.")
	if !ok || len(token) > maxToken {
		return Fence{}, bad
	}
	text, _, _ = strings.Cut(text, ".")
	raw, err := encoding.DecodeString(text)
	if err != nil {
		return Fence{}, bad
	}
	var c struct {
		Resource string `json:"res"`
		Epoch    string `json:"epoch"`
		Nonce    string `json:"nonce"`
	}
	if json.Unmarshal(raw, &c) != nil {
		return Fence{}, bad
	}
	epoch, err := strconv.ParseInt(c.Epoch, 10, 64)
	if err != nil {
		return Fence{}, bad
	}
	nonce, err := encoding.DecodeString(c.Nonce)
	if err != nil {
		return Fence{}, bad
	}
	f := Fence{Resource: c.Resource, Epoch: epoch, Nonce: nonce}
	if err := f.Check(time.Time{}); err != nil {
		return Fence{}, err
	}
	return f, nil
}
