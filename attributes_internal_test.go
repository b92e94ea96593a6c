package headgate

import "testing"

// TestNamesAgree: the table of names and the switch over them say the same.
func TestNamesAgree(t *testing.T) {
	for a := attr(0); a < attrCount; a++ {
		if got := attrOf(attrNames[a]); got != a {
			t.Errorf("%s is attribute %d by the table and %d by the switch", attrNames[a], a, got)
		}
	}
	if got := attrOf("nothing"); got != attrCount {
		t.Errorf("an unknown name is attribute %d", got)
	}
	if attrCount > 32 {
		t.Error("the sets of attributes have 32 bits")
	}
}
