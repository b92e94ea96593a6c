package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/topology"
)

func fencedNode(t *testing.T) *nodetest.Node {
	return nodetest.Start(t, &nodetest.Opts{Types: []topology.Type{{Pattern: "ticket.opened", Fence: "ticket/{data.ticket_id}"}}})
}

// publish sends one ticket.opened as the admin and returns status and body.
func publishFenced(t *testing.T, n *nodetest.Node, id, ticket string, fences ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.URL+"/v1/events",
		strings.NewReader(`{"specversion":"1.0","id":"`+id+`","source":"/t","type":"ticket.opened","data":{"ticket_id":"`+ticket+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", api.TypeEvent)
	req.Header.Set("Authorization", "Bearer "+n.Tokens["admin"])
	for _, f := range fences {
		req.Header.Add(api.HeaderFence, f)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestFencedPublish(t *testing.T) {
	n := fencedNode(t)
	admin := n.Client(t, "admin")
	status, body := publishFenced(t, n, "1", "7")
	if status != 428 || !strings.Contains(body, `"code":"fence_missing"`) || !strings.Contains(body, `"stage":"fence"`) {
		t.Errorf("without a fence: %d %s", status, body)
	}
	l, err := admin.Acquire(t.Context(), "ticket/7", api.AcquireRequest{})
	if err != nil {
		t.Fatal(err)
	}
	status, body = publishFenced(t, n, "1", "7", l.Token)
	if status != 202 || !strings.Contains(body, `"position":"`) || strings.Contains(body, "pending") {
		t.Errorf("under the lease: %d %s", status, body)
	}
	again, err := admin.Fenced(l.Token).Publish(t.Context(), &headgate.Event{ID: "1", Source: "/t", Type: "ticket.opened", Data: []byte(`{"ticket_id":"7"}`)})
	if err != nil || !again.Duplicate {
		t.Errorf("by the client: %+v, %v", again, err)
	}
	status, body = publishFenced(t, n, "1", "7", l.Token)
	if status != 202 || !strings.Contains(body, `"duplicate":true`) {
		t.Errorf("again: %d %s", status, body)
	}
	if status, body = publishFenced(t, n, "2", "8", l.Token); status != 403 || !strings.Contains(body, `"code":"fence_foreign"`) {
		t.Errorf("about another ticket: %d %s", status, body)
	}
	if status, body = publishFenced(t, n, "2", "7", "hgl1.x.y"); status != 403 || !strings.Contains(body, `"code":"fence_invalid"`) {
		t.Errorf("no token: %d %s", status, body)
	}
	if status, body = publishFenced(t, n, "2", "7", " , "); status != 403 || !strings.Contains(body, `"code":"fence_invalid"`) {
		t.Errorf("header without a token: %d %s", status, body)
	}
	triaged, err := n.Client(t, "triage").Acquire(t.Context(), "ticket/9", api.AcquireRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if status, body = publishFenced(t, n, "2", "9", triaged.Token); status != 403 || !strings.Contains(body, `"code":"fence_foreign"`) {
		t.Errorf("lease of another principal: %d %s", status, body)
	}
	var fences []string
	stats, err := n.Broker.Stat(t.Context(), topology.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range stats {
		stored, err := n.Broker.Browse(t.Context(), topology.DefaultStream, headgate.Position{Partition: st.Partition}, int(st.Next)+1)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range stored {
			fences = append(fences, e.Event.Header.Fence)
		}
	}
	if len(fences) != 1 || fences[0] != "ticket/7@"+l.EpochText {
		t.Errorf("stored under %v", fences)
	}
	if err := admin.Release(t.Context(), "ticket/7", l.Token); err != nil {
		t.Fatal(err)
	}
	status, body = publishFenced(t, n, "3", "7", l.Token)
	if status != 412 || !strings.Contains(body, `"code":"stale_fence"`) || !strings.Contains(body, `"retryable":"never"`) {
		t.Errorf("after release: %d %s", status, body)
	}
}
