package pgstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

// maxRuns is how often a group is run when it is not its own fault that it
// fails.
const maxRuns = 4

// staleAfter is how long a connection may have been idle to be trusted. After
// that, the group finds out whether it lives before it sends COMMIT, so that a
// connection that died meanwhile leaves no doubt.
const staleAfter = time.Second

const (
	sqlBegin     = "BEGIN ISOLATION LEVEL READ COMMITTED"
	sqlCommit    = "COMMIT"
	sqlRollback  = "ROLLBACK"
	sqlSavepoint = "SAVEPOINT member"
	sqlUndo      = "ROLLBACK TO SAVEPOINT member"
	sqlRelease   = "RELEASE SAVEPOINT member"
)

// writer runs jobs in group commits. All fields belong to its goroutine.
type writer struct {
	dial    func() (*conn, error)
	conn    *conn    // nil while there is none
	begin   []string // what a group's transaction begins with
	queue   *sqlstore.Queue
	log     *slog.Logger
	members []*sqlstore.Job
	seqs    numbers // of the group's outbox rows
	crowd   int     // members of the last group
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
		w.rollback()
		w.answer(headgate.NewError(headgate.CodeInternal, "a store function ended its goroutine"))
		go w.run()
	}()
	for j := range w.queue.Jobs() {
		w.group(j)
	}
	clean = true
}

// group runs first and whatever else waits in one transaction.
func (w *writer) group(first *sqlstore.Job) {
	if !first.Start() {
		return
	}
	w.members = append(w.members[:0], first)
	became, err := w.together(true)
	w.crowd = len(w.members)
	if became == fateLost || became == fateConflict {
		became, err = w.again(became, err)
	}
	if became != fateRefused || len(w.members) == 1 {
		w.finish(became, err)
		return
	}
	// A statement of one member was refused. Each runs in a transaction of its
	// own, so that this one harms nobody else.
	for _, j := range append([]*sqlstore.Job(nil), w.members...) {
		w.members = append(w.members[:0], j)
		became, err := w.together(false)
		w.finish(w.again(became, err))
	}
}

// again runs the members until it is their own doing how it ends, or until it
// was tried often enough.
func (w *writer) again(became fate, err error) (fate, error) {
	for runs := 1; runs < maxRuns && (became == fateLost || became == fateConflict); runs++ {
		w.log.Warn("store runs a group again", "members", len(w.members), "error", err)
		became, err = w.together(false)
	}
	return became, err
}

// together runs the members in one transaction, and with more also the jobs
// that come meanwhile. Its error is the group's, not a member's.
func (w *writer) together(more bool) (fate, error) {
	if err := w.open(); err != nil {
		return fateDown, err
	}
	defer w.rollback()
	began := time.Now()
	if w.conn.fault == nil && time.Since(w.conn.used) > staleAfter {
		_ = w.conn.flush() // its failure sticks
	}
	for i := 0; w.conn.fault == nil; i++ {
		if i == len(w.members) {
			var j *sqlstore.Job
			if more {
				j = w.queue.Another(len(w.members), w.crowd, began)
			}
			if j == nil {
				break
			}
			w.members = append(w.members, j)
		}
		w.member(w.members[i])
	}
	if w.conn.fault == nil && (w.conn.heard || len(w.conn.queue) > len(w.begin)) {
		_ = w.conn.commit() // its failure sticks
	}
	return w.conn.fate, w.conn.fault
}

// open begins a transaction, over a new connection when there is none.
func (w *writer) open() error {
	w.seqs.free = nil
	if w.conn != nil && w.conn.dead() {
		w.conn.close()
		w.conn = nil
	}
	if w.conn == nil {
		c, err := w.dial()
		if err != nil {
			return err
		}
		w.conn = c
	}
	w.conn.begin(context.Background(), w.begin...)
	return nil
}

// member runs one function. What it wrote is kept or taken back.
func (w *writer) member(j *sqlstore.Job) {
	w.conn.member()
	j.Err = call(j.Ctx, w.log, w.conn, &w.seqs, j.Fn)
	if j.Err != nil {
		w.conn.undo()
	} else {
		w.conn.keep()
	}
}

// finish answers the members: with the group's failure, else with their own
// results.
func (w *writer) finish(became fate, err error) {
	switch {
	case became == fateUnknown:
		err = unknownError(err)
	case became == fateRefused && len(w.members) == 1 && w.members[0].Err != nil:
		err = nil // it was told, and says so in its own words
	default:
		err = storeError(err)
	}
	w.answer(err)
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

// rollback ends what is left of a transaction.
func (w *writer) rollback() {
	if w.conn != nil {
		w.conn.rollback()
	}
}
