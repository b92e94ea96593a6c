package outbound

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestClassify(t *testing.T) {
	for want, all := range map[class]string{
		public: "8.8.8.8 1.1.1.1 93.184.216.34 172.32.0.1 100.128.0.1 2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1",
		internal: "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 127.0.0.1 127.255.255.254 100.64.0.1 ::1 fc00::1 fd12::1 " +
			"::ffff:10.0.0.1 ::ffff:127.0.0.1 ::ffff:7f00:1 64:ff9b::10.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: 2002:a00:1::1",
		never: "0.0.0.0 0.1.2.3 169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16 192.0.0.192 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 " +
			"224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 :: fe80::1 fec0::1 ff02::1 fd00:ec2::254 fd20:ce::254 2001:db8::1 2001:0:1::1 100::1 " +
			"::ffff:169.254.169.254 ::ffff:a9fe:a9fe 64:ff9b::a9fe:a9fe 64:ff9b:1::a9fe:a9fe 2002:a9fe:a9fe:: ::169.254.169.254 ::127.0.0.1 fe80::1%eth0",
	} {
		for s := range strings.FieldsSeq(all) {
			if got := classify(addr(s)); got != want {
				t.Errorf("%s is of class %d, want %d", s, got, want)
			}
		}
	}
}

// network answers names as a test says, and counts; it connects everything to
// one server, and notes where it was to go.
type network struct {
	names  map[string][][]netip.Addr // by turns
	asked  map[string]int
	dialed []string
	server string
}

func (n *network) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	turns := n.names[host]
	if len(turns) == 0 {
		return nil, errors.New("no such host")
	}
	i := min(n.asked[host], len(turns)-1)
	n.asked[host]++
	return turns[i], nil
}

func (n *network) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	n.dialed = append(n.dialed, to.String())
	if n.server == "" {
		return nil, errors.New("nobody there")
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", n.server)
}

func (n *network) client(hosts ...string) *Client {
	n.asked = map[string]int{}
	return New(Config{Hosts: hosts, lookup: n.lookup, dial: n.dial})
}

func isDenied(err error) bool {
	return errors.Is(err, ErrDenied) && headgate.CodeOf(err) == headgate.CodeForbidden && headgate.AsError(err).Info().Outcome == headgate.NotApplied
}

// TestDenied: nothing is connected to for what must not be called.
func TestDenied(t *testing.T) {
	n := &network{names: map[string][][]netip.Addr{
		"inside.example":   {{addr("10.0.0.1")}},
		"mapped.example":   {{addr("::ffff:127.0.0.1")}},
		"metadata.example": {{addr("169.254.169.254")}},
		"mixed.example":    {{addr("93.184.216.34"), addr("127.0.0.1")}},
		"nat64.example":    {{addr("64:ff9b::a00:1")}},
		"0x7f.1":           {{addr("127.0.0.1")}}, // as some resolvers read it
		"2130706433":       {{addr("127.0.0.1")}},
		"named.example":    {{addr("169.254.169.254")}},
		"named2.example":   {{addr("10.0.0.1"), addr("fe80::1")}},
	}}
	c := n.client("named.example", "named2.example")
	for _, u := range []string{
		"https://inside.example/", "https://mapped.example/", "https://metadata.example/", "https://mixed.example/", "https://nat64.example/",
		"https://0x7f.1/", "https://2130706433/", "https://named.example/latest", "https://named2.example/",
		"https://127.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://169.254.169.254/latest/meta-data/",
		"https://[fd00:ec2::254]/", "https://[fe80::1%25eth0]/", "https://0.0.0.0/", "https://[::]/", "https://192.168.0.1:8443/",
		"http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "//example.com/", "https:example.com", "https://", "",
		"https://user@example.com/", "https://user:secret@example.com/", "https://example.com/#x", "https://example.com:0/", "https://example.com:99999/",
		"https://exa mple.com/", "https://example.com\\@inside.example/", "https://ｅxample.com/", "https://" + strings.Repeat("a", 3000) + "/",
	} {
		if _, err := c.Post(t.Context(), u, nil, nil); !isDenied(err) {
			t.Errorf("%.80s: %v", u, err)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells a password: %v", err)
		}
	}
	if len(n.dialed) != 0 {
		t.Errorf("connected to %v", n.dialed)
	}
}

// TestNamedHosts reach private ranges, and only they.
func TestNamedHosts(t *testing.T) {
	n := &network{names: map[string][][]netip.Addr{"crm.internal": {{addr("10.1.2.3"), addr("fd00::5")}}}}
	c := n.client("CRM.internal.", "169.254.169.254", "[::1]")
	for u, to := range map[string]string{
		"http://crm.internal:8080/x": "10.1.2.3:8080", "https://crm.internal./": "10.1.2.3:443",
		"http://169.254.169.254/": "169.254.169.254:80", "http://[::1]:9/": "[::1]:9",
	} {
		n.dialed = nil
		_, err := c.Post(t.Context(), u, nil, nil)
		if headgate.CodeOf(err) != headgate.CodeUnavailable || len(n.dialed) == 0 || n.dialed[0] != to {
			t.Errorf("%s: %v, connected to %v", u, err, n.dialed)
		}
	}
}

