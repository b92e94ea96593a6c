package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/registry"
)

func (g *Gateway) addTail() {
	g.Handle(Route{
		Method: http.MethodGet, Path: "/v1/tail", ID: "tail", Tag: "events", Wait: true,
		Summary: "Watch events live (server-sent events)",
		Description: "Messages are of the kind event, or gap where the stream no longer holds what the cursor asks for. " +
			"The id of a message is a cursor over all streams: send it as Last-Event-ID, or in cursor, to go on after it. " +
			"A comment line comes as a heartbeat. The stream takes no claims and settles nothing; a reader that falls behind is served at its own pace.",
		Params: []Param{
			{In: "query", Name: "type", Doc: "Type pattern; may come several times. A viewer may leave it out for all types"},
			{In: "query", Name: "from", Doc: "now (default) or beginning"},
			{In: "query", Name: "data", Doc: "Encoding of the data of Avro contracts: json or avro; default: as it was sent"},
			{In: "query", Name: "cursor", Doc: "As Last-Event-ID, which wins"},
			{In: "header", Name: "Last-Event-ID", Doc: "Cursor of the last message received"},
		},
		Responses: []Response{{Status: http.StatusOK, Doc: "Messages without end: the data of event messages is a TailEvent, of gap messages a TailGap", Media: api.TypeSSE, Of: api.TailEvent{}, Or: api.TailGap{}}},
		Handle:    g.tail,
	})
}

// tailBuffer bounds what the driver keeps ready per partition for one reader.
const tailBuffer = 64

// maxTailTypes bounds the patterns of one live stream.
const maxTailTypes = 64

func (g *Gateway) tail(c *Call) error {
	types, err := tailTypes(c)
	if err != nil {
		return err
	}
	if g.tails.Add(1) > int64(g.lim.Tails) {
		g.tails.Add(-1)
		return overloaded("The node serves as many live streams as it may.", false)
	}
	defer g.tails.Add(-1)
	ctx, done := g.waitContext(c)
	defer done()
	if err := ReadAs(c.Query("data")); err != nil {
		return err
	}
	t := &tailer{c: c, types: types, next: cursor{}, batches: make(chan []tailed), data: c.Query("data"), registry: g.cfg.Registry}
	if err := g.tailStart(ctx, c, t); err != nil {
		return err
	}
	return t.run(ctx)
}

func tailTypes(c *Call) ([]string, error) {
	types := c.QueryAll("type")
	if len(types) > maxTailTypes {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "type may come at most %d times.", maxTailTypes)
	}
	viewer := c.Principal.Can(headgate.RoleViewer)
	if len(types) == 0 {
		if !viewer {
			return nil, headgate.NewError(headgate.CodeInvalidArgument, "type is missing: name the types to watch.")
		}
		return []string{"*"}, nil
	}
	for _, t := range types {
		if !headgate.ValidPattern(t) {
			return nil, headgate.NewError(headgate.CodeInvalidArgument, "type %q is no type pattern.", clip(t))
		}
		if !viewer && !c.Principal.MayListen(t) {
			return nil, headgate.NewError(headgate.CodeTypeNotAllowed, "The principal may not listen to %s.", t)
		}
	}
	return types, nil
}

// tailStart finds where to start in every partition of every stream that may
// hold the types.
func (g *Gateway) tailStart(ctx context.Context, c *Call, t *tailer) error {
	from := c.Query("from")
	if from != "" && from != "now" && from != "beginning" {
		return headgate.NewError(headgate.CodeInvalidArgument, "from must be now or beginning.")
	}
	last := c.R.Header.Get("Last-Event-ID")
	if last == "" {
		last = c.Query("cursor")
	}
	resumed, err := parseCursor(last)
	if err != nil {
		return headgate.NewError(headgate.CodeInvalidArgument, "The cursor is malformed; start without one.")
	}
	t.broker = g.cfg.Broker
	t.heartbeat = g.lim.Heartbeat
	for _, stream := range g.cfg.Topology.StreamsFor(t.types) {
		stats, err := g.cfg.Broker.Stat(ctx, stream)
		if err != nil {
			return err
		}
		next := make(map[uint32]uint64, len(stats))
		for _, st := range stats {
			at, ok := resumed[stream][st.Partition]
			switch {
			case ok:
				at = min(at, st.Next) // a cursor of another life of the data
			case from == "beginning":
				at = st.First
			default:
				at = st.Next
			}
			next[st.Partition] = at
		}
		t.next[stream] = next
	}
	return nil
}

// tailed is one stored event with the stream that it is from.
type tailed struct {
	stream string
	broker.Stored
}

// tailer serves one live stream. Each stream is read by one goroutine, which
// hands batches over; the handler's goroutine alone writes and keeps the
// cursor. Nothing is buffered between them, so that a slow client slows the
// readers, and through them the driver stops reading.
type tailer struct {
	c         *Call
	broker    broker.Broker
	types     []string
	next      cursor
	batches   chan []tailed
	heartbeat time.Duration
	data      string // encoding that was asked for
	registry  *registry.Registry
	buf       []byte
}

