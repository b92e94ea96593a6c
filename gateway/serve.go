package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// ServeOpts are the settings of [Serve]. Zero fields mean the defaults.
type ServeOpts struct {
	// Lead is how long /readyz answers 503 before the listener closes, so that
	// load balancers notice; default none.
	Lead time.Duration
	// Grace is how long requests at work may go on after that; default 10 s.
	Grace       time.Duration
	HeaderTime  time.Duration // for the header of a request; default 10 s
	IdleTime    time.Duration // between requests of a connection; default 120 s
	HeaderBytes int           // of a request's header; default 64 KiB
	Connections int           // open at once; default 4096. More wait in the system's queue
	Log         *slog.Logger
}

// Serve answers requests on the listener until ctx ends, then drains: /readyz
// turns to 503, long polls end, the listener closes, and requests at work have
// Grace to finish. It returns nil after a clean drain, with no request left at
// work, and an error when the listener failed or requests had to be cut off:
// their connections are closed, and what they began ends within
// Limits.AdmitTime. The listener is closed when it returns.
func Serve(ctx context.Context, ln net.Listener, g *Gateway, opts *ServeOpts) error {
	o := opts.withDefaults()
	srv := &http.Server{
		Handler:           g,
		ReadHeaderTimeout: o.HeaderTime,
		IdleTimeout:       o.IdleTime,
		MaxHeaderBytes:    o.HeaderBytes,
		// Of an answer that a handler does not stretch by itself.
		WriteTimeout: g.lim.AnswerTime + g.lim.AdmitTime,
		ErrorLog:     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	bounded := newBoundedListener(ln, o.Connections)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(bounded) }()
	select {
	case err := <-failed:
		_ = srv.Close()
		return fmt.Errorf("gateway: listener: %w", err)
	case <-ctx.Done():
	}
	g.Drain()
	if o.Lead > 0 {
		t := time.NewTimer(o.Lead)
		defer t.Stop()
		select {
		case <-t.C:
		case err := <-failed:
			_ = srv.Close()
			return fmt.Errorf("gateway: listener: %w", err)
		}
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Grace)
	defer cancel()
	err := srv.Shutdown(grace)
	<-failed
	if errors.Is(err, context.DeadlineExceeded) {
		_ = srv.Close()
		return fmt.Errorf("gateway: requests were still at work after the grace of %s", o.Grace)
	}
	return err
}

func (o *ServeOpts) withDefaults() ServeOpts {
	var out ServeOpts
	if o != nil {
		out = *o
	}
	setDefault(&out.Grace, 10*time.Second)
	setDefault(&out.HeaderTime, 10*time.Second)
	setDefault(&out.IdleTime, 120*time.Second)
	setDefault(&out.HeaderBytes, 64<<10)
	setDefault(&out.Connections, 4096)
	if out.Log == nil {
		out.Log = slog.New(slog.DiscardHandler)
	}
	return out
}

// boundedListener bounds the connections that are open at once.
type boundedListener struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newBoundedListener(ln net.Listener, most int) *boundedListener {
	return &boundedListener{Listener: ln, places: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept waits for a place, then for a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &boundedConn{Conn: conn, places: l.places}, nil
}

// Close closes the listener.
func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	places chan struct{}
	once   sync.Once
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.places })
	return err
}

// CloseWrite ends the sending side, so that a server that closes after an
// error lets the client read the answer first.
func (c *boundedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}