// TestRebinding: a name that is public when it is checked and this host when it
// is asked again gains nothing: it is asked once for each call.
func TestRebinding(t *testing.T) {
	n := &network{names: map[string][][]netip.Addr{"evil.example": {{addr("93.184.216.34")}, {addr("127.0.0.1")}}}}
	c := n.client()
	if _, err := c.Post(t.Context(), "https://evil.example/", nil, nil); headgate.CodeOf(err) != headgate.CodeUnavailable {
		t.Errorf("the first call: %v", err)
	}
	if n.asked["evil.example"] != 1 || len(n.dialed) != 1 || n.dialed[0] != "93.184.216.34:443" {
		t.Errorf("asked %v, connected to %v", n.asked, n.dialed)
	}
	if _, err := c.Post(t.Context(), "https://evil.example/", nil, nil); !isDenied(err) {
		t.Errorf("the second call: %v", err)
	}
	if len(n.dialed) != 1 {
		t.Errorf("connected to %v", n.dialed)
	}
}

// TestSocketIsChecked: the control of the real dialer refuses another address
// than the one that was checked.
func TestSocketIsChecked(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	c := New(Config{})
	at := &target{host: "x", port: port}
	if _, err := c.connect(t.Context(), at, netip.AddrPortFrom(addr("127.0.0.1"), port), time.Second); !errors.Is(err, ErrDenied) {
		t.Errorf("a host that is not named, on this host: %v", err)
	}
	at.named, at.port = true, port+1
	if _, err := c.connect(t.Context(), at, netip.AddrPortFrom(addr("127.0.0.1"), port), time.Second); !errors.Is(err, ErrDenied) {
		t.Errorf("another port: %v", err)
	}
	at.port = port
	conn, err := c.connect(t.Context(), at, netip.AddrPortFrom(addr("127.0.0.1"), port), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// TestExchange: what goes out, what comes back, and every bound on it, over a
// real connection and past the proxy of the environment.
func TestExchange(t *testing.T) {
	var proxied atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { proxied.Add(1) }))
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	var elsewhere atomic.Int64
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/x")
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Header.Get("X-A"), r.Header.Get("Accept-Encoding"))
	})
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusPreconditionFailed) })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		for range 20 {
			if _, err := w.Write(make([]byte, 1000)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Long", strings.Repeat("a", 100<<10)) })
	mux.HandleFunc("/hang", func(http.ResponseWriter, *http.Request) { <-release })
	mux.HandleFunc("/drip", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-release
	})
	srv := httptest.NewTLSServer(mux)
	defer srv.Close()
	defer close(release)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	host, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Hosts: []string{host.Hostname()}, Roots: roots, MaxBody: 10_000})
	got, err := c.Post(t.Context(), srv.URL+"/ok", http.Header{"X-A": {"b"}}, []byte("hello"))
	if err != nil || got.Status != 200 || got.Media != "text/x" || string(got.Body) != "POST b " {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = c.Post(t.Context(), srv.URL+"/refuse", nil, nil); err != nil || got.Status != http.StatusPreconditionFailed {
		t.Errorf("a refusal: %+v, %v", got, err)
	}
	for _, path := range []string{"/redirect", "/long", "/headers"} {
		if _, err = c.Post(t.Context(), srv.URL+path, nil, nil); headgate.CodeOf(err) != headgate.CodeUnavailable || headgate.AsError(err).Info().Outcome != headgate.Unknown {
			t.Errorf("%s: %v", path, err)
		}
	}
	c.cfg.Timeout = 200 * time.Millisecond
	for _, path := range []string{"/hang", "/drip"} {
		if _, err = c.Post(t.Context(), srv.URL+path, nil, nil); headgate.CodeOf(err) != headgate.CodeUnavailable {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err = New(Config{Hosts: []string{host.Hostname()}}).Post(t.Context(), srv.URL+"/ok", nil, nil); err == nil {
		t.Error("a certificate that nobody knows is accepted")
	}
	if elsewhere.Load() != 0 || proxied.Load() != 0 {
		t.Errorf("redirects followed %d times, the proxy asked %d times", elsewhere.Load(), proxied.Load())
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"https://example.com/", "https://[::ffff:127.0.0.1]:1/x", "http://a", "https://%31"} {
		f.Add(s)
	}
	c := New(Config{})
	f.Fuzz(func(t *testing.T, raw string) {
		at, err := c.parse(raw)
		if err != nil {
			if !isDenied(err) {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		if at.url.Scheme != "https" || at.named || at.port == 0 || at.url.User != nil || canonical(at.url.Hostname()) != at.host {
			t.Errorf("%q is %+v", raw, at)
		}
	})
}
