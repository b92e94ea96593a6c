package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
)

func TestBearer(t *testing.T) {
	for name, tc := range map[string]struct {
		headers []string
		want    string
	}{
		"plain":          {[]string{"Bearer abc"}, "abc"},
		"any case":       {[]string{"bEaReR abc"}, "abc"},
		"absent":         {nil, ""},
		"another scheme": {[]string{"Basic abc"}, ""},
		"no token":       {[]string{"Bearer "}, ""},
		"bare":           {[]string{"Bearer"}, ""},
		"twice":          {[]string{"Bearer abc", "Bearer def"}, ""},
		"endless":        {[]string{"Bearer " + strings.Repeat("a", 5000)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := bearer(http.Header{"Authorization": tc.headers})
			if got != tc.want || ok != (tc.want != "") {
				t.Errorf("bearer = %q, %v; want %q", got, ok, tc.want)
			}
		})
	}
}

func TestSite(t *testing.T) {
	loopback, outside := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7420}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 7420}
	for name, tc := range map[string]struct {
		local        net.Addr
		hosts        []string
		host, origin string
		refused      bool
	}{
		"loopback by address":        {loopback, nil, "127.0.0.1:7420", "", false},
		"loopback by name":           {loopback, nil, "localhost:7420", "", false},
		"loopback by v6":             {loopback, nil, "[::1]:7420", "", false},
		"rebound name":               {loopback, nil, "evil.example:7420", "", true},
		"name that looks like local": {loopback, nil, "localhost.evil.example", "", true},
		"empty host":                 {loopback, nil, "", "", true},
		"listed name":                {loopback, []string{"gate.example"}, "gate.example", "", false},
		"outside, any name":          {outside, nil, "gate.example", "", false},
		"outside, listed":            {outside, []string{"gate.example"}, "GATE.example:7420", "", false},
		"outside, not listed":        {outside, []string{"gate.example"}, "other.example", "", true},
		"outside, spoofed loopback":  {outside, []string{"gate.example"}, "127.0.0.1", "", true},
		"same origin":                {loopback, nil, "localhost:7420", "http://localhost:7420", false},
		"foreign origin":             {loopback, nil, "localhost:7420", "https://evil.example", true},
		"other port is foreign":      {loopback, nil, "localhost:7420", "http://localhost:3000", true},
		"null origin":                {loopback, nil, "localhost:7420", "null", true},
		"listed origin":              {loopback, nil, "localhost:7420", "https://console.example", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Gateway{cfg: Config{Hosts: tc.hosts, Origins: []string{"https://console.example"}}}
			r := httptest.NewRequest(http.MethodGet, "/healthz", nil)
			r.Host = tc.host
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, tc.local))
			if tc.origin != "" {
				r.Header.Set("Origin", tc.origin)
			}
			err := g.checkSite(r)
			if (err != nil) != tc.refused {
				t.Errorf("checkSite = %v; want refused %v", err, tc.refused)
			}
			if err != nil && headgate.CodeOf(err) != headgate.CodeForbidden {
				t.Errorf("code %s", headgate.CodeOf(err))
			}
		})
	}
}

func TestCauseTokens(t *testing.T) {
	got, err := causeTokens(http.Header{api.HeaderCause: {"a, b", "c,,"}})
	if err != nil || strings.Join(got, "|") != "a|b|c" {
		t.Errorf("tokens %q, %v", got, err)
	}
	if _, err := causeTokens(http.Header{api.HeaderCause: {strings.Repeat("a,", 17)}}); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
		t.Errorf("17 tokens: %v", err)
	}
	if _, err := causeTokens(http.Header{api.HeaderCause: {strings.Repeat("a", 5000)}}); headgate.CodeOf(err) != headgate.CodeTokenInvalid {
		t.Errorf("long token: %v", err)
	}
	if got, err := causeTokens(http.Header{}); err != nil || got != nil {
		t.Errorf("no header: %q, %v", got, err)
	}
	for _, lost := range []string{"", " ", ",", " , ,"} {
		if got, err := causeTokens(http.Header{api.HeaderCause: {lost}}); headgate.CodeOf(err) != headgate.CodeTokenInvalid {
			t.Errorf("header %q: %q, %v; its event would become a root", lost, got, err)
		}
	}
}

