package quarantine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strings"

	"github.com/headgate/headgate"
)

// FingerprintVersion is the version of the algorithm, and the prefix of what
// it yields. Records keep the fingerprint that they were made with.
const FingerprintVersion = "v1"

// Fault is what makes two records the same fault.
type Fault struct {
	Subscription string // empty for a refusal
	Type         string
	Contract     string // "subject" or "subject@version"; the version does not count
	Reason       string
	Message      string // any text; its variable parts do not count (see Template)
	// Violation is the first violation of a verdict. With it the message,
	// which is made from it, does not count.
	Violation *headgate.Violation
}

// Fingerprint returns the fingerprint of a fault, by which records are
// grouped, and that of its family, the coarser group of everything that one
// subscription keeps for one reason.
func Fingerprint(f Fault) (fingerprint, family string) {
	h := sha256.New()
	subject, _, _ := strings.Cut(f.Contract, "@")
	for _, part := range []string{f.Subscription, f.Type, subject, f.Reason} {
		writePart(h, part)
	}
	if v := f.Violation; v != nil {
		writePart(h, string(v.Code))
		writePart(h, faultPointer(v))
	} else {
		writePart(h, Template(f.Message))
	}
	fingerprint = sum(h)

	h.Reset()
	writePart(h, f.Subscription)
	writePart(h, f.Reason)
	return fingerprint, sum(h)
}

// writePart writes a string with its length, so that no two lists of parts
// give the same bytes.
func writePart(h hash.Hash, s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	h.Write(n[:])
	h.Write([]byte(s))
}

func sum(h hash.Hash) string {
	return FingerprintVersion + ":" + hex.EncodeToString(h.Sum(nil)[:16])
}

// faultPointer is where a violation is, without what differs from payload to
// payload: positions in arrays, names that look like ids, and the name of a
// property that the contract does not know.
func faultPointer(v *headgate.Violation) string {
	at := v.At
	if v.Code == headgate.ViolationUnknownProperty {
		at = at[:max(strings.LastIndexByte(at, '/'), 0)]
	}
	at = at[:min(len(at), maxTemplateInput)]
	var b strings.Builder
	for segment := range strings.SplitSeq(at, "/") {
		b.WriteString(Template(segment))
		b.WriteByte('/')
	}
	return b.String()
}
