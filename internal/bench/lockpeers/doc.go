// Package lockpeers compares leases with lock libraries on real servers of
// Redis and etcd, in the same pause test over the same Postgres table. It is a module
// of its own, so that no user of Headgate ever compiles its dependencies:
//
//	scripts/services run env -C internal/bench/lockpeers go test -v .
//
// It needs redis-server, etcd (Debian: redis-server, etcd-server) and
// HEADGATE_TEST_POSTGRES, and is skipped without.
package lockpeers
