package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
)

// publishPath is where events are published.
const publishPath = "/v1/events"

// causes returns the header that carries causal tokens.
func causes(tokens []string) http.Header {
	if len(tokens) == 0 {
		return nil
	}
	return http.Header{api.HeaderCause: {strings.Join(tokens, ", ")}}
}

// Publish publishes one event. Tokens are the causes that it reacts to; without
// one it starts a causal tree. A refusal comes back as an error.
func (c *Client) Publish(ctx context.Context, e *headgate.Event, tokens ...string) (api.Published, error) {
	return c.PublishRaw(ctx, headgate.AppendStructured(nil, e), tokens...)
}

// PublishRaw is [Client.Publish] for an event in the CloudEvents JSON format.
func (c *Client) PublishRaw(ctx context.Context, event []byte, tokens ...string) (api.Published, error) {
	var out api.Published
	_, err := c.call(ctx, request{
		method: http.MethodPost, path: publishPath, media: api.TypeEvent, body: bytes.NewReader(event), header: causes(tokens),
	}, nil, &out)
	return out, err
}

// PublishBatch publishes several events in one request. Refusals of single
// events are among the results and no error; the error is of the request.
func (c *Client) PublishBatch(ctx context.Context, events []*headgate.Event, tokens ...string) (api.Results, error) {
	return c.publishMany(ctx, api.TypeBatch, bytes.NewReader(headgate.AppendBatch(nil, events)), tokens)
}

// PublishLines publishes NDJSON as it is read, with one structured event a
// line. The results are those of [Client.PublishBatch], in input order.
func (c *Client) PublishLines(ctx context.Context, lines io.Reader, tokens ...string) (api.Results, error) {
	return c.publishMany(ctx, api.TypeNDJSON, lines, tokens)
}

func (c *Client) publishMany(ctx context.Context, media string, body io.Reader, tokens []string) (api.Results, error) {
	var out api.Results
	_, err := c.call(ctx, request{method: http.MethodPost, path: publishPath, media: media, body: body, header: causes(tokens)}, nil, &out,
		http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable)
	return out, err
}

// waiting is the query that waits for the index.
func waiting(wait bool) url.Values {
	if !wait {
		return nil
	}
	return url.Values{"wait": {"true"}}
}

// Reading returns a client that reads the data of Avro contracts in an
// encoding, json or avro, wherever events are read (Pull, Tail, Event, Explain);
// otherwise it comes as it was sent.
func (c *Client) Reading(data string) *Client {
	as := *c
	as.reading = data
	return &as
}

// Event returns the events with the id. With wait, the answer includes
// everything stored before the call.
func (c *Client) Event(ctx context.Context, id string, wait bool) (out api.Events, err error) {
	err = c.get(ctx, "/v1/events/"+seg(id), c.readingQuery(wait), &out)
	return out, err
}

func (c *Client) readingQuery(wait bool) url.Values {
	q := waiting(wait)
	if c.reading != "" {
		if q == nil {
			q = url.Values{}
		}
		q.Set("data", c.reading)
	}
	return q
}

// Explain says why an event went where it went.
func (c *Client) Explain(ctx context.Context, id string, wait bool) (out api.Explanation, err error) {
	err = c.get(ctx, "/v1/events/"+seg(id)+"/explain", c.readingQuery(wait), &out)
	return out, err
}

// Tree returns the causal tree of a root, at most limit events (0: the
// server's default).
func (c *Client) Tree(ctx context.Context, root string, limit int, wait bool) (out api.Tree, err error) {
	q := waiting(wait)
	if limit > 0 {
		if q == nil {
			q = url.Values{}
		}
		q.Set("limit", strconv.Itoa(limit))
	}
	err = c.get(ctx, "/v1/roots/"+seg(root), q, &out)
	return out, err
}
