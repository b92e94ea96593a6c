package fencepg_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/lease/fencepg"
)

// Whatever is presented as a fence, the answer is a refusal of class HG, or
// the fence is the good one: never an error of what tried to read it.
func TestRandomFences(t *testing.T) {
	ctx := t.Context()
	_, url := sealed(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	f := grant("t/1", 7)
	want(t, "seal", new(fencepg.DB).Seal(ctx, connect(t, url), f), "")
	n := 3000
	if campaign() {
		n = 100_000
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	payload := fmt.Sprintf(`{"res":"t/1","epoch":"7","nonce":"%s","holder":"a","aud":["b"]}`, f.NonceText())
	passed, states := 0, map[string]int{}
	for i := range n {
		var err error
		var what string
		if i%3 == 0 {
			resource, nonce := spoil(random, f.Resource), spoil(random, f.NonceText())
			epoch := []int64{7, 7, 7, 6, 8, 0, -1, 1<<53 - 1, 1 << 53, 1<<63 - 1, -1 << 63}[random.IntN(11)]
			what = fmt.Sprintf("%q, %d, %q", resource, epoch, nonce)
			_, err = conn.Exec(ctx, "SELECT headgate.fence($1, $2::bigint, $3)", resource, epoch, nonce)
		} else {
			token := "hgl1." + base64.RawURLEncoding.EncodeToString([]byte(spoil(random, payload))) + ".AAAA"
			if i%3 == 2 {
				token = spoil(random, "hgl1."+base64.RawURLEncoding.EncodeToString([]byte(payload))+".AAAA")
			}
			what = fmt.Sprintf("%q", token)
			_, err = conn.Exec(ctx, "SELECT headgate.fence($1::text)", token)
		}
		state := fencepg.State(err)
		states[state]++
		switch {
		case err == nil:
			passed++
		case !slices.Contains([]string{fencepg.StateMissing, fencepg.StateStale, fencepg.StatePlace, fencepg.StateConflict}, state):
			t.Errorf("seed %d: %s: %v", seed, what, err)
		}
	}
	if passed == 0 || passed > n/2 || states[fencepg.StateMissing] < n/10 {
		t.Errorf("%d of %d passed, refusals %v: the test shows little", passed, n, states)
	}
	t.Logf("seed %d: %d fences: %v", seed, n, states)
}

// spoil changes a text here and there, or not at all. It stays text: what is
// none does not reach the server's functions.
func spoil(random *rand.Rand, s string) string {
	pieces := []string{"", "\"", "{", "}", "[", "]", "\\", "\\u0000", "\\ud800", ".", "/", "//", "=", "-", "_", "+", "\t", "\n", " ", "é", "\u2028", "0", "9", "null", "1e9", "'", "%", strings.Repeat("9", 40), strings.Repeat("[", 300), strings.Repeat("A", 5000)}
	for range random.IntN(3) {
		at := random.IntN(len(s) + 1)
		end := min(len(s), at+random.IntN(4))
		s = strings.ToValidUTF8(s[:at]+pieces[random.IntN(len(pieces))]+s[end:], "?")
	}
	return s
}
