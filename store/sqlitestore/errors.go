package sqlitestore

import (
	"errors"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/headgate/headgate"
)

// storeError gives an error of SQLite its code. It is for statements, whose
// effects are always rolled back when they fail: the outcome is not applied.
// Errors that already have a code pass unchanged.
func storeError(err error) error {
	if err == nil || headgate.AsError(err) != nil {
		return err
	}
	e := headgate.NewError(headgate.CodeInternal, "the store failed: %v", err)
	e.Outcome = headgate.NotApplied
	switch {
	case errors.Is(err, sqlite3.FULL):
		e.Code, e.Detail = headgate.CodeDiskFull, "the store's disk is full"
	case errors.Is(err, sqlite3.BUSY), errors.Is(err, sqlite3.LOCKED):
		e.Code, e.Detail = headgate.CodeUnavailable, "another process holds the store's database locked"
	case errors.Is(err, sqlite3.INTERRUPT):
		e.Code, e.Detail = headgate.CodeCanceled, "the caller went away before the store answered"
	case errors.Is(err, sqlite3.TOOBIG), errors.Is(err, sqlite3.NOMEM):
		e.Code, e.Detail = headgate.CodeTooLarge, "a value is larger than the store can keep"
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
		e.Detail, e.Fix = "the store's database is damaged", "Stop the node and restore the database from a backup."
	case errors.Is(err, sqlite3.IOERR):
		e.Code, e.Detail = headgate.CodeUnavailable, "the store's disk failed"
	case errors.Is(err, sqlite3.READONLY):
		e.Detail = "the store cannot write here"
	}
	return e
}

// commitError gives a failed COMMIT its code. A disk that is full fails before
// the commit record is whole, so that nothing happened. After any other
// failure of the disk the record may still come to light when the database is
// opened after a crash, although this process rolled it back.
func commitError(err error) error {
	e := headgate.AsError(storeError(err))
	if errors.Is(err, sqlite3.IOERR) || e.Code == headgate.CodeInternal {
		e.Code, e.Outcome = headgate.CodeUnknownOutcome, headgate.Unknown
		e.Detail = "the store's disk failed while it committed"
	}
	return e
}
