package telemetry

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate"
)

// Metrics counts.
type Metrics struct {
	registry *prometheus.Registry

	admitted   *prometheus.CounterVec
	duplicates *prometheus.CounterVec
	mended     *prometheus.CounterVec
	refused    *prometheus.CounterVec
	refusal    *prometheus.HistogramVec
	dispatched *prometheus.CounterVec
	settled    *prometheus.CounterVec
	ignored    *prometheus.CounterVec
	requests   *prometheus.CounterVec
	latency    *prometheus.HistogramVec
	bytesIn    prometheus.Counter
	relayed    *prometheus.CounterVec
	relayLag   *prometheus.HistogramVec

	names subscriptionNames
}

// maxSubscriptions bounds the values of the label subscription: whoever may
// create subscriptions chooses their names, and a series is never forgotten.
const maxSubscriptions = 1000

// subscriptionNames are the subscriptions that have series of their own.
type subscriptionNames struct {
	mu    sync.RWMutex
	known map[string]struct{}
}

// label returns the name, or "other" when there are too many.
func (s *subscriptionNames) label(name string) string {
	s.mu.RLock()
	_, known := s.known[name]
	full := len(s.known) >= maxSubscriptions
	s.mu.RUnlock()
	switch {
	case known:
		return name
	case full:
		return "other"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[string]struct{})
	}
	if len(s.known) >= maxSubscriptions { // others came in between
		return "other"
	}
	s.known[name] = struct{}{}
	return name
}

// Config configures metrics.
type Config struct {
	Version string // of the build, shown in headgate_build_info
}

// refusalBuckets, in seconds, are dense around the promise of 3 ms.
var refusalBuckets = [...]float64{.00005, .0001, .00025, .0005, .001, .002, .003, .005, .01, .025, .1, 1}

// requestBuckets, in seconds, reach to the longest poll.
var requestBuckets = [...]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60}

// relayBuckets, in seconds, are dense around the promise of 100 ms and reach to
// an outage of hours.
var relayBuckets = [...]float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, 1, 5, 30, 300, 3600}

