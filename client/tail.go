package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
)

// TailMessage is one message of the live stream: an event or a gap.
type TailMessage struct {
	Event *api.TailEvent
	Gap   *api.TailGap
}

// Tail is an open live stream. It belongs to one goroutine.
type Tail struct {
	resp   *http.Response
	lines  *bufio.Reader
	cursor string
	ctx    func() error
}

// TailOpts say what to watch.
type TailOpts struct {
	Types  []string // type patterns
	From   string   // now (default) or beginning
	Cursor string   // of an earlier stream: goes on after it
}

// Tail opens the live stream. The caller closes it.
func (c *Client) Tail(ctx context.Context, opts TailOpts) (*Tail, error) {
	q := url.Values{}
	for _, t := range opts.Types {
		q.Add("type", t)
	}
	if opts.From != "" {
		q.Set("from", opts.From)
	}
	if c.reading != "" {
		q.Set("data", c.reading)
	}
	r := request{method: http.MethodGet, path: "/v1/tail", query: q, header: http.Header{"Accept": {api.TypeSSE}}}
	if opts.Cursor != "" {
		r.header.Set("Last-Event-ID", opts.Cursor)
	}
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Tail{resp: resp, lines: bufio.NewReaderSize(resp.Body, 64<<10), cursor: opts.Cursor, ctx: ctx.Err}, nil
}

// Cursor is where a new stream goes on after the last message of this one.
func (t *Tail) Cursor() string { return t.cursor }

// Close ends the stream.
func (t *Tail) Close() error { return t.resp.Body.Close() }

// maxMessage bounds one message.
const maxMessage = 16 << 20

// Next returns the next message. io.EOF means that the server ended the
// stream; open a new one with the cursor.
func (t *Tail) Next() (TailMessage, error) {
	for {
		kind, data, err := t.message()
		if err != nil {
			return TailMessage{}, err
		}
		var m TailMessage
		switch kind {
		case "event":
			m.Event = &api.TailEvent{}
			err = json.Unmarshal(data, m.Event)
		case "gap":
			m.Gap = &api.TailGap{}
			err = json.Unmarshal(data, m.Gap)
		default:
			continue
		}
		if err != nil {
			return TailMessage{}, &headgate.Error{Code: headgate.CodeUnavailable, Detail: "a message of the live stream is no JSON", Err: err}
		}
		return m, nil
	}
}

// message reads up to the next empty line.
func (t *Tail) message() (kind string, data []byte, err error) {
	for {
		line, err := t.line()
		if err != nil {
			return "", nil, err
		}
		if len(line) == 0 {
			if kind != "" || data != nil {
				return kind, data, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "id":
			t.cursor = string(value)
		case "event":
			kind = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
		if len(data) > maxMessage {
			return "", nil, &headgate.Error{Code: headgate.CodeTooLarge, Detail: "a message of the live stream is too large"}
		}
	}
}

// line reads one line without its end.
func (t *Tail) line() ([]byte, error) {
	var line []byte
	for {
		part, err := t.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= maxMessage:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, &headgate.Error{Code: headgate.CodeTooLarge, Detail: "a message of the live stream is too large"}
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		case err != nil && t.ctx() != nil:
			return nil, &headgate.Error{Code: headgate.CodeCanceled, Detail: "the live stream was cancelled", Err: err}
		case err != nil:
			return nil, &headgate.Error{Code: headgate.CodeUnavailable, Detail: "the live stream broke off", Err: err}
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}
