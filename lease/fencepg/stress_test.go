package fencepg_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// stressed runs workers on a database of their own until enough was written and
// refused, at most as long as given.
func stressed(t *testing.T, enough int64, most time.Duration, record bool, kinds ...int) (*rig, proof) {
	t.Helper()
	r := newRig(t, newDatabase(t), kinds...)
	if record {
		r.history = &history{begun: time.Now(), ops: map[int][]porcupine.Operation{}}
	}
	r.slot()
	begun := time.Now()
	r.stress(12, 3, func() bool {
		return r.fenced.Load() >= enough && r.stale.Load() >= enough || time.Since(begun) > most || t.Failed()
	})
	p := r.prove()
	t.Logf("%d accepted, %d refused as stale, %d as expired, %d other, in %s; in the log %d writes, %d raised epochs, %d stale writes, %d epochs fell",
		r.fenced.Load(), r.stale.Load(), r.expired.Load(), r.other.Load(), time.Since(begun).Round(time.Millisecond), p.writes, p.raises, p.violations, p.falls)
	return r, p
}

// Under a storm of takeovers every committed write carries the epoch that was
// current when it committed: in the order of the database's log.
func TestStressCommitsInEpochOrder(t *testing.T) {
	enough, most := int64(1000), 45*time.Second // less on a machine that is free
	if campaign() {
		enough, most = 110_000, 40*time.Minute
	}
	r, p := stressed(t, enough, most, false, byCall, byInline, byRows, byPartition)
	if p.violations != 0 || p.falls != 0 {
		t.Errorf("%d writes committed after their epoch was superseded, %d epochs fell", p.violations, p.falls)
	}
	if int64(p.writes) != r.fenced.Load() {
		t.Errorf("the log has %d writes, %d were acknowledged", p.writes, r.fenced.Load())
	}
	if r.fenced.Load() < enough/2 || r.stale.Load() < enough/2 || p.raises < 20 {
		t.Errorf("too little happened: %d accepted, %d stale, %d takeovers", r.fenced.Load(), r.stale.Load(), p.raises)
	}
	r.verify()
}

// The control: the same storm over a guard that takes no lock. If its stale
// commits went unnoticed, the test above would prove nothing.
func TestStressCatchesAnUnlockedGuard(t *testing.T) {
	r, p := stressed(t, 1<<40, 5*time.Second, true, unguarded)
	if p.violations == 0 {
		t.Errorf("no stale write of %d was noticed in the log", p.writes)
	}
	if result, ops := r.history.linearizable(); result != porcupine.Illegal {
		t.Errorf("a history of %d operations is said to be %s", ops, result)
	}
}

// What clients saw is one of the orders that a lease allows.
func TestHistoriesAreLinearizable(t *testing.T) {
	most := 3 * time.Second
	if campaign() {
		most = 20 * time.Second
	}
	r, p := stressed(t, 1<<40, most, true, byCall, byInline, byRows, byPartition)
	result, ops := r.history.linearizable()
	t.Logf("%d operations: %s", ops, result)
	if result != porcupine.Ok || ops < 200 || p.violations != 0 {
		t.Errorf("%d operations are %s, with %d stale writes in the log", ops, result, p.violations)
	}
}

// verify compares the tables with what clients were told: what was
// acknowledged is there, what was refused is not.
func (r *rig) verify() {
	r.t.Helper()
	there := map[int64]bool{}
	rows, err := r.pool.Query(r.t.Context(), "SELECT id FROM plain UNION ALL SELECT id FROM rows UNION ALL SELECT id FROM parted")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			r.t.Fatal(err)
		}
		there[id] = true
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	for id := range r.acked {
		if !there[id] {
			r.t.Errorf("write %d was acknowledged and is gone", id)
		}
	}
	for id := range r.refused {
		if there[id] {
			r.t.Errorf("write %d was refused and is there", id)
		}
	}
}
