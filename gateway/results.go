package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/jsontext"
	"github.com/headgate/headgate/perimeter"
)

// spoolAt is how many bytes of results stay in memory; beyond, they go to a
// file until the request is read whole and its status is known.
const spoolAt = 1 << 20

// fullReports is how many refusals of one request are reported with all their
// violations. The others name their code and quarantine record.
const fullReports = 1000

// sink collects the results of one request as the elements of a JSON array.
type sink struct {
	dir      string
	mem      []byte
	file     *os.File
	accepted int
	refused  int
	later    int             // refusals that are worth a retry later
	first    *headgate.Error // first refusal
}

func newSink(dir string) *sink { return &sink{dir: dir} }

func (s *sink) count() int { return s.accepted + s.refused }

// expect makes room for as many results as are about to come.
func (s *sink) expect(n int) { s.mem = slices.Grow(s.mem, min(n*roomForResult, spoolAt)) }

// roomForResult is about what the result of an accepted event takes.
const roomForResult = 192

// add appends one result.
func (s *sink) add(item *perimeter.Item, res *perimeter.Result) error {
	if s.count() > 0 {
		s.mem = append(s.mem, ',')
	}
	if res.Err == nil {
		s.accepted++
		s.mem = appendAccepted(s.mem, item, res)
	} else {
		s.refuse(item, res)
	}
	if len(s.mem) < spoolAt {
		return nil
	}
	return s.spool()
}

func (s *sink) refuse(item *perimeter.Item, res *perimeter.Result) {
	if s.first == nil {
		s.first = res.Err
	}
	s.refused++
	if res.Err.Info().Retry == headgate.RetryLater {
		s.later++
	}
	r := resultOf(item, res)
	if s.refused > fullReports {
		r.Truncated += len(r.Violations)
		r.Violations, r.Proposals = nil, nil
	}
	b, err := json.Marshal(r)
	if err != nil { // no value of Result does this
		b = []byte(`{"status":500,"code":"internal"}`)
	}
	s.mem = append(s.mem, b...)
}

// spool moves what is in memory to the file.
func (s *sink) spool() error {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "headgate-results-*")
		if err != nil {
			return spoolError(err)
		}
		s.file = f
		// The name goes at once: whatever happens, nothing is left behind.
		if err := os.Remove(f.Name()); err != nil {
			return spoolError(err)
		}
	}
	if _, err := s.file.Write(s.mem); err != nil {
		return spoolError(err)
	}
	s.mem = s.mem[:0]
	return nil
}

func spoolError(err error) error {
	return &headgate.Error{
		Code: headgate.CodeDiskFull, Outcome: headgate.Unknown,
		Detail: "The node cannot keep the results of so many events; those admitted so far are stored.",
		Fix:    "Send fewer events in one request; repeat with the same ids.", Err: err,
	}
}

// close releases the file.
func (s *sink) close() {
	if s.file != nil {
		_ = s.file.Close() // it has no name any more
	}
}

// status is the HTTP status of the whole.
func (s *sink) status(stopped bool) int {
	switch {
	case s.refused == 0 && !stopped:
		return http.StatusAccepted
	case s.accepted > 0:
		return http.StatusMultiStatus
	case s.later == s.refused && s.first != nil:
		return s.first.Info().Status
	}
	return http.StatusUnprocessableEntity
}

// results answers a request of several events.
func (c *Call) results(s *sink, stopped *headgate.Error) error {
	status := s.status(stopped != nil)
	c.logCause(s.first)
	c.logCause(stopped)
	head := `{"accepted":` + strconv.Itoa(s.accepted) + `,"refused":` + strconv.Itoa(s.refused) + `,"results":[`
	tail := []byte("]}\n")
	h := c.W.Header()
	if stopped != nil {
		r := api.NewRefusal(stopped)
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		tail = append(append([]byte(`],"stopped":`), b...), "}\n"...)
		setRetryAfter(h, stopped.Info().Status, r)
		if c.unread() {
			h.Set("Connection", "close")
		}
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		setRetryAfter(h, status, api.NewRefusal(s.first))
	}
	size := int64(len(head) + len(s.mem) + len(tail))
	var spooled io.Reader
	if s.file != nil {
		n, err := s.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return spoolError(err)
		}
		size += n
		spooled = io.NewSectionReader(s.file, 0, n)
	}
	h.Set("Content-Type", api.TypeJSON)
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Cache-Control", "no-store")
	c.W.WriteHeader(status)
	if !c.send([]byte(head)) || s.file != nil && !c.copyOut(spooled) || !c.send(s.mem) {
		return nil
	}
	c.send(tail)
	return nil
}

