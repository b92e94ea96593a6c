package natsbroker

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// startTimeout bounds how long the embedded server may take to recover its
// streams: tens of millions of frames after a crash.
const startTimeout = 5 * time.Minute

// embedded is a NATS server in this process that listens nowhere.
type embedded struct {
	server *server.Server
	lock   *os.File
	// failed is set once the server could not write: it then stores nothing
	// more in that stream until it is started anew, and answers nobody.
	failed atomic.Bool
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
	s, err := server.NewServer(serverOptions(cfg))
	if err != nil {
		_ = lock.Close()
		return nil, headgate.NewError(headgate.CodeUnavailable, "embedded NATS server: %v", err)
	}
	e := &embedded{server: s, lock: lock}
	s.SetLoggerV2(serverLog{cfg.Logger, &e.failed}, false, false, false)
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		e.stop()
		return nil, headgate.NewError(headgate.CodeUnavailable, "embedded NATS server was not ready after %v", startTimeout)
	}
	return e, nil
}

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

// stop ends the server, waiting until its files are closed.
func (e *embedded) stop() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
	_ = e.lock.Close() // gives up the lock
}

// serverLog passes the server's warnings and errors on; its notices are about
// a server that nobody else can see.
type serverLog struct {
	log    *slog.Logger
	failed *atomic.Bool
}

// storeFailed is in what the server logs when it could not write an event. It
// says so nowhere else: the publisher gets no answer.
const storeFailed = "failed to store a msg on stream"

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
	if strings.Contains(text, storeFailed) && !l.failed.CompareAndSwap(false, true) {
		return // said once; every later attempt fails alike
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