func (t *tailer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var readers sync.WaitGroup
	defer func() {
		cancel(nil)
		readers.Wait()
	}()
	var subs []broker.Subscription
	for stream, from := range t.next {
		start := make(map[uint32]uint64, len(from))
		for p, at := range from {
			start[p] = at
		}
		sub, err := t.broker.Subscribe(ctx, broker.SubscribeSpec{Name: "tail-" + t.c.RequestID, Stream: stream, From: start, Buffer: tailBuffer})
		if err != nil {
			for _, s := range subs {
				_ = s.Close() // only ever read from
			}
			return err
		}
		subs = append(subs, sub)
		readers.Go(func() {
			defer func() { _ = sub.Close() }() // only ever read from
			if err := t.read(ctx, stream, sub); err != nil {
				cancel(err)
			}
		})
	}
	return t.write(ctx)
}

// read hands over what one stream brings.
func (t *tailer) read(ctx context.Context, stream string, sub broker.Subscription) error {
	for {
		ds, err := sub.Receive(ctx, tailBuffer)
		var gap *broker.GapError
		if errors.As(err, &gap) {
			continue // the next event shows the gap in its offset
		}
		if err != nil {
			return err
		}
		batch := make([]tailed, len(ds))
		acks := make([]broker.Settlement, len(ds))
		for i := range ds {
			batch[i] = tailed{stream: stream, Stored: ds[i].Stored}
			acks[i] = broker.Settlement{Position: ds[i].Position, Act: broker.Ack}
		}
		select {
		case t.batches <- batch:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := sub.Settle(ctx, acks); err != nil {
			return err
		}
	}
}

// write is the handler's loop. Once the header is out an error can only end
// the stream; the client resumes by cursor.
func (t *tailer) write(ctx context.Context) error {
	h := t.c.W.Header()
	h.Set("Content-Type", api.TypeSSE)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	t.c.W.WriteHeader(http.StatusOK)
	// The first message tells the cursor, so that a client that saw no event
	// can resume, too.
	t.buf = append(t.buf[:0], "retry: 1000\nid: "...)
	t.buf = t.next.append(t.buf)
	t.buf = append(t.buf, "\nevent: start\ndata: {}\n\n"...)
	if !t.flush() {
		return nil
	}
	beat := time.NewTicker(t.heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.c.g.cfg.Log.Warn("live stream broke off", "request", t.c.RequestID, "error", err)
			}
			return nil
		case <-beat.C:
			t.buf = append(t.next.append(append(t.buf[:0], ": heartbeat\nid: "...)), "\n\n"...)
		case batch := <-t.batches:
			t.buf = t.buf[:0]
			for i := range batch {
				if err := t.message(&batch[i]); err != nil {
					t.c.g.cfg.Log.Error("event cannot be encoded", "request", t.c.RequestID, "position", batch[i].Position.String(), "error", err)
					return nil
				}
			}
		}
		// A token with a set end runs out without anybody changing anything.
		if ctx.Err() != nil || !t.c.stillLetIn() {
			return nil
		}
		if len(t.buf) > 0 && !t.flush() {
			return nil
		}
	}
}

// message appends what one event makes of the stream: perhaps a gap before it,
// itself if it matches, nothing otherwise.
func (t *tailer) message(e *tailed) error {
	at := t.next[e.stream]
	want := at[e.Position.Partition]
	if e.Position.Offset < want {
		return nil // handed out twice
	}
	at[e.Position.Partition] = e.Position.Offset + 1
	if e.Position.Offset > want {
		gap, err := json.Marshal(api.TailGap{
			Stream: e.stream, Missing: e.Position.Offset - want,
			From: headgate.Position{Partition: e.Position.Partition, Offset: want}.String(), To: e.Position.String(),
		})
		if err != nil {
			return err
		}
		t.buf = append(append(append(t.buf, "event: gap\ndata: "...), gap...), "\n\n"...)
	}
	if !slices.ContainsFunc(t.types, func(p string) bool { return headgate.MatchType(p, e.Event.Type) }) {
		return nil
	}
	t.buf = append(t.buf, "id: "...)
	t.buf = t.next.append(t.buf)
	t.buf = append(t.buf, "\nevent: event\ndata: {\"stream\":"...)
	t.buf = strconv.AppendQuote(t.buf, e.stream) // stream names are plain ASCII
	t.buf = append(append(append(t.buf, `,"position":"`...), e.Position.String()...), `","event":`...)
	// AppendLine keeps line ends, which would cut the message, out of the text,
	// and ends with one.
	event := e.Event
	if t.registry != nil {
		event = t.registry.View(t.c.Context(), event, t.data)
	}
	t.buf = bytes.TrimSuffix(headgate.AppendLine(t.buf, event), []byte{'\n'})
	t.buf = append(t.buf, "}\n\n"...)
	return nil
}

// flush sends the buffer, and reports whether the client still takes it.
func (t *tailer) flush() bool {
	t.c.patience()
	if _, err := t.c.W.Write(t.buf); err != nil {
		return false
	}
	if cap(t.buf) > 1<<20 {
		t.buf = nil
	}
	return http.NewResponseController(t.c.W).Flush() == nil
}