// New returns metrics with everything at zero.
func New(cfg Config) *Metrics {
	r := prometheus.NewRegistry()
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "headgate", Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "headgate", Name: name, Help: help, Buckets: buckets}, labels)
		r.MustRegister(h)
		return h
	}
	m := &Metrics{
		registry:   r,
		admitted:   counter("events_admitted_total", "Events stored durably.", "stream", "door"),
		duplicates: counter("events_duplicate_total", "Events that were stored before.", "stream", "door"),
		mended:     counter("events_mended_total", "Events whose payload was mended as their contract asks.", "stream", "door"),
		refused:    counter("events_refused_total", "Events refused by the perimeter.", "code", "stage", "door"),
		refusal:    histogram("refusal_seconds", "Time from the last byte read to the verdict, of refused events.", refusalBuckets[:], "stage"),
		dispatched: counter("deliveries_dispatched_total", "Deliveries handed to consumers.", "subscription"),
		settled:    counter("deliveries_settled_total", "Deliveries that reached an outcome.", "subscription", "outcome"),
		ignored:    counter("forged_total", "Header attributes and causal tokens that clients may not set.", "what", "door"),
		requests:   counter("http_requests_total", "HTTP requests answered.", "route", "status"),
		latency:    histogram("http_request_seconds", "Time to answer HTTP requests.", requestBuckets[:], "route"),
		relayed:    counter("outbox_rows_total", "Rows of outboxes that are done: stored, duplicate, or kept in quarantine with the code of their refusal.", "outbox", "outcome", "code"),
		relayLag:   histogram("outbox_commit_to_ack_seconds", "Time from the commit of a row's transaction until the broker has the event durably.", relayBuckets[:], "outbox"),
		bytesIn: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "headgate", Name: "http_body_bytes_total", Help: "Bytes of request bodies read.",
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "headgate", Name: "build_info", Help: "Always 1; the label is the version.",
		ConstLabels: prometheus.Labels{"version": cfg.Version},
	})
	build.Set(1)
	r.MustRegister(m.bytesIn, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Observer returns an observer that counts.
func (m *Metrics) Observer() *headgate.Observer {
	return &headgate.Observer{
		Admitted: func(i headgate.AdmittedInfo) {
			if i.Duplicate {
				m.duplicates.WithLabelValues(i.Stream, i.Door).Inc()
				return
			}
			m.admitted.WithLabelValues(i.Stream, i.Door).Inc()
			if i.Event != nil && i.Event.Mended() != "" {
				m.mended.WithLabelValues(i.Stream, i.Door).Inc()
			}
		},
		Refused: m.observeRefusal,
		Dispatched: func(i headgate.DeliveryInfo) {
			m.dispatched.WithLabelValues(m.names.label(i.Subscription)).Inc()
		},
		Settled: func(i headgate.DeliveryInfo) {
			m.settled.WithLabelValues(m.names.label(i.Subscription), i.Outcome).Inc()
		},
		Ignored: func(i headgate.IgnoredInfo) {
			m.ignored.WithLabelValues(i.What, i.Door).Inc()
		},
		Relayed: m.observeRelayed,
	}
}

func (m *Metrics) observeRefusal(i headgate.RefusedInfo) {
	m.refused.WithLabelValues(string(i.Code), i.Stage, i.Door).Inc()
	if i.Took > 0 {
		m.refusal.WithLabelValues(i.Stage).Observe(i.Took.Seconds())
	}
}

func (m *Metrics) observeRelayed(i headgate.RelayedInfo) {
	outcome := "stored"
	switch {
	case i.Code != "":
		outcome = "kept"
	case i.Duplicate:
		outcome = "duplicate"
	}
	m.relayed.WithLabelValues(i.Outbox, outcome, string(i.Code)).Inc()
	if outcome == "stored" {
		m.relayLag.WithLabelValues(i.Outbox).Observe(i.Took.Seconds())
	}
}

// Request counts one answered HTTP request. The route is a pattern; "" is
// counted as "none".
func (m *Metrics) Request(route string, status int, took time.Duration, bytesIn int64) {
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.latency.WithLabelValues(route).Observe(took.Seconds())
	m.bytesIn.Add(float64(bytesIn))
}

// Gauge adds a value that is read at each scrape. The name is without the
// prefix "headgate_". It panics on a name that is taken, which is a mistake of
// the program.
func (m *Metrics) Gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "headgate", Name: name, Help: help}, read))
}

// Series is one value of a labelled gauge, with the values of its labels.
type Series struct {
	Labels []string
	Value  float64
}

// Gauges adds values that are read together at each scrape: one gauge for each
// entry of names, which says what it is, all with the same labels. read returns
// the series of a gauge by its name. Names are without the prefix "headgate_".
// It panics on a name that is taken, which is a mistake of the program.
func (m *Metrics) Gauges(names map[string]string, labels []string, read func() map[string][]Series) {
	g := gauges{read: read, desc: map[string]*prometheus.Desc{}}
	for name, help := range names {
		g.desc[name] = prometheus.NewDesc("headgate_"+name, help, labels, nil)
	}
	m.registry.MustRegister(g)
}

// gauges implements prometheus.Collector.
type gauges struct {
	desc map[string]*prometheus.Desc
	read func() map[string][]Series
}

func (g gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range g.desc {
		to <- d
	}
}

func (g gauges) Collect(to chan<- prometheus.Metric) {
	for name, all := range g.read() {
		d := g.desc[name]
		if d == nil {
			continue
		}
		for _, s := range all {
			if m, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, s.Value, s.Labels...); err == nil {
				to <- m // a scrape that fails to read a gauge leaves it out
			}
		}
	}
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
