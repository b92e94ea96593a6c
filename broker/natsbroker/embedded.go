package natsbroker

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// startTimeout bounds how long the embedded server may take to recover its
// streams: tens of millions of frames after a crash.
const startTimeout = 5 * time.Minute

// embedded is a NATS server in this process that listens nowhere. It is started
// anew after a disk that was full has room again.
type embedded struct {
	cfg  Config
	lock *os.File
	// health is that of the server that runs, or ran last.
	health atomic.Pointer[health]
	broke  chan struct{} // gets a token when a server's health turns

	mu     sync.Mutex
	server *server.Server // nil while none runs
}

// health of one server.
type health struct {
	// failed is set once the server could not write: it then stores nothing
	// more in that stream until it is started anew, and answers nobody.
	failed atomic.Bool
	// full: it could not since the disk had no room.
	full atomic.Bool
}

// startEmbedded starts a server on the folder, which it creates if needed.
func startEmbedded(cfg Config) (*embedded, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, headgate.NewError(headgate.CodeUnavailable, "data folder: %v", err)
	}
	lock, err := lockFolder(filepath.Join(cfg.Dir, "lock"))
	if err != nil {
		return nil, err
	}
	e := &embedded{cfg: cfg, lock: lock, broke: make(chan struct{}, 1)}
	if err := e.start(); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return e, nil
}

// start starts a server where none runs.
func (e *embedded) start() error {
	s, err := server.NewServer(serverOptions(e.cfg))
	if err != nil {
		return headgate.NewError(headgate.CodeUnavailable, "embedded NATS server: %v", err)
	}
	h := &health{}
	s.SetLoggerV2(serverLog{e.cfg.Logger, h, e.broke}, false, false, false)
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		s.Shutdown()
		s.WaitForShutdown()
		return headgate.NewError(headgate.CodeUnavailable, "embedded NATS server was not ready after %v", startTimeout)
	}
	e.mu.Lock()
	e.server = s
	e.mu.Unlock()
	e.health.Store(h)
	return nil
}

// InProcessConn implements [nats.InProcessConnProvider]: it connects to the
// server that runs.
func (e *embedded) InProcessConn() (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server == nil {
		return nil, errNoServer
	}
	return e.server.InProcessConn()
}

var errNoServer = errors.New("natsbroker: the embedded server is being started anew")

func serverOptions(cfg Config) *server.Options {
	return &server.Options{
		ServerName: "headgate",
		DontListen: true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   cfg.Dir,
		// Without it the server syncs every two minutes, and a power cut takes
		// whatever it acknowledged since.
		SyncAlways: cfg.Durability == broker.DurabilityFsync,
		// The server's own limit would come from the disk's size at start; the
		// driver watches free space itself (Config.MinFree).
		JetStreamMaxStore:      math.MaxInt64 / 4,
		JetStreamMaxMemory:     64 << 20,
		MaxPayload:             maxPayload,
		MaxPending:             64 << 20,
		DisableJetStreamBanner: true,
		// The only client is in this process: a ping proves nothing.
		PingInterval: 24 * time.Hour,
	}
}

// end ends the server, waiting until its files are closed.
func (e *embedded) end() {
	e.mu.Lock()
	s := e.server
	e.server = nil
	e.mu.Unlock()
	if s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// stop ends the server for good.
func (e *embedded) stop() {
	e.end()
	_ = e.lock.Close() // gives up the lock
}

// serverLog passes the server's warnings and errors on; its notices are about
// a server that nobody else can see.
type serverLog struct {
	log    *slog.Logger
	health *health
	broke  chan<- struct{}
}

// storeFailed is in what the server logs when it could not write an event, and
// noRoom when that was for want of room. It says so nowhere else: the publisher
// gets no answer.
const (
	storeFailed = "failed to store a msg on stream"
	noRoom      = "no space left"
)

// Noticef implements [server.Logger].
func (l serverLog) Noticef(format string, v ...any) {
	l.log.Debug("embedded NATS server", "notice", fmt.Sprintf(format, v...))
}

// Warnf implements [server.Logger].
func (l serverLog) Warnf(format string, v ...any) {
	l.log.Warn("embedded NATS server", "warning", fmt.Sprintf(format, v...))
}

// Errorf implements [server.Logger].
func (l serverLog) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if strings.Contains(text, storeFailed) {
		l.health.full.Store(strings.Contains(text, noRoom))
		if l.health.failed.Swap(true) {
			return // said once; every later attempt fails alike
		}
		select {
		case l.broke <- struct{}{}:
		default:
		}
	}
	l.log.Error("embedded NATS server", "error", text)
}

// Fatalf implements [server.Logger]. The server's own loggers exit here; in a
// process that has other work to end, the error is logged and the driver's
// calls fail.
func (l serverLog) Fatalf(format string, v ...any) { l.Errorf(format, v...) }

// Debugf implements [server.Logger].
func (l serverLog) Debugf(string, ...any) {}

// Tracef implements [server.Logger].
func (l serverLog) Tracef(string, ...any) {}
