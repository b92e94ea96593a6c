package outbound

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate"
)

// Defaults and bounds.
const (
	DefaultTimeout = 10 * time.Second
	DefaultMaxBody = 64 << 10
	maxHeader      = 16 << 10 // of a response, in bytes
	maxAddresses   = 16       // that one name may have
)

// ErrDenied is wrapped by errors about an address that must not be called.
var ErrDenied = errors.New("outbound: the address must not be called")

// Config configures a client. The zero value reaches the public Internet by
// HTTPS.
type Config struct {
	// Hosts are the names and addresses, without ports, that the operator's
	// configuration names: they may be in private ranges, and called without
	// TLS.
	Hosts []string
	// Timeout bounds an exchange from the resolution to the end of the body;
	// default 10 s. A context may be shorter.
	Timeout time.Duration
	// MaxBody bounds the body of a response, in bytes; default 64 KiB.
	MaxBody int64
	// Roots verify servers; nil: those of the host.
	Roots *x509.CertPool

	lookup func(ctx context.Context, host string) ([]netip.Addr, error)     // tests have names of their own
	dial   func(ctx context.Context, addr netip.AddrPort) (net.Conn, error) // and networks
}

// Client makes calls.
type Client struct {
	cfg   Config
	named map[string]bool
}

// New returns a client.
func New(cfg Config) *Client {
	cfg.Timeout, cfg.MaxBody = cmp.Or(max(cfg.Timeout, 0), DefaultTimeout), cmp.Or(max(cfg.MaxBody, 0), DefaultMaxBody)
	c := &Client{cfg: cfg, named: make(map[string]bool, len(cfg.Hosts))}
	for _, h := range cfg.Hosts {
		c.named[canonical(h)] = true
	}
	if c.cfg.lookup == nil {
		c.cfg.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	return c
}

// Response is an answer. Its body is the other side's and not to be trusted.
type Response struct {
	Status int
	Media  string // the Content-Type, as it came
	Body   []byte
}

// Check says whether a URL could be called, without calling or resolving it.
// Its error is forbidden.
func (c *Client) Check(raw string) error {
	_, err := c.parse(raw)
	return err
}

// Post sends a body to a URL and returns the answer, whatever its status; but a
// redirect is an error. Errors: see the package.
func (c *Client) Post(ctx context.Context, raw string, header http.Header, body []byte) (*Response, error) {
	t, err := c.parse(raw)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	addrs, err := c.resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, denied("the URL cannot be requested")
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	var sent atomic.Bool // a dial may outlast the call
	transport := c.transport(t, addrs, &sent)
	defer transport.CloseIdleConnections()
	hc := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := hc.Do(req)
	if err != nil {
		return nil, failed(err, sent.Load())
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		e := failed(errors.New("the server redirects"), true)
		e.Detail = "The server redirects, which is not followed (status " + strconv.Itoa(resp.StatusCode) + ")."
		return nil, e
	}
	var got bytes.Buffer
	switch _, err = io.CopyN(&got, resp.Body, c.cfg.MaxBody+1); {
	case err == nil:
		return nil, failed(errors.New("the answer is longer than it may be"), true)
	case !errors.Is(err, io.EOF):
		return nil, failed(err, true)
	}
	return &Response{Status: resp.StatusCode, Media: resp.Header.Get("Content-Type"), Body: got.Bytes()}, nil
}

// failed is the error of a call that did not come to an answer.
func failed(err error, sent bool) *headgate.Error {
	if e := headgate.AsError(err); e != nil {
		return e
	}
	e := &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.NotApplied, Detail: "The server cannot be reached.", Err: err}
	if sent {
		e.Outcome, e.Detail = headgate.Unknown, "The server gave no whole answer."
	}
	return e
}

func denied(why string) *headgate.Error {
	return &headgate.Error{
		Code: headgate.CodeForbidden, Outcome: headgate.NotApplied, Detail: "The address must not be called: " + why + ".", Err: ErrDenied,
		Fix: "Correct the URL, or name its host in the configuration if it is meant.",
	}
}

// target is where a URL leads.
type target struct {
	url   *url.URL
	host  string // canonical
	port  uint16
	named bool
}

func (c *Client) parse(raw string) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Host == "" || len(raw) > 2048 {
		return nil, denied("it is no URL of a host")
	}
	if u.User != nil || u.Fragment != "" {
		return nil, denied("its URL has a user or a fragment")
	}
	t := &target{url: u, host: canonical(u.Hostname())}
	if t.host == "" || strings.ContainsFunc(t.host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("%*,/\\@", r) }) {
		return nil, denied("its URL names no host")
	}
	t.named = c.named[t.host]
	switch u.Scheme {
	case "https":
		t.port = 443
	case "http":
		if t.port = 80; !t.named {
			return nil, denied("it is not HTTPS")
		}
	default:
		return nil, denied("it is not HTTPS")
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, denied("its port is none")
		}
		t.port = uint16(n)
	}
	return t, nil
}

// canonical is the one spelling of a host by which hosts are compared.
func canonical(host string) string {
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().String()
	}
	return host
}

// resolve returns the addresses of a host, all of which it may be reached on.
func (c *Client) resolve(ctx context.Context, t *target) ([]netip.Addr, error) {
	literal, err := netip.ParseAddr(t.host)
	if err == nil {
		if class := classify(literal); class != public && !t.named {
			return nil, denied("it is not of the public Internet")
		}
		return []netip.Addr{literal}, nil
	}
	found, err := c.cfg.lookup(ctx, t.host)
	if err != nil || len(found) == 0 {
		e := failed(errors.Join(err, errors.New("no address")), false)
		e.Detail = "The name of the server cannot be resolved."
		return nil, e
	}
	for _, a := range found {
		if !t.may(a) {
			return nil, denied("its name leads to an address that is not of the public Internet")
		}
	}
	return found[:min(len(found), maxAddresses)], nil
}

// may reports whether the target may be reached on an address.
func (t *target) may(a netip.Addr) bool {
	switch classify(a) {
	case public:
		return true
	case internal:
		return t.named
	}
	return t.named && t.host == a.Unmap().String()
}

// transport connects to the addresses, in their order, and to nothing else.
func (c *Client) transport(t *target, addrs []netip.Addr, sent *atomic.Bool) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // whatever the environment says
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.cfg.Roots},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var errs []error
			for _, a := range addrs {
				conn, err := c.connect(ctx, t, netip.AddrPortFrom(a, t.port), c.cfg.Timeout/time.Duration(len(addrs)))
				if err == nil {
					sent.Store(true)
					return conn, nil
				}
				if errors.Is(err, ErrDenied) {
					return nil, err
				}
				errs = append(errs, err)
			}
			return nil, errors.Join(errs...)
		},
	}
}

// connect connects to one address, in its share of the time; the socket has to
// be to that very one.
func (c *Client) connect(ctx context.Context, t *target, to netip.AddrPort, most time.Duration) (net.Conn, error) {
	if c.cfg.dial != nil {
		return c.cfg.dial(ctx, to)
	}
	d := net.Dialer{Timeout: most, Control: func(_, address string, _ syscall.RawConn) error {
		got, err := netip.ParseAddrPort(address)
		if err != nil || got.Port() != t.port || got.Addr().Unmap() != to.Addr().Unmap() || !t.may(got.Addr()) {
			return denied("the connection would go elsewhere")
		}
		return nil
	}}
	return d.DialContext(ctx, "tcp", to.String())
}
