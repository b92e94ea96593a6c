package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
)

// Config configures a client.
type Config struct {
	// URL is the node's address, such as "http://127.0.0.1:7420".
	URL   string
	Token string
	// HTTP makes the requests; its redirects are turned off. Default: a client
	// of its own without a total time limit, because calls take a context.
	HTTP *http.Client
	// UserAgent is sent with every request; default "headgate-go".
	UserAgent string
}

// Client calls one node.
type Client struct {
	base  string
	token string
	agent string
	http  *http.Client
	// fences are the lease tokens that every publish is written under.
	fences string
	// reading is the encoding in which events are read.
	reading string
}

// maxAnswer bounds an answer that is read whole.
const maxAnswer = 1 << 30

// New returns a client. The error names what is wrong with the configuration.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "the URL of the node must look like http://127.0.0.1:7420")
	}
	var hc http.Client
	if cfg.HTTP != nil {
		hc = *cfg.HTTP
	} else if tr, ok := http.DefaultTransport.(*http.Transport); ok {
		tr = tr.Clone()
		tr.MaxIdleConnsPerHost = 16
		hc.Transport = tr
	}
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	agent := cfg.UserAgent
	if agent == "" {
		agent = "headgate-go"
	}
	return &Client{base: strings.TrimSuffix(u.String(), "/"), token: cfg.Token, agent: agent, http: &hc}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request is one call to be made.
type request struct {
	method, path string
	query        url.Values
	media        string
	body         io.Reader
	header       http.Header
}

// send makes a call and returns the answer if its status is in the 200s, or is
// one that the caller understands; anything else is an error.
func (c *Client) send(ctx context.Context, r request, understood ...int) (*http.Response, error) {
	resp, err := c.raw(ctx, r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	if slices.Contains(understood, resp.StatusCode) && resp.Header.Get("Content-Type") == api.TypeJSON {
		return resp, nil
	}
	defer drop(resp)
	return nil, problemOf(resp)
}

// raw makes a call and returns the answer, whatever its status.
func (c *Client) raw(ctx context.Context, r request) (*http.Response, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, r.body)
	if err != nil {
		return nil, &headgate.Error{Code: headgate.CodeInvalidArgument, Detail: "the request cannot be built", Err: err}
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if r.media != "" {
		req.Header.Set("Content-Type", r.media)
	}
	if c.fences != "" && r.method == http.MethodPost && r.path == publishPath {
		req.Header.Set(api.HeaderFence, c.fences)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	req.Header.Set("User-Agent", c.agent)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, transportError(ctx, err)
	}
	return resp, nil
}

// drop reads the little that is left, so that the connection can be used
// again, and closes the body.
func drop(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
}

// transportError describes a call without an answer.
func transportError(ctx context.Context, err error) error {
	e := &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.Unknown, Err: err}
	var op *url.Error
	if errors.As(err, &op) {
		err = op.Err
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		e.Code, e.Detail = headgate.CodeCanceled, "the call was cancelled"
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Code, e.Detail = headgate.CodeTimeout, "the call's time ran out"
	default:
		e.Detail = fmt.Sprintf("no answer from the node: %v", err)
		e.Fix = "See that the node runs and that the URL names it; headgate dev starts one."
	}
	return e
}

// problemOf turns an answer into an error.
func problemOf(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var p api.Problem
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || p.Code == "" {
		return &headgate.Error{
			Code: codeOf(resp.StatusCode), Detail: fmt.Sprintf("the node answered %d without a problem document", resp.StatusCode), Err: err,
		}
	}
	e := p.Err()
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && e.RetryAfter == 0 && s > 0 && s < 86400 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// codeOf guesses a code for an answer that did not come from Headgate.
func codeOf(status int) headgate.Code {
	switch status {
	case http.StatusUnauthorized:
		return headgate.CodeUnauthenticated
	case http.StatusForbidden:
		return headgate.CodeForbidden
	case http.StatusNotFound:
		return headgate.CodeNotFound
	case http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
		return headgate.CodeTooLarge
	case http.StatusTooManyRequests:
		return headgate.CodeOverloaded
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return headgate.CodeUnavailable
	}
	if status/100 == 4 {
		return headgate.CodeInvalidArgument
	}
	return headgate.CodeInternal
}

// call makes a call with a JSON body (in may be nil) and reads a JSON answer.
func (c *Client) call(ctx context.Context, r request, in, out any, understood ...int) (int, error) {
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return 0, &headgate.Error{Code: headgate.CodeInvalidArgument, Detail: "the request cannot be written as JSON", Err: err}
		}
		r.media, r.body = api.TypeJSON, bytes.NewReader(b)
	}
	resp, err := c.send(ctx, r, understood...)
	if err != nil {
		return 0, err
	}
	defer drop(resp)
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return resp.StatusCode, &headgate.Error{
			Code: headgate.CodeUnknownOutcome, Detail: "the node's answer broke off or is no JSON", Err: err,
		}
	}
	return resp.StatusCode, nil
}

func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	_, err := c.call(ctx, request{method: http.MethodGet, path: path, query: query}, nil, out)
	return err
}

// seg escapes one segment of a path.
func seg(s string) string { return url.PathEscape(s) }
