//go:build race

package sim

// raced: the race detector makes a run ten times as long.
const raced = true
