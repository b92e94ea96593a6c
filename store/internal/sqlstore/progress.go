package sqlstore

import (
	"context"

	"github.com/headgate/headgate/store"
)

const progressColumns = `subscription, stream, partition, start, floor,
	settled, unmatched, parked, extinguished, expired, discarded, trimmed, done`

// Progress implements store.Deliveries.
func (r deliveries) Progress(_ context.Context, subscription string) ([]store.Progress, error) {
	q := r.query("SELECT " + progressColumns + " FROM @progress WHERE subscription = ? ORDER BY stream, partition")
	q.Text(subscription)
	var all []store.Progress
	for q.Next() {
		all = append(all, store.Progress{
			Subscription: q.ColText(), Stream: q.ColText(), Partition: uint32(q.ColInt()), Start: q.colUint(), Floor: q.colUint(),
			Counts: store.Counts{
				Settled: q.colUint(), Unmatched: q.colUint(), Parked: q.colUint(), Extinguished: q.colUint(),
				Expired: q.colUint(), Discarded: q.colUint(), Trimmed: q.colUint(),
			},
			Done: q.ColBlob(),
		})
	}
	return all, q.Close()
}

// SaveProgress implements store.Deliveries.
func (r deliveries) SaveProgress(_ context.Context, rows []store.Progress) error {
	for i := range rows {
		if err := r.saveProgress(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r deliveries) saveProgress(p *store.Progress) error {
	q := r.query("INSERT INTO @progress (" + progressColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (subscription, stream, partition) DO UPDATE SET start = excluded.start, floor = excluded.floor,
		settled = excluded.settled, unmatched = excluded.unmatched, parked = excluded.parked,
		extinguished = excluded.extinguished, expired = excluded.expired, discarded = excluded.discarded,
		trimmed = excluded.trimmed, done = excluded.done`)
	q.Text(p.Subscription)
	q.Text(p.Stream)
	q.Int(int64(p.Partition))
	q.uint(p.Start)
	q.uint(p.Floor)
	q.uint(p.Counts.Settled)
	q.uint(p.Counts.Unmatched)
	q.uint(p.Counts.Parked)
	q.uint(p.Counts.Extinguished)
	q.uint(p.Counts.Expired)
	q.uint(p.Counts.Discarded)
	q.uint(p.Counts.Trimmed)
	q.Blob(p.Done)
	return q.Run()
}

// Floors implements store.Deliveries. The lowest exception of a partition is
// one step down an index, for every partition that has progress.
func (r deliveries) Floors(_ context.Context, stream string) (map[uint32]uint64, error) {
	q := r.query(`SELECT partition, min(floor),
		(SELECT min("offset") FROM @exceptions AS e WHERE e.stream = ?1 AND e.partition = p.partition)
		FROM @progress AS p WHERE stream = ?1 GROUP BY partition`)
	q.Text(stream)
	floors := make(map[uint32]uint64)
	for q.Next() {
		partition, floor := uint32(q.ColInt()), q.colUint()
		if lowest, some := q.ColOptional(); some {
			floor = min(floor, lowest)
		}
		floors[partition] = floor
	}
	return floors, q.Close()
}
