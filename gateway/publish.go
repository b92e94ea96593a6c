package gateway

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/perimeter"
)

// door is how the perimeter's records name this way in.
const door = "http"

func (g *Gateway) addPublish() {
	g.Handle(Route{
		Method: http.MethodPost, Path: "/v1/events", ID: "publish", Tag: "events", Bulk: true,
		Summary: "Publish one event or many",
		Description: "One event: structured (application/cloudevents+json) or binary (ce- headers). Many: " +
			"application/cloudevents-batch+json, or application/x-ndjson with one structured event a line. " +
			"Content-Encoding: gzip is taken. An answer in the 200s comes only after the durable acknowledgement.",
		Params: []Param{
			{In: "header", Name: api.HeaderCause, Doc: "Causal tokens of the deliveries that the events react to, comma-separated; none: the events are roots"},
			{In: "header", Name: api.HeaderFence, Doc: "Lease tokens, comma-separated: the events are stored only if the leases are current"},
			{In: "header", Name: "Content-Encoding", Doc: "gzip or identity"},
			{In: "header", Name: "Accept", Doc: "text/plain; profile=agent asks for a compact report of at most 12 lines instead of a problem"},
		},
		Requests: []Body{
			{Media: api.TypeEvent, Doc: "One event in the CloudEvents JSON format"},
			{Media: api.TypeBatch, Doc: "A JSON array of events"},
			{Media: api.TypeNDJSON, Doc: "One event in the CloudEvents JSON format a line; empty lines are skipped"},
			{Media: "*/*", Doc: "The data of one event whose attributes are in ce- headers (binary mode)"},
		},
		Responses: []Response{
			{Status: http.StatusAccepted, Doc: "Stored durably: a Published for one event, Results for several", Of: api.Published{}, Or: api.Results{}},
			{Status: http.StatusMultiStatus, Doc: "Several events, some of them refused", Of: api.Results{}},
			{Status: http.StatusUnprocessableEntity, Doc: "Several events, all of them refused", Of: api.Results{}},
		},
		Handle: g.publish,
	})
}

func (g *Gateway) publish(c *Call) error {
	tokens, err := causeTokens(c.R.Header)
	if err != nil {
		return err
	}
	if c.fences, err = fenceTokens(c.R.Header); err != nil {
		return err
	}
	media, err := mediaType(c.R.Header)
	if err != nil {
		return err
	}
	switch {
	case media == api.TypeNDJSON || media == "application/ndjson" || media == "application/jsonl":
		return g.publishLines(c, tokens)
	case media == api.TypeBatch:
		return g.publishBatch(c, tokens)
	case media == api.TypeEvent || headgate.IsBinary(c.R.Header):
		return g.publishOne(c, tokens, media)
	}
	return &headgate.Error{
		Code: headgate.CodeUnsupportedMediaType, Detail: "The content type names no form of an event.",
		Fix: "Send " + api.TypeEvent + ", " + api.TypeBatch + " or " + api.TypeNDJSON + ", or the data with the attributes in ce- headers.",
	}
}

// mediaType returns the media type of the body, in lower case. Texts of events
// are UTF-8 by definition, so that another charset is refused.
func mediaType(h http.Header) (string, error) {
	ct := h.Get("Content-Type")
	if ct == "" {
		return "", nil
	}
	media, params, err := mime.ParseMediaType(ct)
	if err != nil {
		return "", headgate.NewError(headgate.CodeUnsupportedMediaType, "The Content-Type header is malformed.")
	}
	if cs := params["charset"]; cs != "" && strings.HasPrefix(media, "application/cloudevents") && !strings.EqualFold(cs, "utf-8") {
		return "", headgate.NewError(headgate.CodeUnsupportedMediaType, "The charset of an event is UTF-8.")
	}
	return media, nil
}

// Bounds of the Headgate-Cause header.
const (
	maxTokens     = 16
	maxTokenBytes = 4096
)

