// Package peers measures the contract engines against other libraries for JSON
// Schema and Avro, as benchmarks: go test -bench . in this folder, or make
// bench-peers. It is a module of its own, so that nobody who uses Headgate
// downloads them.
package peers
