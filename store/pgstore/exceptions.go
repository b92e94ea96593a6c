package pgstore

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const exceptionColumns = `subscription, stream, partition, "offset", source, id, type, key, state, attempts, due, first, in_progress, history`

func scanException(q *query) store.Exception {
	return store.Exception{
		Subscription: q.colText(), Stream: q.colText(),
		Position: headgate.Position{Partition: uint32(q.colInt()), Offset: q.colUint()},
		Source:   q.colText(), ID: q.colText(), Type: q.colText(), Key: q.colText(),
		State: store.ExceptionState(q.colText()), Attempts: int(q.colInt()), Due: q.colTime(), First: q.colTime(),
		InProgress: q.colBool(), History: q.colBlob(),
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
	q.text(e.Subscription)
	q.text(e.Stream)
	q.int(int64(e.Position.Partition))
	q.uint(e.Position.Offset)
	q.text(e.Source)
	q.text(e.ID)
	q.text(e.Type)
	q.text(e.Key)
	q.text(string(e.State))
	q.int(int64(e.Attempts))
	q.time(e.Due)
	q.time(e.First)
	q.bool(e.InProgress)
	q.blob(e.History)
	return q.run()
}

// DeleteException implements store.Deliveries.
func (r deliveries) DeleteException(_ context.Context, subscription, stream string, pos headgate.Position) error {
	q := r.query(`DELETE FROM @exceptions WHERE subscription = ? AND stream = ? AND partition = ? AND "offset" = ?`)
	q.text(subscription)
	q.text(stream)
	q.int(int64(pos.Partition))
	q.uint(pos.Offset)
	return q.run()
}

// Exceptions implements store.Deliveries.
func (r deliveries) Exceptions(_ context.Context, subscription, afterStream string, after headgate.Position, limit int) ([]store.Exception, error) {
	q := r.query("SELECT " + exceptionColumns + ` FROM @exceptions
		WHERE subscription = ? AND (stream, partition, "offset") > (?, ?, ?)
		ORDER BY stream, partition, "offset" LIMIT ?`)
	q.text(subscription)
	q.text(afterStream)
	q.int(int64(after.Partition))
	q.bound(after.Offset)
	q.int(int64(max(limit, 0)))
	var all []store.Exception
	for q.next() {
		all = append(all, scanException(&q))
	}
	return all, q.close()
}

// Exception implements store.Deliveries.
func (r deliveries) Exception(_ context.Context, subscription, stream string, pos headgate.Position) (store.Exception, error) {
	q := r.query("SELECT " + exceptionColumns + ` FROM @exceptions WHERE subscription = ? AND stream = ? AND partition = ? AND "offset" = ?`)
	q.text(subscription)
	q.text(stream)
	q.int(int64(pos.Partition))
	q.uint(pos.Offset)
	if !q.next() {
		if err := q.close(); err != nil {
			return store.Exception{}, err
		}
		return store.Exception{}, notFound("exception", clip(subscription)+" "+clip(stream)+"/"+pos.String())
	}
	e := scanException(&q)
	return e, q.close()
}
