package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
)

// Pull takes up to limit deliveries, waiting up to wait for the first. None
// after the wait is no error.
func (c *Client) Pull(ctx context.Context, subscription string, limit int, wait time.Duration) ([]api.Delivery, error) {
	var out api.PullResponse
	_, err := c.call(ctx, request{method: http.MethodPost, path: "/v1/subscriptions/" + seg(subscription) + "/pull"},
		api.PullRequest{Max: limit, Wait: api.Duration(wait), Data: c.reading}, &out)
	return out.Deliveries, err
}

// Settle ends claims. What became of each is in the results; the error is of
// the request, and also tells when no claim at all was settled: the results
// are there in that case, too.
func (c *Client) Settle(ctx context.Context, subscription string, settle ...api.Settlement) (api.SettleResponse, error) {
	var out api.SettleResponse
	b, err := json.Marshal(api.SettleRequest{Settle: settle})
	if err != nil {
		return out, &headgate.Error{Code: headgate.CodeInvalidArgument, Detail: "the settlements cannot be written as JSON", Err: err}
	}
	resp, err := c.raw(ctx, request{
		method: http.MethodPost, path: "/v1/subscriptions/" + seg(subscription) + "/settle", media: api.TypeJSON, body: bytes.NewReader(b),
	})
	if err != nil {
		return out, err
	}
	defer drop(resp)
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return out, transportError(ctx, err)
	}
	if err := json.Unmarshal(body, &out); err != nil && resp.StatusCode/100 == 2 {
		return out, &headgate.Error{Code: headgate.CodeUnknownOutcome, Detail: "the node's answer is no JSON", Err: err}
	}
	if resp.StatusCode/100 == 2 {
		return out, nil
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return out, problemOf(resp)
}
