package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
)

// Call is one request on its way through a route.
type Call struct {
	W http.ResponseWriter
	R *http.Request
	// Principal is who calls; nil on public routes.
	Principal *headgate.Principal
	// RequestID is echoed in Headgate-Request-Id and in problems.
	RequestID string

	g     *Gateway
	route *Route
	body  *guardedBody
	share *share
	query url.Values
	// fences are the lease tokens of a publish.
	fences []string
}

// Context returns the request's context: it ends when the client leaves.
func (c *Call) Context() context.Context { return c.R.Context() }

// workContext returns a context for work that must not be torn in the middle
// because its client left: it keeps the request's values and has a time limit.
func (c *Call) workContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.R.Context()), c.g.lim.AdmitTime)
}

// Require refuses callers without the role.
func (c *Call) Require(r headgate.Role) error {
	if c.Principal.Can(r) {
		return nil
	}
	return headgate.NewError(headgate.CodeForbidden, "The call needs the role %s.", r)
}

// Path returns a path parameter, decoded.
func (c *Call) Path(name string) string { return c.R.PathValue(name) }

// Query returns a query parameter; "" when absent.
func (c *Call) Query(name string) string {
	if c.query == nil {
		c.query = c.R.URL.Query()
	}
	return c.query.Get(name)
}

// QueryAll returns all values of a query parameter.
func (c *Call) QueryAll(name string) []string {
	c.Query(name)
	return c.query[name]
}

// QueryInt returns a whole number between 1 and most, or def when absent.
func (c *Call) QueryInt(name string, def, most int) (int, error) {
	s := c.Query(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, headgate.NewError(headgate.CodeInvalidArgument, "The parameter %s must be a whole number from 1 to %d.", name, most)
	}
	return n, nil
}

// Bytes reads the body whole, within the route's limit.
func (c *Call) Bytes() ([]byte, error) {
	if c.body == nil {
		return nil, nil
	}
	r, hint, err := c.content()
	if err != nil {
		return nil, err
	}
	return c.readBody(r, hint, c.body.limit)
}

// Limited is [Call.Bytes] with a limit below the route's.
func (c *Call) Limited(limit int64) ([]byte, error) {
	if c.body != nil && limit < c.body.limit {
		c.body.limit = limit
	}
	return c.Bytes()
}

// Decode reads the body as one JSON value into dst, strictly: names that dst
// does not know and names that come twice are errors.
func (c *Call) Decode(dst any) error {
	b, err := c.Bytes()
	if err != nil {
		return err
	}
	return decodeStrict(b, dst)
}

// JSON answers with a value.
func (c *Call) JSON(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return &headgate.Error{Code: headgate.CodeInternal, Detail: "The answer could not be written as JSON.", Err: err}
	}
	c.write(status, api.TypeJSON, append(b, '\n'))
	return nil
}

// write sends a whole answer. An error of the connection concerns nobody but
// a client that is gone.
func (c *Call) write(status int, media string, body []byte) {
	h := c.W.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	c.W.WriteHeader(status)
	c.send(body)
}

// send writes a part of an answer and reports whether the client took it.
func (c *Call) send(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), answerPart)
		c.patience()
		if _, err := c.W.Write(b[:n]); err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}

// answerPart is what a client must read within Limits.AnswerTime.
const answerPart = 64 << 10

// patience gives the client time to read the next part of the answer.
func (c *Call) patience() {
	_ = http.NewResponseController(c.W).SetWriteDeadline(time.Now().Add(c.g.lim.AnswerTime))
}

// HasBody reports whether the request has a body.
func (c *Call) HasBody() bool { return c.body != nil }

// Raw answers with bytes as they are.
func (c *Call) Raw(status int, media string, body []byte) { c.write(status, media, body) }
