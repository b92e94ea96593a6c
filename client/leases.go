package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/lease/hold"
)

// Fenced returns a client that publishes under leases: their tokens go with
// every publish, which is refused once one of them is superseded. Renewals
// bring new tokens: ask hold.Lease.Token for each call.
func (c *Client) Fenced(tokens ...string) *Client {
	under := *c
	under.fences = strings.Join(tokens, ", ")
	return &under
}

func leasePath(resource, verb string) string { return "/v1/leases/" + seg(resource) + "/" + verb }

// named refuses what names no resource: in a path it would be another one.
func named(resource string) error {
	if headgate.ValidResource(resource) {
		return nil
	}
	e := headgate.NewError(headgate.CodeInvalidArgument, "%.80q names no resource", resource)
	e.Fix = fmt.Sprintf("Name it by 1 to %d bytes of printable text such as ticket/42, without empty, \".\" or \"..\" segments between slashes.", headgate.MaxResourceLength)
	return e
}

// Acquire acquires the lease on a resource, and on those in Also.
func (c *Client) Acquire(ctx context.Context, resource string, in api.AcquireRequest) (out api.Lease, err error) {
	if err := named(resource); err != nil {
		return out, err
	}
	_, err = c.call(ctx, request{method: http.MethodPost, path: leasePath(resource, "acquire")}, in, &out)
	return out, err
}

// Renew makes a lease last longer. The answer's token replaces the one sent.
func (c *Client) Renew(ctx context.Context, resource string, in api.LeaseRequest) (out api.Lease, err error) {
	if err := named(resource); err != nil {
		return out, err
	}
	_, err = c.call(ctx, request{method: http.MethodPost, path: leasePath(resource, "renew")}, in, &out)
	return out, err
}

// Release gives a lease back. One that has ended already is lease_lost.
func (c *Client) Release(ctx context.Context, resource, token string) error {
	if err := named(resource); err != nil {
		return err
	}
	var out api.Released
	_, err := c.call(ctx, request{method: http.MethodPost, path: leasePath(resource, "release")}, api.LeaseRequest{Token: token}, &out)
	return err
}

// Revoke takes a lease from its holder. It needs the role operator.
func (c *Client) Revoke(ctx context.Context, resource string, in api.RevokeRequest) (out api.Revoked, err error) {
	if err := named(resource); err != nil {
		return out, err
	}
	_, err = c.call(ctx, request{method: http.MethodPost, path: leasePath(resource, "revoke")}, in, &out)
	return out, err
}

// Lease returns the state of one lease.
func (c *Client) Lease(ctx context.Context, resource string) (out api.LeaseState, err error) {
	if err := named(resource); err != nil {
		return out, err
	}
	err = c.get(ctx, "/v1/leases/"+seg(resource), nil, &out)
	return out, err
}

// Leases lists leases whose resource starts with prefix; held leaves out those
// that nobody holds.
func (c *Client) Leases(ctx context.Context, prefix string, held bool, p Page) (out api.Leases, err error) {
	q := p.query(nil)
	if prefix != "" {
		q.Set("prefix", prefix)
	}
	if held {
		q.Set("held", strconv.FormatBool(held))
	}
	err = c.get(ctx, "/v1/leases", q, &out)
	return out, err
}

// VerifyFence asks whether a token is good for a target now.
func (c *Client) VerifyFence(ctx context.Context, token, target string) (out api.Verified, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: "/v1/fence/verify"}, api.VerifyRequest{Token: token, Target: target}, &out)
	return out, err
}

// FenceKeys returns the keys by which tokens can be verified.
func (c *Client) FenceKeys(ctx context.Context) (out api.FenceKeys, err error) {
	err = c.get(ctx, "/v1/fence/keys", nil, &out)
	return out, err
}

// LeaseWatch is an open stream of the states of one lease. It belongs to one
// goroutine.
type LeaseWatch struct {
	resp  *http.Response
	lines *bufio.Reader
	why   func(error) error // what a broken stream means
}

// WatchLease opens the stream of a lease's states. The caller closes it.
func (c *Client) WatchLease(ctx context.Context, resource string) (*LeaseWatch, error) {
	if err := named(resource); err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, request{method: http.MethodGet, path: leasePath(resource, "watch"), query: url.Values{}, header: http.Header{"Accept": {api.TypeSSE}}})
	if err != nil {
		return nil, err
	}
	why := func(err error) error {
		if errors.Is(err, io.EOF) && ctx.Err() == nil {
			return io.EOF
		}
		return transportError(ctx, err)
	}
	return &LeaseWatch{resp: resp, lines: bufio.NewReaderSize(resp.Body, 8<<10), why: why}, nil
}

// Close ends the stream.
func (w *LeaseWatch) Close() error { return w.resp.Body.Close() }

// Next returns the next state. io.EOF means that the server ended the stream.
func (w *LeaseWatch) Next() (api.LeaseState, error) {
	var st api.LeaseState
	for {
		line, err := w.lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return st, &headgate.Error{Code: headgate.CodeTooLarge, Detail: "a message of the live stream is too large"}
		}
		if err != nil {
			return st, w.why(err)
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:"))
		if !ok {
			continue
		}
		if err := json.Unmarshal(data, &st); err != nil {
			return st, &headgate.Error{Code: headgate.CodeUnavailable, Detail: "a message of the live stream is no JSON", Err: err}
		}
		return st, nil
	}
}

// AcquireLease implements hold.Keeper, by which hold.Acquire keeps a lease of
// this node.
func (c *Client) AcquireLease(ctx context.Context, resource string, w hold.Want) (hold.Granted, error) {
	out, err := c.Acquire(ctx, resource, api.AcquireRequest{
		Worker: w.Worker, TTLMS: w.TTL.Milliseconds(), WaitMS: w.Wait.Milliseconds(), MaxHoldMS: w.MaxHold.Milliseconds(),
		RequestID: w.RequestID, Audience: w.Audience, Seal: w.Seal,
	})
	return granted(&out), err
}

// RenewLease implements hold.Keeper.
func (c *Client) RenewLease(ctx context.Context, resource, token string, ttl time.Duration) (hold.Granted, error) {
	out, err := c.Renew(ctx, resource, api.LeaseRequest{Token: token, TTLMS: ttl.Milliseconds()})
	return granted(&out), err
}

// ReleaseLease implements hold.Keeper.
func (c *Client) ReleaseLease(ctx context.Context, resource, token string) error {
	return c.Release(ctx, resource, token)
}

func granted(l *api.Lease) hold.Granted {
	return hold.Granted{Resource: l.Resource, Epoch: l.Epoch, Token: l.Token, ExpiresIn: time.Duration(l.ExpiresInMS) * time.Millisecond}
}
