package causal

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math"
	"time"

	"github.com/headgate/headgate"
)

// A token is base64url without padding of: version, key id, body, MAC. The MAC
// (HMAC-SHA256, cut to 16 bytes) is over everything before it.
const (
	tokenVersion = 1
	tokenHead    = 1 + 4
	macSize      = 16
	// maxToken bounds the text of a token that Verify looks at: ids of 1 kB and
	// names of 200 bytes fit.
	maxToken = 4096
)

// encoding has exactly one text for given bytes, but for line breaks, which
// Verify refuses itself.
var encoding = base64.RawURLEncoding.Strict()

// origins numbers the origin classes in tokens. Never renumber.
var origins = [...]headgate.Origin{
	"", headgate.OriginHuman, headgate.OriginAgent, headgate.OriginSystem,
	headgate.OriginTimer, headgate.OriginWebhook, headgate.OriginChange,
}

func originCode(o headgate.Origin) byte {
	for i, known := range origins {
		if o == known {
			return byte(i)
		}
	}
	return 0
}

// scratch is room to build or take apart one token.
type scratch struct{ raw, text []byte }

// Mint returns the causal token of a delivery. It names the delivery's event
// and its cause completely, so that no node needs a memory of it.
func (e *Engine) Mint(d Delivered) string {
	now := e.cfg.Now()
	k := e.ring.Load().signer(now)
	s := e.scratch.Get().(*scratch)
	b := append(s.raw[:0], tokenVersion)
	b = binary.BigEndian.AppendUint32(b, k.id)
	b = appendBody(b, &d, now.Add(e.cfg.TokenLife))
	b = k.appendMAC(b, b)
	s.raw = b
	s.text = encoding.AppendEncode(s.text[:0], b)
	token := string(s.text)
	e.scratch.Put(s)
	return token
}

// appendBody writes what the MAC binds: who may use the token, until when, for
// which attempt of which delivery, and the cause that it stands for.
func appendBody(b []byte, d *Delivered, expires time.Time) []byte {
	h := &d.Event.Header
	b = binary.AppendUvarint(b, uint64(max(expires.UnixMilli(), 0)))
	b = appendString(b, d.Principal)
	b = appendString(b, d.Subscription)
	b = appendString(b, d.Stream)
	b = binary.AppendUvarint(b, uint64(d.Position.Partition))
	b = binary.AppendUvarint(b, d.Position.Offset)
	b = binary.AppendUvarint(b, uint64(max(d.Attempt, 0)))
	b = appendString(b, d.Event.ID)
	root := h.RootID
	if root == d.Event.ID {
		root = "" // a root's own deliveries need its id only once
	}
	b = appendString(b, root)
	b = append(b, originCode(h.Origin))
	b = binary.AppendUvarint(b, uint64(max(h.TTL, 0)))
	b = binary.AppendUvarint(b, uint64(max(h.Hop, 0)))
	return append(b, h.Lineage...)
}

// Verify checks a token that the principal presents. The checks, in order: the
// MAC, the principal, the expiry, and whether a newer claim took the delivery
// over. Errors: token_invalid, token_foreign, token_expired, token_superseded.
func (e *Engine) Verify(token, principal string) (*Cause, error) {
	c, err := e.genuine(token)
	if err != nil {
		return nil, err
	}
	return e.judge(c, principal)
}

// VerifyAt checks a token as of a past time: for events that were committed to
// a database with their token and reach the perimeter only later. A token that
// was valid then counts, also when it has expired since. Whether a newer claim
// took the delivery over is not judged, since it may have done so after the
// commit; who writes to a database with a claim that may be taken over guards
// the transaction by a fence or an inbox row. Errors: token_invalid,
// token_foreign, token_expired.
func (e *Engine) VerifyAt(token, principal string, at time.Time) (*Cause, error) {
	c, err := e.genuine(token)
	if err != nil {
		return nil, err
	}
	if err := c.belongs(principal, at); err != nil {
		return nil, err
	}
	return c, nil
}

