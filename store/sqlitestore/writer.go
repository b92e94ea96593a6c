package sqlitestore

import (
	"log/slog"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

const (
	sqlBegin     = "BEGIN IMMEDIATE"
	sqlCommit    = "COMMIT"
	sqlRollback  = "ROLLBACK"
	sqlSavepoint = "SAVEPOINT member"
	sqlUndo      = "ROLLBACK TO member"
	sqlRelease   = "RELEASE member"
)

// writer runs jobs in group commits. All fields belong to its goroutine.
type writer struct {
	conn    *conn
	queue   *sqlstore.Queue
	log     *slog.Logger
	after   func() // called between groups
	members []*sqlstore.Job
	crowd   int // members of the last group
	ended   chan struct{}
}

// run takes jobs until the channel is closed and empty. A function that ends
// its goroutine (testing.T.FailNow does) ends this one: a new one carries on.
func (w *writer) run() {
	clean := false
	defer func() {
		if clean {
			close(w.ended)
			return
		}
		w.abort(headgate.NewError(headgate.CodeInternal, "a store function ended its goroutine"))
		go w.run()
	}()
	for j := range w.queue.Jobs() {
		w.group(j)
		w.after()
	}
	clean = true
}

// group runs first and whatever else waits in one transaction.
func (w *writer) group(first *sqlstore.Job) {
	if !first.Start() {
		return
	}
	w.members = append(w.members[:0], first)
	if err := w.conn.exec(sqlBegin); err != nil {
		w.answer(storeError(err))
		return
	}
	began := time.Now()
	for j := first; j != nil; j = w.queue.Another(len(w.members), w.crowd, began) {
		if j != first {
			w.members = append(w.members, j)
		}
		j.Err = w.member(j)
		if w.conn.db.GetAutocommit() { // SQLite gave the transaction up
			w.alone(j)
			return
		}
	}
	w.commit()
}

// member runs one function in its savepoint.
func (w *writer) member(j *sqlstore.Job) error {
	if err := w.conn.exec(sqlSavepoint); err != nil {
		return storeError(err)
	}
	err := call(j.Ctx, w.log, w.conn, j.Fn)
	if w.conn.db.GetAutocommit() {
		if err == nil { // it swallowed the failure that ended the transaction
			err = headgate.NewError(headgate.CodeUnavailable, "the store gave the transaction up")
		}
		return err
	}
	if err != nil {
		if undo := w.conn.exec(sqlUndo); undo != nil {
			w.rollback() // seen as given up by the caller
			return err
		}
	}
	if rel := w.conn.exec(sqlRelease); rel != nil && err == nil {
		w.rollback()
		err = storeError(rel)
	}
	return err
}

// commit ends the group and answers its members.
func (w *writer) commit() {
	w.crowd = len(w.members)
	if err := w.conn.exec(sqlCommit); err != nil {
		w.rollback()
		w.answer(commitError(err))
		return
	}
	w.answer(nil)
}

// alone answers culprit, whose failure ended the group's transaction, and
// runs the members before it again, each in a transaction of its own.
func (w *writer) alone(culprit *sqlstore.Job) {
	again := append([]*sqlstore.Job(nil), w.members[:len(w.members)-1]...)
	w.members = append(w.members[:0], culprit)
	w.answer(nil)
	for _, j := range again {
		w.members = append(w.members[:0], j)
		if err := w.conn.exec(sqlBegin); err != nil {
			w.answer(storeError(err))
			continue
		}
		j.Err = w.member(j)
		if w.conn.db.GetAutocommit() {
			w.answer(nil)
			continue
		}
		w.commit()
	}
}

// answer ends every member: with the group's failure, else with its own
// result.
func (w *writer) answer(err error) {
	for i, j := range w.members {
		if err != nil {
			j.Err = err
		}
		j.Answer()
		w.members[i] = nil
	}
	w.members = w.members[:0]
}

func (w *writer) rollback() {
	if w.conn.db.GetAutocommit() {
		return
	}
	w.conn.reset()
	if err := w.conn.exec(sqlRollback); err != nil {
		w.log.Error("store could not roll back", "error", err)
	}
}

// abort rolls the open group back and fails its members.
func (w *writer) abort(err error) {
	w.rollback()
	w.answer(err)
}
