package node

import (
	"context"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/buildinfo"
	"github.com/headgate/headgate/registry/confluent"
)

func (n *Node) openHTTP(_ context.Context, _ Options) error {
	host, _, _ := net.SplitHostPort(n.cfg.listen()) // checked by Validate
	cfg := gateway.Config{
		Perimeter: n.Perimeter, Router: n.Router, Principals: n.Principals, Broker: n.Broker, Topology: n.Topology, Leases: n.Leases, Registry: n.Registry,
		Metrics: n.metrics.Handler(), ProtectMetrics: !Loopback(n.cfg.listen()), Ready: n.checkReady, Log: n.log,
		Requests: func(i gateway.RequestInfo) { n.metrics.Request(i.Route, i.Status, i.Duration, i.BytesIn) },
		Limits:   gateway.Limits{Bytes: int64(n.cfg.Limits.InFlight), BulkBody: int64(n.cfg.Limits.Body)},
	}
	if host != "" && net.ParseIP(host) == nil {
		cfg.Hosts = []string{host}
	}
	cfg.Hosts, cfg.Origins = append(cfg.Hosts, n.cfg.Hosts...), n.cfg.Origins
	if !n.cfg.Memory {
		cfg.SpoolDir = filepath.Join(n.cfg.dataDir(), "spool")
		if err := emptyDir(cfg.SpoolDir); err != nil {
			return err
		}
	}
	n.addGauges()
	n.addLeaseGauges()
	n.addOutboxGauges()
	var err error
	if n.gateway, err = gateway.New(cfg); err != nil {
		return err
	}
	err = admin.Mount(n.gateway, admin.Config{
		Registry: n.Registry, Router: n.Router, Quarantine: n.Quarantine, Principals: n.Principals, Index: n.Index,
		Broker: n.Broker, Store: n.Store, Topology: n.Topology, Findings: n.findings, Version: buildinfo.String(),
		Guesses: &n.guesses,
	})
	if err != nil {
		return err
	}
	// After the document of the API was made: the face for clients of a
	// registry is theirs to describe.
	return confluent.Mount(n.gateway, confluent.Config{
		Registry: n.Registry, Principals: n.Principals, Version: buildinfo.String(), Log: n.log,
	})
}

// findings are what the node itself knows to be wrong or unsafe.
func (n *Node) findings(context.Context) []api.Finding {
	var out []api.Finding
	refuses := n.brokerRefuses()
	if refuses == nil {
		refuses = n.brokerSilent(time.Now())
	}
	if e := headgate.AsError(refuses); e != nil {
		out = append(out, api.Finding{Severity: "error", What: "No event can be stored: " + e.Detail, Fix: e.Info().Fix})
	}
	for _, w := range n.warnings {
		out = append(out, api.Finding{Severity: "warning", What: w})
	}
	broken := n.Registry.AllBroken()
	for _, subject := range slices.Sorted(maps.Keys(broken)) {
		e := headgate.AsError(broken[subject])
		out = append(out, api.Finding{Severity: "error", What: "Events of the contract " + subject + " are refused: " + e.Detail, Fix: e.Fix})
	}
	if n.cfg.Dev && !n.cfg.Memory && !Loopback(n.cfg.listen()) {
		out = append(out, api.Finding{Severity: "error", What: "dev mode is reachable from other hosts", Fix: "Use headgate serve."})
	}
	for _, gap := range n.Index.Lost() {
		out = append(out, api.Finding{
			Severity: "error", What: gap.Error(),
			Fix: "Stored events are lost. Find out what damaged the data folder; restore a backup, or publish them again with the same ids.",
		})
	}
	out = append(out, n.ownerFindings()...)
	return append(out, n.relayFindings()...)
}

// observer returns what sees single events: the node's metrics, and what the
// embedding program handed in.
func (n *Node) observer(opts Options) *headgate.Observer {
	all := []*headgate.Observer{n.metrics.Observer()}
	if opts.Observer != nil {
		all = append(all, opts.Observer)
	}
	return headgate.TeeObserver(all...)
}

// addGauges adds what is read when somebody asks for metrics.
func (n *Node) addGauges() {
	durable := 0.0
	if d := n.Broker.Caps().Durability; d == broker.DurabilityFsync || d == broker.DurabilityQuorum {
		durable = 1
	}
	n.metrics.Gauge("durable", "1 when an acknowledged event survives power loss of the host.", func() float64 { return durable })
}
