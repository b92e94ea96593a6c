package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/headgate/headgate"
)

// guardedBody is a request body with a limit on its size and on its patience.
type guardedBody struct {
	src      io.ReadCloser
	rc       *http.ResponseController
	limit    int64
	read     int64 // bytes so far
	window   time.Duration
	progress int64
	mark     int64 // bytes at the start of the present window
	ended    bool
}

// guardBody puts the guard around the request's body. Until the body's end is
// seen the connection has a read deadline, which also bounds how long the
// server waits for the rest of a body that the handler did not want.
func (c *Call) guardBody() {
	if c.R.ContentLength == 0 || c.R.Body == nil || c.R.Body == http.NoBody {
		return
	}
	limit := c.g.lim.Body
	if c.route.Bulk {
		limit = c.g.lim.BulkBody
	}
	c.body = &guardedBody{
		src: c.R.Body, rc: http.NewResponseController(c.W), limit: limit,
		window: c.g.lim.BodyWindow, progress: c.g.lim.BodyProgress,
	}
	c.body.extend()
	c.R.Body = c.body
}

// extend begins a new window. Where there is no connection (a handler called
// directly) there is nothing to bound.
func (b *guardedBody) extend() {
	b.mark = b.read
	_ = b.rc.SetReadDeadline(time.Now().Add(b.window))
}

// Read reads within the bounds. Its errors are *headgate.Error, but for io.EOF.
func (b *guardedBody) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	if room := b.limit - b.read + 1; int64(len(p)) > room {
		p = p[:room]
	}
	n, err := b.src.Read(p)
	b.read += int64(n)
	if b.read > b.limit {
		return n, tooLarge(b.limit)
	}
	switch {
	case err == nil:
		if b.read-b.mark >= b.progress {
			b.extend()
		}
		return n, nil
	case errors.Is(err, io.EOF):
		b.ended = true
		// The server now reads ahead on the connection to notice a client that
		// leaves; a deadline of ours would look like one.
		_ = b.rc.SetReadDeadline(time.Time{})
		return n, io.EOF
	default:
		return n, bodyError(err)
	}
}

// Close closes the body.
func (b *guardedBody) Close() error { return b.src.Close() }

// Bounds of [guardedBody.linger].
const (
	lingerIdle = time.Second     // without a byte
	lingerTime = 5 * time.Second // in total
)

// linger discards what a refused body still brings, for a moment: a connection
// that is closed with bytes unread is reset, and the reset can overtake the
// answer. It ends at once when the client, having read the answer, closes.
func (b *guardedBody) linger() {
	end := time.Now().Add(lingerTime)
	buf := make([]byte, 32<<10)
	for now := time.Now(); now.Before(end); now = time.Now() {
		if b.rc.SetReadDeadline(minTime(end, now.Add(lingerIdle))) != nil {
			return
		}
		if _, err := b.src.Read(buf); err != nil {
			return
		}
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func bodyError(err error) error {
	var ne net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || (errors.As(err, &ne) && ne.Timeout()) {
		return &headgate.Error{Code: headgate.CodeTimeout, Detail: "The body stopped arriving, or arrived too slowly.", Err: err}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return &headgate.Error{Code: headgate.CodeSyntax, Detail: "The body ended before its announced length.", Fix: "Send the body whole.", Err: err}
	}
	return &headgate.Error{Code: headgate.CodeSyntax, Detail: "The body's transfer is broken.", Fix: "Send the body whole and well encoded.", Err: err}
}

func tooLarge(limit int64) *headgate.Error {
	return headgate.NewError(headgate.CodeTooLarge, "The body is larger than %d bytes.", limit)
}

// firstRead is how much is allocated for a body before any of it has come.
const firstRead = 16 << 10

// readBody reads a body of at most limit bytes whole. Memory grows with what
// arrived, is charged to the request's share, and is never shared with another
// request: events keep parts of it.
func (c *Call) readBody(r io.Reader, hint, limit int64) ([]byte, error) {
	if hint > limit {
		return nil, tooLarge(limit)
	}
	size := int64(firstRead)
	if hint >= 0 && hint < size {
		size = hint + 1 // room to see the end without growing
	}
	buf := make([]byte, 0, size)
	if err := c.reserve(size); err != nil {
		return nil, err
	}
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return nil, tooLarge(limit)
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			if buf, err = c.grow(buf, hint, limit); err != nil {
				return nil, err
			}
		}
	}
}

// grow makes room: to the announced length once a part of it has come, else
// twice as much.
func (c *Call) grow(buf []byte, hint, limit int64) ([]byte, error) {
	size := 2 * int64(cap(buf))
	if hint >= int64(cap(buf)) {
		size = hint + 1
	}
	size = min(size, limit+1)
	if err := c.reserve(size - int64(cap(buf))); err != nil {
		return nil, err
	}
	grown := make([]byte, len(buf), size)
	copy(grown, buf)
	return grown, nil
}

func (c *Call) reserve(n int64) error {
	if c.share == nil {
		return nil // a public route; none reads bodies
	}
	return c.share.reserve(n)
}
