package gateway

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// requestID takes the caller's own request id when it is harmless, and makes
// one otherwise.
func (g *Gateway) requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); sane(id) {
		return id
	}
	return g.cfg.NewID()
}

// sane reports whether an id may be echoed and logged as it is.
func sane(id string) bool {
	if len(id) < 8 || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// checkSite refuses requests that a web page made a browser send: a loopback
// address is no boundary when a name can be rebound to it.
func (g *Gateway) checkSite(r *http.Request) error {
	host := hostname(r.Host)
	if !g.hostAllowed(r, host) {
		return &headgate.Error{
			Code: headgate.CodeForbidden, Detail: "The Host header names a host that this node does not serve.",
			Fix: "Call the node by its address or a name in its list of hosts (setting hosts).",
		}
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(g.cfg.Origins, origin) {
		return nil
	}
	u, err := url.Parse(origin)
	if err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) {
		return nil
	}
	return &headgate.Error{
		Code: headgate.CodeForbidden, Detail: "The Origin header names a web page that may not call this node.",
		Fix: "Add the origin to the node's list of origins (setting origins).",
	}
}

func (g *Gateway) hostAllowed(r *http.Request, host string) bool {
	if slices.ContainsFunc(g.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return true
	}
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if addr == nil {
		return true // not behind a listener: a handler called directly
	}
	if !isLoopback(hostname(addr.String())) {
		return len(g.cfg.Hosts) == 0
	}
	return strings.EqualFold(host, "localhost") || isLoopback(host)
}

// hostname cuts port and brackets off.
func hostname(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// authenticate finds the principal of the bearer token. A call that takes long
// does it again: from then on it has the rights that its principal has then.
func (g *Gateway) authenticate(c *Call) error {
	token, ok := bearer(c.R.Header)
	if !ok {
		return headgate.NewError(headgate.CodeUnauthenticated, "The request carries no bearer token.")
	}
	p, err := g.cfg.Principals.Authenticate(c.R.Context(), token)
	if err != nil {
		return err
	}
	c.Principal = p
	return nil
}

// stillLetIn reports whether the caller's token is good and its principal may
// do exactly what it might when the call began.
func (c *Call) stillLetIn() bool {
	token, _ := bearer(c.R.Header)
	p, err := c.g.cfg.Principals.Authenticate(c.R.Context(), token)
	return err == nil && p == c.Principal
}

// watch ends a wait when the caller's token ends, or when what its principal
// may do changes: it was let in on what is no longer so. Calling again tells.
func (g *Gateway) watch(ctx context.Context, c *Call, end func()) {
	for {
		changed := g.cfg.Principals.Changed()
		if !c.stillLetIn() {
			end()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// bearer returns the token of an Authorization header. Two such headers are
// refused: which one counts would depend on the reader.
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > 4096 {
		return "", false
	}
	return token, true
}
