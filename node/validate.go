package node

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/internal/condition"
	"github.com/headgate/headgate/internal/resource"
	"github.com/headgate/headgate/principal"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/topology"
)

// Loaded is a configuration with the place of every setting in its file.
type Loaded struct {
	Config
	places map[string]place
}

// problems collects what is wrong, with places where they are known.
type problems struct {
	places map[string]place
	list   []Problem
}

func (p *problems) add(path, format string, args ...any) {
	at := placeOf(p.places, path)
	p.list = append(p.list, Problem{Line: at.line, Column: at.column, Path: path, Message: fmt.Sprintf(format, args...)})
}

// placeOf returns the place of a setting, or of the nearest that it is part of.
func placeOf(places map[string]place, path string) place {
	for {
		at, found := places[path]
		cut := strings.LastIndexAny(path, ".[")
		if found || cut < 0 {
			return at
		}
		path = path[:cut]
	}
}

// at returns the error of a step that a setting is behind with the setting, and
// its place in the file, unless the error names the setting itself.
func (l *Loaded) at(path string, err error) error {
	e := headgate.AsError(err)
	if e == nil {
		e = &headgate.Error{Code: headgate.CodeInvalidConfig, Detail: err.Error(), Err: err}
	}
	where := placeOf(l.places, path)
	said := e.Detail
	if around, _, found := strings.Cut(err.Error(), e.Error()); found {
		said = around + said
	}
	placed := *e
	placed.Detail = Problem{Line: where.line, Column: where.column, Path: path, Message: strings.TrimPrefix(said, path+": ")}.String()
	return &placed
}