// genuine checks length, form and MAC, and returns what the token says.
func (e *Engine) genuine(token string) (*Cause, error) {
	if len(token) > maxToken || encoding.DecodedLen(len(token)) <= tokenHead+macSize {
		return nil, headgate.NewError(headgate.CodeTokenInvalid, "the causal token has an impossible length")
	}
	s := e.scratch.Get().(*scratch)
	defer e.scratch.Put(s)
	s.text = append(s.text[:0], token...)
	var err error
	s.raw, err = encoding.AppendDecode(s.raw[:0], s.text)
	// The decoder skips line breaks: then the bytes have a shorter text.
	if err != nil || encoding.EncodedLen(len(s.raw)) != len(token) || s.raw[0] != tokenVersion {
		return nil, headgate.NewError(headgate.CodeTokenInvalid, "the causal token is malformed")
	}
	k := e.ring.Load().find(binary.BigEndian.Uint32(s.raw[1:]))
	if k == nil {
		return nil, headgate.NewError(headgate.CodeTokenInvalid, "the causal token was signed with a key that this deployment does not hold")
	}
	signed := len(s.raw) - macSize
	s.text = k.appendMAC(s.text[:0], s.raw[:signed])
	if !hmac.Equal(s.text, s.raw[signed:]) {
		return nil, headgate.NewError(headgate.CodeTokenInvalid, "the causal token is not genuine")
	}
	c, ok := parseBody(s.raw[tokenHead:signed])
	if !ok {
		return nil, headgate.NewError(headgate.CodeTokenInvalid, "the causal token has an unknown content")
	}
	if !k.until.IsZero() && c.Expires.After(k.until) {
		return nil, headgate.NewError(headgate.CodeTokenInvalid, "the causal token outlives the key that it was signed with")
	}
	return c, nil
}

// belongs checks whose token it is, and that it had not expired at a time.
func (c *Cause) belongs(principal string, at time.Time) error {
	if c.Principal != principal {
		return headgate.NewError(headgate.CodeTokenForeign, "the causal token was given to another principal than %s", quote(principal))
	}
	if !at.Before(c.Expires) {
		return headgate.NewError(headgate.CodeTokenExpired, "the causal token expired at %s", c.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// judge decides on a genuine token.
func (e *Engine) judge(c *Cause, principal string) (*Cause, error) {
	if err := c.belongs(principal, e.cfg.Now()); err != nil {
		return nil, err
	}
	if claims := e.claims.Load(); claims != nil && (*claims).Superseded(c.Subscription, c.Stream, c.Position, c.Attempt) {
		return nil, headgate.NewError(headgate.CodeTokenSuperseded, "attempt %d of this delivery was taken over by a newer claim", c.Attempt)
	}
	return c, nil
}

func parseBody(b []byte) (*Cause, bool) {
	r := reader{b: b}
	c := new(Cause)
	expires := r.uvarint()
	c.Principal, c.Subscription, c.Stream = r.string(), r.string(), r.string()
	partition := r.uvarint()
	c.Position.Offset = r.uvarint()
	attempt := r.uvarint()
	c.EventID, c.Root = r.string(), r.string()
	origin := r.byte()
	ttl, hop := r.uvarint(), r.uvarint()
	if r.bad || expires > math.MaxInt64 || partition > math.MaxUint32 || attempt > math.MaxInt32 ||
		int(origin) >= len(origins) || ttl > math.MaxInt32 || hop > math.MaxInt32 {
		return nil, false
	}
	c.Expires = time.UnixMilli(int64(expires))
	c.Position.Partition = uint32(partition)
	c.Attempt, c.TTL, c.Hop = int(attempt), int(ttl), int(hop)
	c.Origin = origins[origin]
	if c.Root == "" {
		c.Root = c.EventID
	}
	var err error
	c.lineage, err = parseLineage(r.b)
	return c, err == nil
}

// appendString writes a string with its length. A UUID in its usual form takes
// 17 bytes: length 0, which no other string has as the empty one counts as 1.
func appendString(b []byte, s string) []byte {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		var packed [17]byte
		if packUUID(packed[1:], s) {
			return append(b, packed[:]...)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(s))+1)
	return append(b, s...)
}

// packUUID reads the hexadecimal digits of s, lower case only, as the packed
// form must give the same text again.
func packUUID(dst []byte, s string) bool {
	half := 0
	for i := range len(s) {
		var v byte
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			continue
		case c >= '0' && c <= '9':
			v = c - '0'
		case c >= 'a' && c <= 'f':
			v = c - 'a' + 10
		default:
			return false
		}
		dst[half/2] = dst[half/2]<<4 | v
		half++
	}
	return true
}

func (r *reader) string() string {
	n := r.uvarint()
	if n > 0 {
		if n > maxToken {
			r.bad = true
		}
		return string(r.take(int(n - 1)))
	}
	id := r.take(16)
	if id == nil {
		return ""
	}
	var text [36]byte
	hex.Encode(text[:8], id[:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:], id[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
