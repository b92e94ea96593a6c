package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/principal"
	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/topology"
)

// Config configures a gateway. Perimeter, Router, Principals, Broker and
// Topology are required.
type Config struct {
	Perimeter  *perimeter.Perimeter
	Router     *router.Router
	Principals *principal.Directory
	Broker     broker.Broker // read by the live stream
	Topology   *topology.Table
	// Registry shows events to readers in the encoding that they ask for. Nil:
	// they come as they are.
	Registry *registry.Registry
	// Leases grants leases. Nil: there are no such routes.
	Leases *lease.Service

	// Metrics serves /metrics. Nil: there is no such route.
	Metrics http.Handler
	// ProtectMetrics demands a viewer's token for /metrics.
	ProtectMetrics bool
	// Ready says why the node is not ready, within a second. Nil: always ready.
	Ready func(context.Context) error
	// Hosts are the names (without port) that the Host header may carry. Over
	// a loopback connection localhost, 127.0.0.1 and ::1 are always allowed
	// and nothing else but Hosts; over other connections an empty list allows
	// any name.
	Hosts []string
	// Origins are the origins (scheme://host[:port]) that browsers may call
	// from, beyond the gateway's own.
	Origins []string
	Limits  Limits
	// SpoolDir is where results of bulk requests go that do not fit in memory.
	// Default: the system's folder for temporary files.
	SpoolDir string
	// Requests sees every answered request. It must not block.
	Requests func(RequestInfo)
	Log      *slog.Logger
	Now      func() time.Time
	// NewID makes request ids. Default: 128 random bits in hex.
	NewID func() string
}

// RequestInfo describes one answered request. It holds no payload.
type RequestInfo struct {
	Route    string // pattern, such as "POST /v1/events"; "" when none matched
	Status   int
	Duration time.Duration
	BytesIn  int64 // of the body, as read from the connection
}

// Limits bound what the gateway takes. Zero fields mean the defaults.
type Limits struct {
	Body        int64 // bytes of a body; default 8 MiB
	BulkBody    int64 // bytes of an NDJSON body, before and after decompression; default 256 MiB
	BatchEvents int   // events in a JSON batch; default 10,000
	BulkEvents  int   // events in an NDJSON body; default 2,000,000
	Line        int   // bytes of one NDJSON line; default 1 MiB
	// Ratio is how many times larger than its compressed form a body may be,
	// beyond the first MiB; default 100.
	Ratio int

	Requests          int // requests at work; default 1024
	PrincipalRequests int // of one principal; default 256
	Waits             int // long polls and live streams; default 4096
	PrincipalWaits    int // of one principal; default 512
	Tails             int // live streams, of all principals; default 128
	Bytes             int64
	PrincipalBytes    int64 // body bytes in memory; default 256 MiB in total (Bytes), 64 MiB of one principal

	// BodyWindow and BodyProgress: a body ends, or brings at least
	// BodyProgress bytes, within every BodyWindow; default 1 KiB in 10 s.
	BodyWindow   time.Duration
	BodyProgress int64
	// AnswerTime bounds how long a client may take to read one part (64 KiB)
	// of an answer; default 30 s.
	AnswerTime time.Duration
	// AdmitTime bounds how long an admission or settlement may take once its
	// bytes are here; default 30 s.
	AdmitTime time.Duration
	MaxPull   int           // deliveries of one pull; default 1000
	MaxWait   time.Duration // of one pull; default 60 s
	Heartbeat time.Duration // of the live stream; default 15 s
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.Body, 8<<20)
	setDefault(&l.BulkBody, 256<<20)
	setDefault(&l.BatchEvents, 10_000)
	setDefault(&l.BulkEvents, 2_000_000)
	setDefault(&l.Line, 1<<20)
	setDefault(&l.Ratio, 100)
	setDefault(&l.Requests, 1024)
	setDefault(&l.PrincipalRequests, 256)
	setDefault(&l.Waits, 4096)
	setDefault(&l.PrincipalWaits, 512)
	setDefault(&l.Tails, 128)
	setDefault(&l.Bytes, 256<<20)
	setDefault(&l.PrincipalBytes, 64<<20)
	setDefault(&l.BodyWindow, 10*time.Second)
	setDefault(&l.BodyProgress, 1<<10)
	setDefault(&l.AnswerTime, 30*time.Second)
	setDefault(&l.AdmitTime, 30*time.Second)
	setDefault(&l.MaxPull, 1000)
	setDefault(&l.MaxWait, 60*time.Second)
	setDefault(&l.Heartbeat, 15*time.Second)
	return l
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Validate reports every problem at once, naming the field.
func (c *Config) Validate() error {
	var errs []error
	for name, missing := range map[string]bool{
		"Perimeter": c.Perimeter == nil, "Router": c.Router == nil, "Principals": c.Principals == nil,
		"Broker": c.Broker == nil, "Topology": c.Topology == nil,
	} {
		if missing {
			errs = append(errs, fmt.Errorf("gateway: Config.%s is required", name))
		}
	}
	return errors.Join(errs...)
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}
