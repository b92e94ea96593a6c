package sqlstore

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const exceptionColumns = `subscription, stream, partition, "offset", source, id, type, key, state, attempts, due, first, in_progress, history`

func scanException(q query) store.Exception {
	return store.Exception{
		Subscription: q.ColText(), Stream: q.ColText(),
		Position: headgate.Position{Partition: uint32(q.ColInt()), Offset: q.colUint()},
		Source:   q.ColText(), ID: q.ColText(), Type: q.ColText(), Key: q.ColText(),
		State: store.ExceptionState(q.ColText()), Attempts: int(q.ColInt()), Due: q.colTime(), First: q.colTime(),
		InProgress: q.ColBool(), History: q.ColBlob(),
	}
}

// PutExceptions implements store.Deliveries.
func (r deliveries) PutExceptions(_ context.Context, rows []store.Exception) error {
	for i := range rows {
		if err := r.putException(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r deliveries) putException(e *store.Exception) error {
	q := r.query("INSERT INTO @exceptions (" + exceptionColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (subscription, stream, partition, "offset") DO UPDATE SET source = excluded.source, id = excluded.id,
		type = excluded.type, key = excluded.key, state = excluded.state, attempts = excluded.attempts, due = excluded.due,
		first = excluded.first, in_progress = excluded.in_progress, history = excluded.history`)
	q.Text(e.Subscription)
	q.Text(e.Stream)
	q.Int(int64(e.Position.Partition))
	q.uint(e.Position.Offset)
	q.Text(e.Source)
	q.Text(e.ID)
	q.Text(e.Type)
	q.Text(e.Key)
	q.Text(string(e.State))
	q.Int(int64(e.Attempts))
	q.time(e.Due)
	q.time(e.First)
	q.Bool(e.InProgress)
	q.Blob(e.History)
	return q.Run()
}

// DeleteException implements store.Deliveries.
func (r deliveries) DeleteException(_ context.Context, subscription, stream string, pos headgate.Position) error {
	q := r.query(`DELETE FROM @exceptions WHERE subscription = ? AND stream = ? AND partition = ? AND "offset" = ?`)
	q.Text(subscription)
	q.Text(stream)
	q.Int(int64(pos.Partition))
	q.uint(pos.Offset)
	return q.Run()
}

// Exceptions implements store.Deliveries.
func (r deliveries) Exceptions(_ context.Context, subscription, afterStream string, after headgate.Position, limit int) ([]store.Exception, error) {
	q := r.query("SELECT " + exceptionColumns + ` FROM @exceptions
		WHERE subscription = ? AND (stream, partition, "offset") > (?, ?, ?)
		ORDER BY stream, partition, "offset" LIMIT ?`)
	q.Text(subscription)
	q.Text(afterStream)
	q.Int(int64(after.Partition))
	q.bound(after.Offset)
	q.Int(int64(max(limit, 0)))
	var all []store.Exception
	for q.Next() {
		all = append(all, scanException(q))
	}
	return all, q.Close()
}

// Exception implements store.Deliveries.
func (r deliveries) Exception(_ context.Context, subscription, stream string, pos headgate.Position) (store.Exception, error) {
	q := r.query("SELECT " + exceptionColumns + ` FROM @exceptions WHERE subscription = ? AND stream = ? AND partition = ? AND "offset" = ?`)
	q.Text(subscription)
	q.Text(stream)
	q.Int(int64(pos.Partition))
	q.uint(pos.Offset)
	if !q.Next() {
		if err := q.Close(); err != nil {
			return store.Exception{}, err
		}
		return store.Exception{}, notFound("exception", Clip(subscription)+" "+Clip(stream)+"/"+pos.String())
	}
	e := scanException(q)
	return e, q.Close()
}