func TestStrictDecoding(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		code headgate.Code
		says string
	}{
		"good":            {`{"max":3,"wait":"30s"}`, "", ""},
		"seconds":         {`{"max":3,"wait":1.5}`, "", ""},
		"days":            {`{"wait":"7d"}`, "", ""},
		"empty":           {``, headgate.CodeSyntax, "empty"},
		"broken":          {`{"max":`, headgate.CodeSyntax, "line 1"},
		"two values":      {`{} {}`, headgate.CodeSyntax, ""},
		"repeated name":   {`{"max":1,"max":2}`, headgate.CodeSyntax, ""},
		"repeated escape": {`{"max":1,"m\u0061x":2}`, headgate.CodeSyntax, ""},
		"unknown name":    {`{"maxx":1}`, headgate.CodeInvalidArgument, `"maxx"`},
		"wrong type":      {`{"max":"three"}`, headgate.CodeInvalidArgument, "max"},
		"negative":        {`{"wait":-3}`, headgate.CodeInvalidArgument, "duration"},
		"nonsense":        {`{"wait":"soon"}`, headgate.CodeInvalidArgument, "duration"},
		"huge":            {`{"wait":1e300}`, headgate.CodeInvalidArgument, "duration"},
	} {
		t.Run(name, func(t *testing.T) {
			err := decodeStrict([]byte(tc.text), &api.PullRequest{})
			if headgate.CodeOf(err) != tc.code {
				t.Fatalf("error %v; want code %q", err, tc.code)
			}
			if err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
		})
	}
	err := headgate.AsError(decodeStrict([]byte(`{"settle":[{"claim":"x","outcom":"ack"}]}`), &api.SettleRequest{}))
	if err == nil || !strings.Contains(err.Fix, `"outcome"`) {
		t.Errorf("no suggestion for outcom: %+v", err)
	}
}

func TestBudgetBoundsAndGivesBack(t *testing.T) {
	b := newBudget(3, 2, 100, 60)
	first, err := b.enter("a")
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.enter("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.enter("a"); headgate.CodeOf(err) != headgate.CodeOverloaded {
		t.Errorf("third of a: %v", err)
	}
	third, err := b.enter("b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.enter("c"); headgate.CodeOf(err) != headgate.CodeOverloaded {
		t.Errorf("fourth in total: %v", err)
	}
	if err := first.reserve(50); err != nil {
		t.Fatal(err)
	}
	if err := second.reserve(11); headgate.CodeOf(err) != headgate.CodeOverloaded {
		t.Errorf("beyond a's bytes: %v", err)
	}
	if err := third.reserve(51); headgate.CodeOf(err) != headgate.CodeOverloaded {
		t.Errorf("beyond all bytes: %v", err)
	}
	if e := headgate.AsError(first.reserve(1000)); e == nil || e.RetryAfter <= 0 {
		t.Errorf("no delay suggested: %v", e)
	}
	for _, s := range []*share{first, second, third} {
		s.leave()
	}
	if b.requests != 0 || b.bytes != 0 || len(b.own) != 0 {
		t.Errorf("not given back: %d requests, %d bytes, %d principals", b.requests, b.bytes, len(b.own))
	}
}

