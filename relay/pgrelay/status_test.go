package pgrelay

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/relay"
	"github.com/jackc/pglogrepl"
)

func TestTrap04StatusWithoutPositionIsRefused(t *testing.T) {
	at := time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)
	for _, c := range [][3]uint64{{0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {0, 0, 0}} {
		if b, err := encodeStatus(pglogrepl.LSN(c[0]), pglogrepl.LSN(c[1]), pglogrepl.LSN(c[2]), at, false); err == nil {
			t.Errorf("%v became %x", c, b)
		}
	}
	b, err := encodeStatus(3, 2, 1, at, false)
	if err != nil {
		t.Fatal(err)
	}
	const want = "72" + "0000000000000003" + "0000000000000002" + "0000000000000001" + "00000000000f4240" + "00"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A heartbeat counts once, in the session that wrote it, and only if that did.
func TestHeartbeatsAreKnownByTheirToken(t *testing.T) {
	open := func() *session {
		cfg := Config{Now: time.Now, Log: slog.New(slog.DiscardHandler)}
		x := &session{cfg: cfg, slot: "s", base: time.Now()}
		if _, err := rand.Read(x.secret[:]); err != nil {
			t.Fatal(err)
		}
		return x
	}
	x, other := open(), open()
	x.sent.Store(3)
	other.sent.Store(3)
	ours := func(from *session, nth, number int64, snapshot string) bool {
		text, err := json.Marshal(beat{Slot: "s", Beat: number, Snapshot: snapshot, Nth: nth, Token: from.token(nth)})
		if err != nil {
			t.Fatal(err)
		}
		m := relay.Mark{Text: string(text)}
		ok := x.ours(t.Context(), &m) != nil
		if ok && (m.Number != number || !strings.HasPrefix(m.Text, snapshot+" {")) {
			t.Errorf("the mark is %+v", m)
		}
		return ok
	}
	for _, c := range []struct {
		what        string
		from        *session
		nth, number int64
		snapshot    string
		want        bool
	}{
		{"another session's", other, 1, 10, "1:1:", false},
		{"the first", x, 1, 10, "1:9:3,5", true},
		{"the first again", x, 1, 10, "1:1:", false},
		{"one that was not sent", x, 4, 10, "1:1:", false},
		{"a repair's mark", x, 2, repairMark, "1:1:", false},
		{"no snapshot", x, 2, 11, "nonsense", false},
		{"the third", x, 3, 12, "1:1:", true},
		{"one before it", x, 2, 11, "1:1:", false},
	} {
		if got := ours(c.from, c.nth, c.number, c.snapshot); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}
