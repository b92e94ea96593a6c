package pgrelay

import (
	"encoding/hex"
	"testing"
	"time"

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