func TestCursorRoundTrip(t *testing.T) {
	const text = "events=0:12,1:40;support=0:3,3:18446744073709551615"
	c, err := parseCursor(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(c.append(nil)); got != text {
		t.Errorf("cursor %q became %q", text, got)
	}
	for _, bad := range []string{"events", "=0:1", "events=", "events=x", "events=0:1;events=0:2", "events=0:-1", strings.Repeat("a", maxCursor+1)} {
		if _, err := parseCursor(bad); err == nil {
			t.Errorf("cursor %q was taken", bad[:min(40, len(bad))])
		}
	}
}

func TestSpecVersionIsAddedOnlyWhereMissing(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                                    `{"specversion":"1.0"}`,
		`{"type":"a.b"}`:                        `{"specversion":"1.0","type":"a.b"}`,
		` {"data":{"specversion":"2"},"n":[1]}`: ` {"specversion":"1.0","data":{"specversion":"2"},"n":[1]}`,
		`{"specversion":"0.3"}`:                 `{"specversion":"0.3"}`,
		`{"specversi\u006fn":"1.0"}`:            `{"specversi\u006fn":"1.0"}`,
		`[1]`:                                   `[1]`,
		`{"a":`:                                 `{"a":`,
	} {
		if got := string(withSpecVersion([]byte(in))); got != want {
			t.Errorf("%s became %s; want %s", in, got, want)
		}
	}
}

func FuzzRequestDecoding(f *testing.F) {
	f.Add([]byte(`{"settle":[{"claim":"c","outcome":"ack","emit":[{"type":"a.b","data":{}}]}]}`))
	f.Add([]byte(`{"max":1,"wait":"30s"}`))
	f.Add([]byte("{\"max\":\xff}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, dst := range []any{&api.PullRequest{}, &api.SettleRequest{}, &api.SubscriptionSpec{}, &api.Principal{}} {
			err := decodeStrict(b, dst)
			if err == nil {
				continue
			}
			e := headgate.AsError(err)
			if e == nil || (e.Code != headgate.CodeSyntax && e.Code != headgate.CodeInvalidArgument) {
				t.Fatalf("error %v", err)
			}
			if len(e.Detail) > 600 {
				t.Fatalf("error echoes %d bytes", len(e.Detail))
			}
			if strings.ContainsAny(e.Detail+e.Fix, "\n\r\x00") {
				t.Fatalf("error echoes control characters: %q", e.Detail)
			}
		}
	})
}

func FuzzSpecVersion(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1]},"c":"\u0073"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		out := withSpecVersion(b)
		if json.Valid(b) && !json.Valid(out) {
			t.Fatalf("%q became %q", b, out)
		}
	})
}

func FuzzCursor(f *testing.F) {
	f.Add("events=0:12,1:40;support=0:3")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCursor(s)
		if err != nil {
			return
		}
		again, err := parseCursor(string(c.append(nil)))
		if err != nil {
			t.Fatalf("%q: own form is refused: %v", s, err)
		}
		if !bytes.Equal(again.append(nil), c.append(nil)) {
			t.Fatalf("%q is not stable", s)
		}
	})
}

// A body that lies about its length must not cost what it announces.
func TestMemoryFollowsArrival(t *testing.T) {
	b := newBudget(10, 10, 1<<30, 1<<30)
	sh, err := b.enter("a")
	if err != nil {
		t.Fatal(err)
	}
	c := &Call{share: sh}
	if _, err := c.readBody(strings.NewReader("short"), 500<<20, 1<<30); err != nil {
		t.Fatal(err)
	}
	if sh.bytes > 64<<10 {
		t.Errorf("a 5-byte body that announced 500 MiB was charged %d bytes", sh.bytes)
	}
	if _, err := c.readBody(io.LimitReader(zeros{}, 2000), -1, 1000); headgate.CodeOf(err) != headgate.CodeTooLarge {
		t.Errorf("2000 bytes against a limit of 1000: %v", err)
	}
	if _, err := c.readBody(strings.NewReader(""), 2000, 1000); headgate.CodeOf(err) != headgate.CodeTooLarge {
		t.Errorf("announced 2000 bytes against a limit of 1000: %v", err)
	}
	got, err := c.readBody(io.LimitReader(zeros{}, 100_000), -1, 1<<20)
	if err != nil || len(got) != 100_000 {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
