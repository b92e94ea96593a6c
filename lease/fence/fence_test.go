package fence_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
)

func TestTemplate(t *testing.T) {
	for _, c := range []struct{ in, sql string }{
		{"ticket/{id}", `'ticket/' || CAST(NEW."id" AS text)`},
		{"whole", "'whole'"},
		{"{a}/{ b }", `CAST(NEW."a" AS text) || '/' || CAST(NEW."b" AS text)`},
		{"it's {we\"ird}", `'it''s ' || CAST(NEW."we""ird" AS text)`},
		{"{{x}}{y}", `'{x}' || CAST(NEW."y" AS text)`},
	} {
		got, err := fence.ParseTemplate(c.in)
		if err != nil || got.SQL("NEW.") != c.sql {
			t.Errorf("%s: %s, %v, want %s", c.in, got.SQL("NEW."), err, c.sql)
		}
	}
	for _, in := range []string{"", "{", "}", "{}", "{a", "a}", "{a{b}", "a\x00b", "a//b", " a", strings.Repeat("a", 600), "\xff{a}"} {
		if got, err := fence.ParseTemplate(in); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
			t.Errorf("%q is read as %v, %v", in, got, err)
		}
	}
}

func token(res, epoch, nonce string) string {
	text := fmt.Sprintf(`{"res":%q,"epoch":%q,"nonce":%q}`, res, epoch, nonce)
	return "hgl1." + base64.RawURLEncoding.EncodeToString([]byte(text)) + ".x"
}

const nonce = "AAAAAAAAAAAAAAAAAAAAAA"

func TestParse(t *testing.T) {
	f, err := fence.Parse(token("ticket/1", "42", nonce))
	if err != nil || f.String() != "ticket/1@42" || f.NonceText() != nonce {
		t.Errorf("%v, %v", f, err)
	}
	for _, bad := range []string{
		"", "hgl1.", "hgl2.x.y", "hgl1.!.x", token("", "1", nonce), token("a", "0", nonce), token("a", "-1", nonce), token("a", "1e3", nonce),
		token("a", "9007199254740993", nonce), token("a", "1", "AAAA"), token("a", "1", nonce+"="), token("a//b", "1", nonce), strings.Repeat("h", 5000),
	} {
		if f, err := fence.Parse(bad); headgate.CodeOf(err) != headgate.CodeFenceInvalid {
			t.Errorf("%.40q is read as %v, %v", bad, f, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(token("ticket/1", "42", nonce))
	f.Fuzz(func(t *testing.T, in string) {
		got, err := fence.Parse(in)
		if err == nil && got.Check(time.Time{}) != nil {
			t.Errorf("an invalid fence is read from %q", in)
		}
	})
}

func FuzzTemplate(f *testing.F) {
	f.Add("ticket/{id}'{{")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := fence.ParseTemplate(in)
		if err != nil {
			return
		}
		// Outside of quoted names and literals only the fixed words are left.
		rest := got.SQL("")
		for _, p := range got {
			if p.Column == "" {
				rest = strings.Replace(rest, fence.Literal(p.Text), "", 1)
			} else {
				rest = strings.Replace(rest, "CAST("+fence.Ident(p.Column)+" AS text)", "", 1)
			}
		}
		if strings.Trim(strings.ReplaceAll(rest, "||", ""), " ") != "" {
			t.Errorf("%q leaves %q", in, rest)
		}
	})
}

// Deadlines only make a fence stricter.
func TestDeadline(t *testing.T) {
	now := time.Now()
	f := fence.Fence{Resource: "a", Epoch: 1, Nonce: make([]byte, fence.NonceSize)}
	if err := f.Check(now); err != nil || f.Left(now, time.Second) != time.Second {
		t.Errorf("without a deadline: %v, %s", err, f.Left(now, time.Second))
	}
	f.Deadline = now.Add(100 * time.Millisecond)
	if err := f.Check(now); err != nil || f.Left(now, time.Second) != 100*time.Millisecond || f.Left(now, time.Millisecond) != time.Millisecond {
		t.Errorf("before the deadline: %v, %s", err, f.Left(now, time.Second))
	}
	if err := f.Check(f.Deadline); headgate.CodeOf(err) != headgate.CodeLeaseExpired {
		t.Errorf("at the deadline: %v", err)
	}
}

// What is remembered is final, of its resource, and bounded.
func TestSeen(t *testing.T) {
	var s fence.Seen
	of := func(resource string, epoch int64) fence.Fence { return fence.Fence{Resource: resource, Epoch: epoch} }
	s.Note(of("a", 5))
	s.Note(of("a", 3))
	for epoch, want := range map[int64]headgate.Code{4: headgate.CodeStaleFence, 5: headgate.CodeStaleFence, 6: ""} {
		if got := headgate.CodeOf(s.Check(of("a", epoch))); got != want {
			t.Errorf("epoch %d: %q, want %q", epoch, got, want)
		}
	}
	if err := s.Check(of("b", 1)); err != nil {
		t.Error(err)
	}
	for i := range 1 << 16 {
		s.Note(of(fmt.Sprint("r/", i), 1))
	}
	if err := s.Check(of("a", 5)); err != nil {
		t.Errorf("it never forgets: %v", err)
	}
}
