//go:build race

package causal

// raceEnabled: the race detector makes sync.Pool forget at random.
const raceEnabled = true
