package fencepg

import (
	"time"

	"github.com/headgate/headgate/lease/fence"
)

// Warm returns a DB under which the fence passed just now, so that its guard
// travels with the first statement.
func Warm(f fence.Fence) *DB {
	d := &DB{}
	d.recent.note(f, time.Now())
	return d
}
