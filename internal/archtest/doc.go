// Package archtest holds the architecture as a test: one table of what may
// import what, and the house rules that a reader should be able to rely on
// (sizes, documentation, no hidden state). It has no code of its own to
// import; run it with go test ./internal/archtest.
package archtest
