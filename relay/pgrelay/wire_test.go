package pgrelay_test

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// wire stands between a client and a server on this machine and fails as
// networks do: it refuses, cuts, or goes silent without a word.
type wire struct {
	t      testing.TB
	to     string
	listen net.Listener
	copies sync.WaitGroup

	mu     sync.Mutex
	down   bool
	silent chan struct{} // closed: bytes go through
	open   map[net.Conn]struct{}
}

// newWire returns a wire to the host of a URL, and the URL through it.
func newWire(t testing.TB, server string) (w *wire, through string) {
	t.Helper()
	u, err := url.Parse(server)
	must(t, err)
	w = &wire{t: t, to: u.Host, open: map[net.Conn]struct{}{}, silent: make(chan struct{})}
	close(w.silent)
	w.listen, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w.copies.Go(w.serve)
	t.Cleanup(func() {
		_ = w.listen.Close()
		w.speak()
		w.cut()
		w.copies.Wait()
	})
	u.Host = w.listen.Addr().String()
	return w, u.String()
}

func (w *wire) serve() {
	for {
		in, err := w.listen.Accept()
		if err != nil {
			return
		}
		if !w.add(in) {
			continue
		}
		out, err := net.Dial("tcp", w.to)
		if err != nil || !w.add(out) {
			w.drop(in)
			continue
		}
		w.copies.Go(func() { w.copy(out, in) })
		w.copies.Go(func() { w.copy(in, out) })
	}
}

// add notes a connection, or closes it when the wire is cut.
func (w *wire) add(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		_ = c.Close()
		return false
	}
	w.open[c] = struct{}{}
	return true
}

func (w *wire) drop(c net.Conn) {
	w.mu.Lock()
	delete(w.open, c)
	w.mu.Unlock()
	_ = c.Close()
}

func (w *wire) copy(to, from net.Conn) {
	defer w.drop(to)
	defer w.drop(from)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		silent := w.silent
		w.mu.Unlock()
		<-silent
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut ends all connections and refuses new ones until mend.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for c := range w.open {
		_ = c.Close()
	}
}

func (w *wire) mend() {
	w.mu.Lock()
	w.down = false
	w.mu.Unlock()
}

// hush swallows what is sent from now on, in both directions, without ending a
// connection, until speak.
func (w *wire) hush() {
	w.mu.Lock()
	w.silent = make(chan struct{})
	w.mu.Unlock()
}

func (w *wire) speak() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.silent:
	default:
		close(w.silent)
	}
}
