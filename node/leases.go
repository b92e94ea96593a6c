package node

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
)

// openLeases opens the lease service with the targets that it may seal. Their
// databases are reached when they are sealed: one that is down keeps no node
// from starting.
func (n *Node) openLeases(ctx context.Context, opts Options) error {
	seals, heard := map[string]lease.Target{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(n.cfg.Leases.Seal)) {
		target, at := n.cfg.Leases.Seal[name], joinPath("leases.seal", name)
		url, err := target.URL.Resolve()
		if err != nil {
			return n.cfg.at(at+".url", err)
		}
		if problem := target.urlProblem(url); problem != "" {
			return n.cfg.at(at+".url", headgate.NewError(headgate.CodeInvalidConfig, "%s", problem))
		}
		open, err := pickScheme(opts.Drivers.Seals, url, at+".url")
		if err != nil {
			return n.cfg.at(at+".url", err)
		}
		o := SealOptions{URL: url, Schema: target.Schema, Table: target.Table}
		if isHTTP(url) {
			o.Audience = cmp.Or(target.Audience, name)
			if other := heard[o.Audience]; other != "" {
				return n.cfg.at(at+".audience", headgate.NewError(headgate.CodeInvalidConfig, "%s", sharedAudience(other)))
			}
			heard[o.Audience] = name
		}
		seal, closeTarget, err := open(o)
		if err != nil {
			return n.cfg.at(at+".url", err)
		}
		seals[name] = seal
		n.closers = append(n.closers, closeTarget)
	}
	var err error
	n.Leases, err = lease.Open(ctx, lease.Config{Store: n.Store, Log: n.log, Seal: seals, May: n.mayGrant})
	return err
}

// validateSeals reports what is wrong with the targets to seal.
func (l *Loaded) validateSeals(p *problems) {
	heard := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(l.Leases.Seal)) {
		target := l.Leases.Seal[name]
		at := joinPath("leases.seal", name)
		if a := target.Audience; a != "" || isHTTP(string(target.URL)) {
			if a = cmp.Or(a, name); heard[a] != "" {
				p.add(at+".audience", "%s", sharedAudience(heard[a]))
			}
			heard[a] = name
		}
		if !lease.ValidTarget(name) {
			p.add(at, "a target is 1 to 64 letters, digits, \".\", \"_\", \":\", \"/\" and \"-\"")
		}
		switch u := string(target.URL); {
		case u == "":
			p.add(at, "url is missing")
		case target.URL.IsReference():
		case holdsPassword(u):
			p.add(at+".url", "holds a password; write env:NAME or file:PATH instead")
		default:
			if problem := target.urlProblem(u); problem != "" {
				p.add(at+".url", "%s", problem)
			}
		}
		if a := target.Audience; a != "" && !lease.ValidTarget(a) || cmp.Or(a, name) == lease.OwnAudience {
			p.add(at+".audience", "must be 1 to 64 letters, digits, \".\", \"_\", \":\", \"/\" and \"-\", and not %s", lease.OwnAudience)
		}
		if target.Schema != "" && target.Table != "" {
			p.add(at+".table", "goes without schema: the functions there have a table of their own")
		}
	}
}

// sharedAudience refuses a second service of one audience: the token that tells
// the one of a lease would be good at the other, before that knows of it.
func sharedAudience(other string) string {
	return "the target " + other + " has this audience, too; give each service one of its own"
}

// urlProblem says what is wrong with a resolved URL, "" when nothing is.
func (t *SealTarget) urlProblem(raw string) string {
	scheme, rest, _ := strings.Cut(raw, ":")
	switch {
	case isHTTP(raw):
		return t.serviceProblem(raw)
	case t.Audience != "":
		return "a database has no audience: it compares nonces"
	case strings.HasPrefix(rest, "//") && (scheme == "postgres" || scheme == "postgresql"):
		return ""
	case scheme == sqliteScheme && strings.Trim(rest, "/") != "":
		if t.Schema != "" {
			return "SQLite has no schemas"
		}
		return ""
	}
	return "want a URL such as postgres://USER@HOST:5432/DATABASE, sqlite:PATH or https://HOST/PATH"
}

func isHTTP(raw string) bool {
	return strings.HasPrefix(raw, "https://") || strings.HasPrefix(raw, "http://")
}

// serviceProblem says what is wrong with the URL of a service.
func (t *SealTarget) serviceProblem(raw string) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "" || u.Fragment != "":
		return "want a URL such as https://HOST/PATH"
	case u.Port() != "" && !ValidPort(u.Port()):
		return "want a port from 1 to 65535"
	case u.User != nil:
		return "a service has no user in its URL: the lease's token is the right to seal"
	case t.Schema != "" || t.Table != "":
		return "a service has no schema and no table"
	}
	return ""
}

// ValidPort reports whether text is the number of a port that can be called.
func ValidPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// addLeaseGauges adds what the leases of this node did since it started.
func (n *Node) addLeaseGauges() {
	st := n.Leases.Stats()
	n.metrics.Gauge("leases_waiting", "Calls that wait for a lease.", func() float64 { return float64(n.Leases.Waiting()) })
	for _, c := range []struct {
		name, help string
		count      *atomic.Uint64
	}{
		{"leases_granted", "Leases granted since the node started.", &st.Granted},
		{"leases_taken_over", "Leases granted over one that had run out.", &st.Takeovers},
		{"leases_renewed", "Renewals since the node started.", &st.Renewed},
		{"leases_renewed_late", "Renewals of leases that had run out: their holders were starved, or their TTL is too short.", &st.Late},
		{"leases_released", "Leases given back by their holders.", &st.Released},
		{"leases_revoked", "Leases ended by an operator.", &st.Revoked},
		{"fences_stale", "Writes and checks of superseded workers that were refused.", &st.Stale},
		{"fences_expired", "Writes and checks refused because the lease had run out or was being revoked.", &st.Expired},
	} {
		n.metrics.Gauge(c.name, c.help, func() float64 { return float64(c.count.Load()) })
	}
}