// copyOut writes part by part, each within the client's patience. A failure
// leaves a short answer on a connection that the server then closes; so does
// that of send. Both report whether all was written.
func (c *Call) copyOut(r io.Reader) bool {
	buf := make([]byte, answerPart)
	for {
		n, err := r.Read(buf)
		if n > 0 && !c.send(buf[:n]) {
			return false
		}
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// eventID is the id of an event that was refused or admitted, if it has one.
func eventID(item *perimeter.Item, res *perimeter.Result) string {
	if res.Event != nil && res.Event.ID != "" {
		return res.Event.ID
	}
	if item.Event != nil {
		return item.Event.ID
	}
	return ""
}

// resultOf describes one result among several.
func resultOf(item *perimeter.Item, res *perimeter.Result) api.Result {
	r := api.Result{ID: eventID(item, res), Status: api.StatusOf(res.Err), Ignored: item.Ignored}
	if res.Err != nil {
		r.Refusal = api.NewRefusal(res.Err)
		r.Stage, r.Quarantine = res.Stage, res.QID
		if res.Err.Verdict != nil {
			r.Contract = res.Err.Verdict.Contract.String()
		}
		return r
	}
	h := &res.Event.Header
	r.Stream, r.Position, r.Duplicate = res.Stream, res.Position.String(), res.Duplicate
	if r.Pending = res.Pending; r.Pending {
		r.Position = ""
	}
	r.RootID, r.TTL, r.Hop = h.RootID, h.TTL, h.Hop
	r.Contract, r.Draft, r.Mended = contractName(res), res.Contract.Draft, res.Mended
	return r
}

// contractName is the contract that an event passed. A duplicate is not
// checked again: it has the one that its first admission recorded.
func contractName(res *perimeter.Result) string {
	if res.Contract.Subject != "" {
		return res.Contract.String()
	}
	return res.Event.DataSchema
}

// appendPublished writes an api.Published without reflection: on the path of
// every accepted event.
func appendPublished(b []byte, item *perimeter.Item, res *perimeter.Result) []byte {
	b = append(b, `{"id":`...)
	b = jsontext.AppendString(b, res.Event.ID)
	return appendRest(b, item, res)
}

// appendAccepted writes an api.Result of an accepted event.
func appendAccepted(b []byte, item *perimeter.Item, res *perimeter.Result) []byte {
	b = append(b, `{"id":`...)
	b = jsontext.AppendString(b, res.Event.ID)
	b = append(b, `,"status":202`...)
	return appendRest(b, item, res)
}

func appendRest(b []byte, item *perimeter.Item, res *perimeter.Result) []byte {
	h := &res.Event.Header
	b = append(b, `,"stream":`...)
	b = jsontext.AppendString(b, res.Stream)
	if res.Pending {
		b = append(b, `,"pending":true,"rootid":`...)
	} else {
		b = append(b, `,"position":"`...)
		b = strconv.AppendUint(b, uint64(res.Position.Partition), 10)
		b = append(b, ':')
		b = strconv.AppendUint(b, res.Position.Offset, 10)
		b = append(b, `","rootid":`...)
	}
	b = jsontext.AppendString(b, h.RootID)
	b = append(b, `,"ttl":`...)
	b = strconv.AppendInt(b, int64(h.TTL), 10)
	b = append(b, `,"hop":`...)
	b = strconv.AppendInt(b, int64(h.Hop), 10)
	b = append(b, `,"contract":`...)
	b = jsontext.AppendString(b, contractName(res))
	if res.Contract.Draft {
		b = append(b, `,"draft":true`...)
	}
	b = append(b, `,"duplicate":`...)
	b = strconv.AppendBool(b, res.Duplicate)
	if len(item.Ignored) > 0 {
		b = append(b, `,"ignored":[`...)
		for i, name := range item.Ignored {
			if i > 0 {
				b = append(b, ',')
			}
			b = jsontext.AppendString(b, name)
		}
		b = append(b, ']')
	}
	if res.Mended != "" {
		b = append(b, `,"mended":`...)
		b = jsontext.AppendString(b, res.Mended)
	}
	return append(b, '}')
}
