package gateway

import (
	"net/http"
	"time"
)

// answerWriter remembers what was answered. It is also how a request's Call
// travels through the mux.
type answerWriter struct {
	http.ResponseWriter
	call    *Call
	pattern string
	start   time.Time
	status  int
	wrote   bool
}

// WriteHeader records the status.
func (w *answerWriter) WriteHeader(status int) {
	if !w.wrote && status >= 200 {
		w.status, w.wrote = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write records an implied 200.
func (w *answerWriter) Write(p []byte) (int, error) {
	if !w.wrote {
		w.status, w.wrote = http.StatusOK, true
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
