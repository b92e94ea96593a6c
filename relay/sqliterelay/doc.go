// Package sqliterelay prepares SQLite databases for an outbox.
package sqliterelay
