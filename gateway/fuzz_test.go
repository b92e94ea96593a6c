package gateway_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/nodetest"
)

// Whatever is published in whatever form: the answer is one of the promised
// ones, well-formed, complete, and never a fault of the node.
func FuzzPublish(f *testing.F) {
	media := []string{api.TypeEvent, api.TypeBatch, api.TypeNDJSON, "application/json", "text/plain", ""}
	for i := range media {
		f.Add(uint8(i), []byte(opened("e", "T")), "ticket.opened", "")
		f.Add(uint8(i), []byte("["+opened("e", "T")+"]\n{}"), "", "a,b")
	}
	f.Add(uint8(2), []byte("{\"specversion\":\"1.0\"}\r\n\x00\n\xff"), "x", "gzip")
	n := nodetest.Start(f, nil)
	f.Fuzz(func(t *testing.T, form uint8, body []byte, eventType, cause string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/events", strings.NewReader(string(body)))
		r.Header.Set("Authorization", "Bearer "+n.Tokens["desk"])
		r.Header.Set("Content-Type", media[int(form)%len(media)])
		if eventType != "" {
			r.Header["Ce-Type"], r.Header["Ce-Specversion"] = []string{eventType}, []string{"1.0"}
		}
		if cause == "gzip" {
			r.Header.Set("Content-Encoding", cause)
		} else if cause != "" {
			r.Header[api.HeaderCause] = []string{cause}
		}
		w := httptest.NewRecorder()
		n.Gateway.ServeHTTP(w, r)
		switch w.Code {
		case 202, 207, 400, 403, 413, 415, 422, 429:
		default:
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("answer %d is no JSON: %q", w.Code, w.Body)
		}
		if w.Header().Get(api.HeaderRequestID) == "" {
			t.Error("no request id")
		}
		var res api.Results
		if w.Header().Get("Content-Type") == api.TypeJSON && strings.HasPrefix(w.Body.String(), `{"accepted"`) {
			if err := json.Unmarshal(w.Body.Bytes(), &res); err != nil {
				t.Fatal(err)
			}
			if res.Accepted+res.Refused != len(res.Results) {
				t.Fatalf("%d + %d are not %d results", res.Accepted, res.Refused, len(res.Results))
			}
		}
	})
}
