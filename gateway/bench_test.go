package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/nodetest"
)

// post sends a request over a kept connection and drops the answer.
func post(b *testing.B, hc *http.Client, n *nodetest.Node, media string, body []byte) {
	b.Helper()
	req, err := http.NewRequest("POST", n.URL+"/v1/events", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.Tokens["desk"])
	req.Header.Set("Content-Type", media)
	resp, err := hc.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	if resp.StatusCode != http.StatusAccepted {
		b.Fatalf("status %d", resp.StatusCode)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// BenchmarkOne is one publish at a time over the reference broker.
func BenchmarkOne(b *testing.B) {
	n := nodetest.Start(b, nil)
	hc := &http.Client{Transport: &http.Transport{}}
	defer hc.CloseIdleConnections()
	for i := 0; b.Loop(); i++ {
		post(b, hc, n, api.TypeEvent, []byte(opened(fmt.Sprint("o", i), "T-1")))
	}
}

// BenchmarkLines is a thousand lines a request.
func BenchmarkLines(b *testing.B) {
	n := nodetest.Start(b, nil)
	hc := &http.Client{Transport: &http.Transport{}}
	defer hc.CloseIdleConnections()
	const lines = 1000
	var body []byte
	for i := 0; b.Loop(); i++ {
		body = body[:0]
		for j := range lines {
			body = append(body, opened(fmt.Sprintf("l%d-%d", i, j), "T-1")...)
			body = append(body, '\n')
		}
		post(b, hc, n, api.TypeNDJSON, body)
	}
	b.ReportMetric(float64(b.N)*lines/b.Elapsed().Seconds(), "events/s")
}
