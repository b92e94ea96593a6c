//go:build !race

package causal

const raceEnabled = false
