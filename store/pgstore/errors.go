package pgstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

// storeError gives an error of the server or of the connection its code. It is
// for what is always rolled back: the outcome is not applied. Errors that
// already have a code pass unchanged.
func storeError(err error) error {
	if err == nil || headgate.AsError(err) != nil {
		return err
	}
	e := headgate.NewError(headgate.CodeUnavailable, "the store's database cannot be reached: %v", err)
	e.Outcome, e.Detail = headgate.NotApplied, "the store's database cannot be reached"
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused):
		refusal(e, refused)
	case pgconn.Timeout(err):
		e.Detail = "the store's database does not answer in time"
	}
	return e
}

// refusal fills in what the server said. Its message may quote data, so that
// clients get the SQLSTATE alone; the log has the rest.
func refusal(e *headgate.Error, p *pgconn.PgError) {
	class := p.Code
	if len(class) > 2 {
		class = class[:2]
	}
	switch {
	case p.Code == "53100":
		e.Code, e.Detail = headgate.CodeDiskFull, "the disk of the store's database is full"
	case p.Code == "57014", p.Code == "55P03", p.Code == "25P03":
		e.Detail = "the store's database did not get to it in time"
	case p.Code == "40001", p.Code == "40P01":
		e.Detail = "the store's database found no order for this among others' work"
	case p.Code == "25006":
		e.Detail = "the store cannot write here"
	case p.Code == "22003":
		e.Code, e.Detail = headgate.CodeInvalidArgument, "a number is above the greatest that the store keeps"
	case class == "54":
		e.Code, e.Detail = headgate.CodeInvalidArgument, "a value is larger than the store can keep"
	case p.Code == "53200":
		e.Code, e.Detail = headgate.CodeTooLarge, "a value is larger than the memory of the store's database"
	case class == "XX":
		e.Code, e.Detail, e.Fix = headgate.CodeInternal, "the store's database is damaged", "Stop the nodes and look into the server's log."
	case class == "08", class == "53", class == "57", class == "58":
		e.Detail = "the store's database is not available"
	default:
		e.Code, e.Detail = headgate.CodeInternal, "the store's database refused a statement"
	}
	e.Detail += fmt.Sprintf(" (SQLSTATE %s)", sqlstore.Clip(p.Code))
}

// unknownError is for a group whose COMMIT was sent and not answered.
func unknownError(err error) error {
	e := headgate.NewError(headgate.CodeUnknownOutcome, "the store's database did not say whether it committed: %v", err)
	e.Detail = "the store's database did not say whether it committed"
	return e
}

// connectError gives a failure to connect its code: what an operator has to
// mend is invalid_config, the rest unavailable. Clients see it: where the server
// is stands in the cause alone.
func connectError(where string, err error) error {
	if e := headgate.AsError(err); e != nil {
		return e
	}
	e := &headgate.Error{
		Code: headgate.CodeUnavailable, Outcome: headgate.NotApplied,
		Detail: "the store's database cannot be reached", Err: &unreached{where: where, err: err},
	}
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return e
	}
	e.Detail = "the store's database refuses the connection (SQLSTATE " + sqlstore.Clip(refused.Code) + ")"
	switch refused.Code {
	case "28P01", "28000":
		e.Code, e.Fix = headgate.CodeInvalidConfig, "Correct the user and the password in store.url."
	case "3D000":
		e.Code, e.Fix = headgate.CodeInvalidConfig, "Create the database that store.url names."
	case "42501":
		e.Code, e.Fix = headgate.CodeInvalidConfig, "Let the user CREATE in the database, or create the schema for it and make it the owner."
	}
	return e
}

// unreached is the cause of a failure to connect, for logs and for who opens
// the store: where the server is, and what happened.
type unreached struct {
	where string
	err   error
}

func (u *unreached) Error() string {
	return fmt.Sprintf("the store cannot reach PostgreSQL at %s: %s", u.where, short(u.err))
}

func (u *unreached) Unwrap() error { return u.err }

// openError is for who opens the store, on the host of the node: it says where
// the server is.
func openError(err error) error {
	e := headgate.AsError(err)
	if e == nil {
		return err
	}
	if cause, ok := errors.AsType[*unreached](e.Err); ok {
		told := *e
		told.Detail = cause.Error()
		return &told
	}
	return err
}

// laterError is for a connection that an open store makes. What is wrong with
// the server by then is no fault of whoever called the node, and may pass.
func laterError(err error) error {
	e := headgate.AsError(err)
	if e == nil || e.Code != headgate.CodeInvalidConfig {
		return err
	}
	return &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.NotApplied, Detail: e.Detail, Err: errors.Join(e.Err, errors.New(e.Fix))}
}

// short returns the last line of an error, or the server's words, without the
// user that pgconn puts before them.
func short(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return fmt.Sprintf("%s (SQLSTATE %s)", sqlstore.Clip(refused.Message), sqlstore.Clip(refused.Code))
	}
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if _, rest, found := strings.Cut(last, "`: "); found {
		last = rest
	}
	return sqlstore.Clip(last)
}