// causeTokens splits the Headgate-Cause header, which may come several times.
// A header without any token is an error: it comes from a client that reacts
// to something and lost the token, and its event must not become a root, which
// no limit of the tree that it belongs to would hold.
func causeTokens(h http.Header) ([]string, error) {
	var tokens []string
	for _, line := range h.Values(api.HeaderCause) {
		for token := range strings.SplitSeq(line, ",") {
			token = strings.TrimSpace(token)
			if token == "" {
				continue
			}
			if len(tokens) == maxTokens {
				return nil, headgate.NewError(headgate.CodeInvalidArgument, "%s takes at most %d tokens.", api.HeaderCause, maxTokens)
			}
			if len(token) > maxTokenBytes {
				return nil, headgate.NewError(headgate.CodeTokenInvalid, "A token of %s is too long to be genuine.", api.HeaderCause)
			}
			tokens = append(tokens, token)
		}
	}
	if len(tokens) == 0 && len(h.Values(api.HeaderCause)) > 0 {
		return nil, &headgate.Error{
			Code: headgate.CodeTokenInvalid, Detail: api.HeaderCause + " is there, but has no token.",
			Fix: "Send the token exactly as it came with the delivery; leave the header out to start a causal tree.",
		}
	}
	return tokens, nil
}

// admit hands items to the perimeter. The client's leaving does not stop it.
func (g *Gateway) admit(c *Call, tokens []string, items []perimeter.Item) []perimeter.Result {
	ctx, cancel := c.workContext()
	defer cancel()
	return g.admitIn(ctx, c, tokens, items)
}

func (g *Gateway) admitIn(ctx context.Context, c *Call, tokens []string, items []perimeter.Item) []perimeter.Result {
	return g.cfg.Perimeter.Admit(ctx, perimeter.Submission{
		Principal: c.Principal, Door: door, RequestID: c.RequestID, Items: items, Tokens: tokens, Fences: c.fences,
	})
}

func (g *Gateway) publishOne(c *Call, tokens []string, media string) error {
	body, err := c.Limited(g.lim.Body)
	if err != nil {
		return err
	}
	var item perimeter.Item
	if media == api.TypeEvent {
		item = g.decodeStructured(body)
	} else {
		item = g.decodeBinary(c.R.Header, body)
	}
	res := g.admit(c, tokens, []perimeter.Item{item})[0]
	if res.Err != nil {
		c.refused(item, res)
		return nil
	}
	if c.wantsAgentText() {
		c.write(http.StatusAccepted, "text/plain; charset=utf-8; profile=agent", fmt.Appendf(nil, "Accepted: %s in %s.\n", oneLine(res.Event.ID), res.Stream))
		return nil
	}
	c.write(http.StatusAccepted, api.TypeJSON, append(appendPublished(nil, &item, &res), '\n'))
	return nil
}

// refused answers with the problem of one event.
func (c *Call) refused(item perimeter.Item, res perimeter.Result) {
	c.logCause(res.Err)
	p := api.NewProblem(res.Err, c.RequestID)
	p.ID = eventID(&item, &res)
	p.Stage, p.Quarantine = res.Stage, res.QID
	c.problem(p)
}

func (g *Gateway) publishBatch(c *Call, tokens []string) error {
	body, err := c.Limited(g.lim.Body)
	if err != nil {
		return err
	}
	items, fault := g.decodeBatch(body)
	if fault != nil {
		// The perimeter records what cannot be read at all, too.
		item := perimeter.Item{Raw: body, Err: fault}
		c.refused(item, g.admit(c, tokens, []perimeter.Item{item})[0])
		return nil
	}
	sink := newSink(g.cfg.SpoolDir)
	defer sink.close()
	ctx, cancel := c.workContext()
	defer cancel()
	if err := g.admitAll(ctx, c, tokens, items, sink); err != nil {
		return err
	}
	return c.results(sink, nil)
}

// admitPart is how many events are admitted at a time: enough to fill frames,
// few enough to keep results small.
const admitPart = 1000

func (g *Gateway) admitAll(ctx context.Context, c *Call, tokens []string, items []perimeter.Item, sink *sink) error {
	for len(items) > 0 {
		part := items[:min(len(items), admitPart)]
		items = items[len(part):]
		results := g.admitIn(ctx, c, tokens, part)
		sink.expect(len(results))
		for i := range results {
			if err := sink.add(&part[i], &results[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
