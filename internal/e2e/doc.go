// Package e2e tests the real command, whole, on real input.
package e2e
