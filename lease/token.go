package lease

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// MaxToken bounds a token, in bytes.
const MaxToken = 4096

// MaxAudience bounds the targets of one grant, the issuer's own included.
const MaxAudience = 8

// OwnAudience is the target that every token is meant for: Headgate itself.
const OwnAudience = "headgate"

const (
	tokenPrefix = "hgl1."
	nonceSize   = 16
	maxEpoch    = 1<<53 - 1 // what JavaScript keeps exact; reached in the year 2255
)

// Fence is what a token says: one grant of one lease.
type Fence struct {
	Resource string
	Epoch    int64
	Nonce    []byte
	Holder   string
	Audience []string // sorted
	Issuer   string
	KeyID    string
}

// String returns "resource@epoch", the form of the event attribute fence.
func (f *Fence) String() string { return f.Resource + "@" + strconv.FormatInt(f.Epoch, 10) }

// Attribute is the event attribute fence of what was written under the fences:
// RESOURCE@EPOCH, comma-separated in the order of the resources, with "%" and
// "," in them as %25 and %2C.
func Attribute(fences []*Fence) string {
	all := make([]string, len(fences))
	for i, f := range fences {
		all[i] = attributeEscapes.Replace(f.String())
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

var attributeEscapes = strings.NewReplacer("%", "%25", ",", "%2C")

// claims is the signed text. Its fields are written in this order and form
// only: a token has one spelling.
type claims struct {
	Resource string   `json:"res"`
	Epoch    string   `json:"epoch"`
	Nonce    string   `json:"nonce"`
	Holder   string   `json:"holder"`
	Audience []string `json:"aud"`
	Issuer   string   `json:"iss"`
	KeyID    string   `json:"kid"`
}

var encoding = base64.RawURLEncoding.Strict()

// sign returns the token of a grant.
func sign(f *Fence, key ed25519.PrivateKey) (string, error) {
	text, err := f.text()
	if err != nil {
		return "", err
	}
	signed := tokenPrefix + encoding.EncodeToString(text)
	return signed + "." + encoding.EncodeToString(ed25519.Sign(key, []byte(signed))), nil
}

func (f *Fence) text() ([]byte, error) {
	return json.Marshal(claims{
		Resource: f.Resource, Epoch: strconv.FormatInt(f.Epoch, 10), Nonce: encoding.EncodeToString(f.Nonce),
		Holder: f.Holder, Audience: f.Audience, Issuer: f.Issuer, KeyID: f.KeyID,
	})
}

// parsed is a token that was read, not yet verified.
type parsed struct {
	Fence
	signed    string
	signature []byte
}

// parse reads a token strictly: whatever [sign] would not write is no token.
func parse(token string) (*parsed, *headgate.Error) {
	if len(token) > MaxToken {
		return nil, notGenuine("it is longer than any token")
	}
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	text, signature, dot := strings.Cut(rest, ".")
	if !ok || !dot || strings.ContainsAny(token, "\r\n") { // line breaks, which the decoder passes over
		return nil, notGenuine("it has not the form of one")
	}
	raw, err := encoding.DecodeString(text)
	sig, err2 := encoding.DecodeString(signature)
	if err != nil || err2 != nil || len(sig) != ed25519.SignatureSize {
		return nil, notGenuine("it is not well encoded")
	}
	var c claims
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, notGenuine("it cannot be read")
	}
	epoch, err := strconv.ParseInt(c.Epoch, 10, 64)
	nonce, err2 := encoding.DecodeString(c.Nonce)
	if err != nil || err2 != nil || len(nonce) != nonceSize || epoch <= 0 || epoch > maxEpoch {
		return nil, notGenuine("its epoch or nonce is none")
	}
	p := &parsed{Fence: Fence{
		Resource: c.Resource, Epoch: epoch, Nonce: nonce, Holder: c.Holder, Audience: c.Audience, Issuer: c.Issuer, KeyID: c.KeyID,
	}, signed: tokenPrefix + text, signature: sig}
	if again, err := p.text(); err != nil || !bytes.Equal(again, raw) {
		return nil, notGenuine("it is not in canonical form")
	}
	if !headgate.ValidResource(p.Resource) || checkAudience(p.Audience) != nil {
		return nil, notGenuine("its resource or audience is none")
	}
	return p, nil
}

func (p *parsed) verify(key ed25519.PublicKey) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, []byte(p.signed), p.signature)
}

// notGenuine never tells how far a forgery came: that the token is none of
// ours is all there is to know.
func notGenuine(why string) *headgate.Error {
	return headgate.NewError(headgate.CodeFenceInvalid, "The fence is no lease token: %s.", why)
}

// checkAudience refuses what cannot be a list of targets.
func checkAudience(targets []string) *headgate.Error {
	if len(targets) == 0 || len(targets) > MaxAudience || !slices.IsSorted(targets) || len(slices.Compact(slices.Clone(targets))) != len(targets) {
		return headgate.NewError(headgate.CodeInvalidArgument, "audience must be a list of at most %d different targets.", MaxAudience-1)
	}
	for _, t := range targets {
		if !ValidTarget(t) {
			return headgate.NewError(headgate.CodeInvalidArgument, "A target is 1 to 64 letters, digits, \".\", \"_\", \":\", \"/\" and \"-\".")
		}
	}
	return nil
}

// ValidTarget reports whether s may name a target: 1 to 64 letters, digits,
// ".", "_", ":", "/" and "-".
func ValidTarget(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._:/-", rune(c)) {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 64
}

// Verifier checks tokens without a store: signature, issuer and audience. It
// cannot know whether a genuine token is still current; who stores a write
// compares its epoch with the highest that it has seen (package fencehttp), or
// asks Headgate.
type Verifier struct {
	// Keys are the issuer's public keys by id, as GET /v1/fence/keys lists
	// them.
	Keys map[string]ed25519.PublicKey
	// Issuer is whose tokens count; empty: those of any issuer in Keys.
	Issuer string
	// Audience is the target that the tokens must be meant for.
	Audience string
}

// Verify returns what a genuine token says. Errors: fence_invalid, and
// fence_foreign for a token of another issuer or target. An unknown key is
// fence_invalid, too: read the keys again.
func (v *Verifier) Verify(token string) (Fence, error) {
	p, refusal := parse(token)
	if refusal != nil {
		return Fence{}, refusal
	}
	key, known := v.Keys[p.KeyID]
	if !known || !p.verify(key) {
		return Fence{}, notGenuine("no known key signed it")
	}
	if v.Issuer != "" && p.Issuer != v.Issuer {
		return Fence{}, headgate.NewError(headgate.CodeFenceForeign, "The token is of another issuer.")
	}
	if !slices.Contains(p.Audience, v.Audience) {
		return Fence{}, headgate.NewError(headgate.CodeFenceForeign, "The token is not meant for this target.")
	}
	return p.Fence, nil
}

// KeyIDOf returns the id of the key that a token says it was signed by, ""
// for what is no token.
func KeyIDOf(token string) string {
	p, refusal := parse(token)
	if refusal != nil {
		return ""
	}
	return p.KeyID
}