// refusedAt is at for steps that also reach servers: what fails there is not
// the fault of a line, and is told with the setting alone.
func (l *Loaded) refusedAt(path string, err error) error {
	switch headgate.CodeOf(err) {
	case headgate.CodeInvalidConfig, headgate.CodeInvalidArgument, headgate.CodeConflict, headgate.CodeContractInvalid:
		return l.at(path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// urlOf is the setting behind a driver that does not open: its URL, or the driver
// itself when it is embedded.
func urlOf(driver string, url Secret) string {
	if url == "" {
		return driver
	}
	return driver + ".url"
}

// Validate returns every problem of the configuration at once.
func (l *Loaded) Validate() []Problem {
	p := &problems{places: l.places}
	l.validateNode(p)
	l.validateDefaults(p)
	l.validatePrincipals(p)
	l.validateTopology(p)
	for _, name := range slices.Sorted(maps.Keys(l.Subscriptions)) {
		spec := l.subscriptionSpec(name)
		for _, fault := range spec.Faults() {
			setting, what, _ := strings.Cut(fault, ": ")
			p.add(joinPath("subscriptions", name)+"."+setting, "%s", what)
		}
		if !router.ValidName(name) {
			p.add(joinPath("subscriptions", name), "the name of a subscription is 1 to 100 letters, digits, \".\", \"_\" or \"-\", starting with a letter or digit")
		}
		if spec.As != "" && !principal.ValidName(spec.As) {
			p.add(joinPath("subscriptions", name)+".as", "%q is not the name of a principal: %s", clip([]byte(spec.As)), principal.NameForm)
		}
		l.validateLease(p, name, &spec)
		if spec.As == "" {
			p.add(joinPath("subscriptions", name), "as is missing: the principal that consumes; only a subscription with the name of a declared principal may leave it out")
		}
	}
	return p.list
}

// validateLease reports a subscription whose principal may not lease anything
// that its template can yield: its deliveries would wait for ever.
func (l *Loaded) validateLease(p *problems, name string, spec *router.Spec) {
	template, err := condition.CompileTemplate(spec.Lease)
	if spec.Lease == "" || err != nil {
		return
	}
	for _, pr := range l.Principals {
		if pr.Name != spec.As || slices.Contains(pr.Roles, headgate.RoleAdmin) {
			continue
		}
		if !slices.ContainsFunc(pr.Lease, func(pattern string) bool { return resource.MayMeet(pattern, template) }) {
			p.add(joinPath("subscriptions", name)+".lease", "principal %s may lease nothing that it can yield; add a pattern to the principal's lease", pr.Name)
		}
	}
}

// validateTopology puts each fault of defaults, streams and types at the setting
// that has it.
func (l *Loaded) validateTopology(p *problems) {
	_, err := l.Topology()
	for _, f := range topology.Faults(err) {
		path := f.In
		if f.In != "defaults" {
			path = joinPath(path, f.Name)
		}
		if f.Setting != "" {
			path += "." + f.Setting
		}
		p.add(path, "%s", f.What)
	}
}

func detail(err error) string {
	if e := headgate.AsError(err); e != nil && e.Detail != "" {
		return e.Detail
	}
	return err.Error()
}

func (l *Loaded) validateNode(p *problems) {
	if l.Version != 0 && l.Version != 1 {
		p.add("version", "this build reads version 1, not %d", l.Version)
	}
	if host, port, err := net.SplitHostPort(l.listen()); err != nil || !listenable(port) || !hostname(host) {
		p.add("listen", "want HOST:PORT, not %q", clip([]byte(l.Listen)))
	}
	if err := folder(l.dataDir()); err != nil {
		p.add("data", "%v", err)
	}
	for i, name := range l.Hosts {
		if name == "" || strings.ContainsAny(name, ":/ ") {
			p.add(fmt.Sprintf("hosts[%d]", i), "want a name without port, not %q", clip([]byte(name)))
		}
	}
	for i, origin := range l.Origins {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host {
			p.add(fmt.Sprintf("origins[%d]", i), "want SCHEME://HOST[:PORT], not %q", clip([]byte(origin)))
		}
	}
	l.validateStore(p)
	oneOf(p, "broker.driver", l.Broker.Driver, "nats", "memory")
	if l.Broker.Driver == "memory" && !l.Dev {
		p.add("broker.driver", "memory keeps no event past the process; only headgate dev takes it")
	}
	if strings.Trim(l.Broker.Prefix, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || len(l.Broker.Prefix) > 32 {
		p.add("broker.prefix", "want 1 to 32 capital letters, digits and \"_\"")
	}
	if l.Broker.Replicas < 0 || l.Broker.Replicas > 5 {
		p.add("broker.replicas", "want 1 to 5")
	}
	if l.Broker.Replicas > 1 && l.Broker.URL == "" {
		p.add("broker.replicas", "the embedded server is one host; name an outside cluster by broker.url")
	}
	if u := string(l.Broker.URL); !l.Broker.URL.IsReference() && strings.Contains(u, "@") {
		p.add("broker.url", "holds a password; write env:NAME or file:PATH instead")
	}
	if l.Broker.Credentials != "" && l.Broker.URL == "" {
		p.add("broker.credentials", "the embedded server takes none; name an outside one by broker.url")
	}
	oneOf(p, "durability", l.Durability, "fsync", "relaxed")
	oneOf(p, "contracts.compatibility", l.Contracts.Compatibility, "none", "backward", "backward_transitive", "forward", "forward_transitive", "full", "full_transitive")
	oneOf(p, "contracts.unknown_fields", l.Contracts.UnknownFields, "as_schema", "refuse")
	if len(l.Sources) > 0 {
		p.add("sources", "sources are not part of this version")
	}
	l.validateOutbox(p)
	l.validateSeals(p)
	for _, name := range slices.Sorted(maps.Keys(l.Streams)) {
		oneOf(p, joinPath("streams", name)+".format", l.Streams[name].Format, "frame")
		oneOf(p, joinPath("streams", name)+".index", l.Streams[name].Index, "on", "off")
	}
}

func (l *Loaded) validateStore(p *problems) {
	oneOf(p, "store.driver", l.Store.Driver, "sqlite", "postgres")
	switch {
	case l.Store.Driver != "postgres" && l.Store.URL != "":
		p.add("store.url", "the sqlite driver takes none; its file lies in data")
	case l.Store.Driver == "postgres" && l.Store.URL == "":
		p.add("store", "the postgres driver needs a url, such as env:NAME")
	case l.Store.Driver == "postgres" && l.Memory:
		p.add("store.driver", "postgres cannot keep everything in memory")
	}
	if u := string(l.Store.URL); !l.Store.URL.IsReference() && holdsPassword(u) {
		p.add("store.url", "holds a password; write env:NAME or file:PATH instead")
	}
}

// holdsPassword reports whether a database's URL, which may name several hosts,
// holds a password beside the user or as a parameter.
func holdsPassword(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	user, _, found := strings.Cut(rest, "@")
	return found && strings.Contains(user, ":") || strings.Contains(url, "password=")
}

// oneOf reports a value that is neither empty nor one of the choices.
func oneOf(p *problems, path, got string, choices ...string) {
	if got != "" && !slices.Contains(choices, got) {
		p.add(path, "want %s, not %q", strings.Join(choices, " or "), clip([]byte(got)))
	}
}

func (l *Loaded) validateDefaults(p *problems) {
	for _, c := range []struct {
		path     string
		got, max int
	}{
		{"quarantine.refusal_quota", l.Quarantine.RefusalQuota, 1_000_000},
		{"limits.connections", l.Limits.Connections, 1_000_000},
	} {
		if c.got < 0 || c.got > c.max {
			p.add(c.path, "want 1 to %d", c.max)
		}
	}
	for path, size := range map[string]struct{ got, min Size }{
		"limits.in_flight": {l.Limits.InFlight, minInFlight}, "limits.body": {l.Limits.Body, minBody},
	} {
		if size.got != 0 && size.got < size.min {
			least, _ := size.min.MarshalText() // never fails
			p.add(path, "want at least %s", least)
		}
	}
	spans := map[string]Duration{"quarantine.retain": l.Quarantine.Retain}
	for i := range l.Outbox {
		spans[fmt.Sprintf("outbox[%d].retain", i)] = l.Outbox[i].Retain
	}
	for path, span := range spans {
		if time.Duration(span) > topology.MaxRetain {
			p.add(path, "want at most 18250d, which is 50 years")
		}
	}
	for _, d := range []router.Defaults{{Attempts: l.Defaults.Attempts}, {Backoff: l.Defaults.Backoff}} {
		if err := d.Validate(); err != nil {
			setting, what, _ := strings.Cut(detail(err), ": ")
			p.add("defaults."+setting, "%s", what)
		}
	}
}

// The least of limits that leave the API something to take: two of the largest
// bodies that are read whole, and a bulk body of one of the longest lines.
const (
	minInFlight Size = 16 << 20
	minBody     Size = 1 << 20
)

// envelopeRoom is what attributes and header may add to a payload.
const envelopeRoom = 128 << 10

// maxEventBytes is the largest encoded event that the broker must take.
func (l *Loaded) maxEventBytes() int {
	largest := max(l.Defaults.PayloadMax, 512<<10)
	for _, t := range l.Types {
		largest = max(largest, t.PayloadMax)
	}
	return max(int(largest)+envelopeRoom, 1<<20)
}

func (l *Loaded) validatePrincipals(p *problems) {
	seen := map[string]bool{}
	for i, pr := range l.Principals {
		path := fmt.Sprintf("principals[%d]", i)
		switch {
		case pr.Name == "":
			p.add(path, "name is missing")
		case !principal.ValidName(pr.Name):
			p.add(path+".name", "%q, want %s", clip([]byte(pr.Name)), principal.NameForm)
		case seen[pr.Name]:
			p.add(path+".name", "%q is declared twice", pr.Name)
		}
		seen[pr.Name] = true
		if pr.Kind == "" {
			p.add(path, "kind is missing: human, agent or system")
		}
		oneOf(p, path+".kind", string(pr.Kind), string(headgate.KindHuman), string(headgate.KindAgent), string(headgate.KindSystem))
		for j, role := range pr.Roles {
			at := fmt.Sprintf("%s.roles[%d]", path, j)
			if fault := principal.RoleFault(pr.Kind, role); fault != "" {
				p.add(at, "%s", fault)
			}
		}
		for list, patterns := range map[string][]string{"emit": pr.Emit, "listen": pr.Listen} {
			for j, pat := range patterns {
				if !headgate.ValidPattern(pat) {
					p.add(fmt.Sprintf("%s.%s[%d]", path, list, j), "%q is not a type, PREFIX.* or *", clip([]byte(pat)))
				}
			}
		}
		for j, pat := range pr.Lease {
			if fault := resource.PatternFault(pat); fault != "" {
				p.add(fmt.Sprintf("%s.lease[%d]", path, j), "%q: %s", clip([]byte(pat)), fault)
			}
		}
		if pr.Roots.Burst < 0 || pr.Roots.Burst > principal.MaxRate {
			p.add(path+".roots.burst", "%d, want 1 to %d", pr.Roots.Burst, principal.MaxRate)
		}
		if pr.Roots.Burst != 0 && pr.Roots.Rate == 0 {
			p.add(path+".roots", "has a burst and no rate, which is no right; name the rate")
		}
		if pr.Token != "" && !pr.Token.IsReference() {
			p.add(path+".token", "holds a secret; write env:NAME or file:PATH instead")
		}
	}
}

// listenable reports whether text is a port to listen on: 0 is any, and a name
// is one that the system knows.
func listenable(port string) bool {
	_, err := net.LookupPort("tcp", port)
	return err == nil
}

// hostname reports whether text may name a host: an address, a name of labels of
// letters, digits, "-" and "_" that does not look like one, or nothing, which is
// every address.
func hostname(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil || text == "" {
		return true
	}
	labels := strings.Split(strings.TrimSuffix(text, "."), ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return false
		}
	}
	return len(text) <= 254 && strings.Trim(labels[len(labels)-1], "0123456789") != ""
}

// folder says why a path can be no folder: by its text, or since what it leads
// through is none.
func folder(path string) error {
	if strings.ContainsRune(path, 0) {
		return errors.New("a path holds no NUL")
	}
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		if len(filepath.Base(at)) > 255 {
			return errors.New("a part of the path has more than 255 bytes")
		}
		switch info, err := os.Stat(at); {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s is no folder", at)
		case err == nil || at == filepath.Dir(at):
			return nil
		}
	}
}

func (l *Loaded) listen() string {
	if l.Listen == "" {
		return "127.0.0.1:7420"
	}
	return l.Listen
}

func (l *Loaded) dataDir() string {
	if l.Data == "" {
		return ".headgate"
	}
	return l.Data
}

// Topology builds the table of streams and types.
func (l *Loaded) Topology() (*topology.Table, error) {
	return topology.New(l.topologyStreams(), l.topologyTypes(), l.topologyDefaults())
}

func (l *Loaded) topologyStreams() (streams []topology.Stream) {
	for _, name := range slices.Sorted(maps.Keys(l.Streams)) {
		s := l.Streams[name]
		streams = append(streams, topology.Stream{
			Name: name, Types: s.Types, Partitions: s.Partitions, Retain: time.Duration(s.Retain), NoIndex: s.Index == "off",
		})
	}
	return streams
}

func (l *Loaded) topologyTypes() (types []topology.Type) {
	for _, pattern := range slices.Sorted(maps.Keys(l.Types)) {
		t := l.Types[pattern]
		types = append(types, topology.Type{
			Pattern: pattern, Key: t.Key, TTL: t.TTL, Gas: t.Gas, Breadth: t.Breadth, Repeats: t.Repeats,
			PayloadMax: int(t.PayloadMax), Contract: t.Contract, Origins: t.Origins, Expire: time.Duration(t.Expire), Fence: t.Fence,
		})
	}
	return types
}

func (l *Loaded) topologyDefaults() topology.Defaults {
	return topology.Defaults{
		TTL: l.Defaults.TTL, Gas: l.Defaults.Gas, Breadth: l.Defaults.Breadth, Repeats: l.Defaults.Repeats, PayloadMax: int(l.Defaults.PayloadMax),
		Retain: time.Duration(l.Defaults.Retain),
	}
}

// subscriptionSpec returns a declared subscription with who consumes filled in.
func (l *Loaded) subscriptionSpec(name string) router.Spec {
	spec := l.Subscriptions[name].Spec
	if spec.As == "" && slices.ContainsFunc(l.Principals, func(p Principal) bool { return p.Name == name }) {
		spec.As = name
	}
	return spec
}

func (l *Loaded) subscriptionDefaults() router.Defaults {
	return router.Defaults{Attempts: l.Defaults.Attempts, Backoff: l.Defaults.Backoff}
}

func (l *Loaded) policy() contract.Policy {
	return contract.Policy{CloseObjects: l.Contracts.UnknownFields == "refuse"}
}

// rootLife is how long a causal tree may go on: at least as long as an event
// of it may be kept in a stream and then in quarantine.
func (l *Loaded) rootLife() time.Duration {
	retain := max(time.Duration(l.Defaults.Retain), topology.DefaultRetain)
	for _, s := range l.Streams {
		retain = max(retain, time.Duration(s.Retain))
	}
	return retain + max(time.Duration(l.Quarantine.Retain), quarantine.DefaultRetain) + 9*24*time.Hour
}
