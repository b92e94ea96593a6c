package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
)

// fail answers with a problem.
func (c *Call) fail(err error) {
	e := publicError(err)
	c.failStatus(e.Info().Status, e)
}

func (c *Call) failStatus(status int, err error) {
	e := publicError(err)
	c.logCause(e)
	p := api.NewProblem(e, c.RequestID)
	p.Status = status
	c.problem(p)
}

// Public returns what a caller may see of an error that is part of an answer, and
// logs what it may not, as for an answer that the error is.
func (c *Call) Public(err error) *headgate.Error {
	e := publicError(err)
	c.logCause(e)
	return e
}

// publicError finds the error to show. What is not of our own type is internal
// and says nothing; a context that ended is the caller's or the clock's.
func publicError(err error) *headgate.Error {
	if e := headgate.AsError(err); e != nil {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return &headgate.Error{Code: headgate.CodeCanceled, Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &headgate.Error{Code: headgate.CodeUnknownOutcome, Detail: "The work took longer than the node allows.", Err: err}
	}
	return &headgate.Error{Code: headgate.CodeInternal, Detail: "The request met a fault of the node.", Err: err}
}

// problem writes a problem, in the form that the caller asked for.
func (c *Call) problem(p api.Problem) {
	h := c.W.Header()
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="headgate"`)
	}
	setRetryAfter(h, p.Status, p.Refusal)
	if c.unread() {
		h.Set("Connection", "close")
	}
	if c.wantsAgentText() {
		c.write(p.Status, "text/plain; charset=utf-8; profile=agent", []byte(p.AgentText()))
		return
	}
	b, err := json.Marshal(p)
	if err != nil { // no value of Problem does this
		b = []byte(`{"code":"internal","status":500}`)
	}
	c.write(p.Status, api.TypeProblem, append(b, '\n'))
}

// setRetryAfter rounds up: whole seconds are what the header has.
func setRetryAfter(h http.Header, status int, r api.Refusal) {
	after := r.RetryAfter
	if after == 0 && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
		after = 1
	}
	if after > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(after)), 10))
	}
}

// unread reports whether a part of the body is still on the connection, so
// that nothing else can follow on it.
func (c *Call) unread() bool {
	if c.body == nil {
		return c.R.ContentLength != 0 // refused before the route was known
	}
	return !c.body.ended
}

// wantsAgentText reports whether the caller asked for the compact report.
func (c *Call) wantsAgentText() bool {
	for _, accept := range c.R.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			media, params, err := mime.ParseMediaType(part)
			if err == nil && media == "text/plain" && params["profile"] == "agent" {
				return true
			}
		}
	}
	return false
}

// oneLine keeps client text within its line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
