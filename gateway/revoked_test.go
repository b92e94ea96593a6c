package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/nodetest"
)

// streamed starts a call whose body is r, and returns its answer later.
func streamed(t *testing.T, n *nodetest.Node, who, method, path string, r io.Reader, contentType string) <-chan *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, n.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.Tokens[who])
	req.Header.Set("Content-Type", contentType)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	out := make(chan *http.Response, 1)
	go func() {
		defer close(out)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		out <- resp
	}()
	return out
}

// Whoever is cut off is cut off at once: also from the stream that they
// already watch.
func TestLiveStreamEndsWithTheRight(t *testing.T) {
	for _, end := range []string{"disable", "rotate"} {
		t.Run(end, func(t *testing.T) {
			leakFree(t)
			n := nodetest.Start(t, nil)
			resp := <-streamed(t, n, "viewer", "GET", "/v1/tail", nil, "")
			if resp == nil {
				return
			}
			defer func() { _ = resp.Body.Close() }()
			lines := bufio.NewReader(resp.Body)
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if a := ask(t, n, "admin", "POST", "/v1/principals/viewer/"+end, ""); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			publish(t, n, "desk", opened("secret", "T"))
			rest, err := io.ReadAll(lines)
			if err != nil || strings.Contains(string(rest), "secret") {
				t.Errorf("the stream went on (%v): %s", err, rest)
			}
		})
	}
}

// told closes a channel when everything was read.
type told struct {
	io.Reader
	read chan struct{}
}

func (r *told) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		close(r.read)
	}
	return n, err
}

func TestLongPollEndsWithTheRight(t *testing.T) {
	leakFree(t)
	n := nodetest.Start(t, nil)
	subscribe(t, n, "triage", triageSpec)
	body := &told{strings.NewReader(`{"wait":"60s"}`), make(chan struct{})}
	answer := streamed(t, n, "triage", "POST", "/v1/subscriptions/triage/pull", body, api.TypeJSON)
	<-body.read // so the caller is known by now
	ask(t, n, "admin", "POST", "/v1/principals/triage/disable", "")
	publish(t, n, "desk", opened("secret", "T"))
	resp := <-answer
	if resp == nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); err != nil || strings.Contains(string(got), "secret") {
		t.Errorf("the poll went on (%v): %s", err, got)
	}
}

// A body of lines may take hours to arrive.
func TestLinesEndWithTheRight(t *testing.T) {
	leakFree(t)
	n := nodetest.Start(t, nil)
	tail := openTail(t, n, "viewer", client.TailOpts{})
	r, w := io.Pipe()
	answer := streamed(t, n, "desk", "POST", "/v1/events", r, api.TypeNDJSON)
	write := func(prefix string, lines int) {
		for i := range lines {
			if _, err := io.WriteString(w, opened(prefix+strconv.Itoa(i), "T")+"\n"); err != nil {
				return // the node answered
			}
		}
	}
	write("a", 1000)
	nextEvent(t, tail) // the first part is in
	ask(t, n, "admin", "POST", "/v1/principals/desk/disable", "")
	write("b", 1000)
	_ = w.Close()
	resp := <-answer
	if resp == nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	var got struct {
		Accepted int
		Stopped  *struct{ Code headgate.Code }
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Accepted != 1000 || got.Stopped == nil || got.Stopped.Code != headgate.CodeUnauthenticated {
		t.Errorf("answer %+v, %v", got, err)
	}
}
