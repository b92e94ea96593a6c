package contract

import "testing"

// TestHexWord: every byte at every place is told from a hexadecimal digit.
func TestHexWord(t *testing.T) {
	for place := range 8 {
		for c := range 256 {
			text := []byte("09afAF5c")
			text[place] = byte(c)
			want := uint64(highBits)
			if !isHex(byte(c)) {
				want &^= 0x80 << (8 * place)
			}
			if got := hexWord(load8(string(text))); got != want {
				t.Errorf("%q: %016x, want %016x", text, got, want)
			}
		}
	}
}

// TestUUIDPlaces: each of the 36 places takes what it must and nothing else.
func TestUUIDPlaces(t *testing.T) {
	const good = "0190a1B2-7c3d-7e4f-8a5b-6C7d8e9f0a1b"
	for place := range len(good) {
		for c := range 256 {
			text := []byte(good)
			text[place] = byte(c)
			want := isHex(byte(c)) && good[place] != '-' || c == '-' && good[place] == '-'
			if isUUID(string(text)) != want {
				t.Errorf("%q: %t", text, !want)
			}
		}
	}
}
