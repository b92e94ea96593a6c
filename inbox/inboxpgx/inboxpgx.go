package inboxpgx

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/inbox/internal/postgres"
)

// Tx returns the transaction as one that events can be received in.
func Tx(tx pgx.Tx) inbox.Tx { return adapter{tx} }

type adapter struct{ tx pgx.Tx }

func cause(r inbox.Receipt) *string {
	if r.Cause == "" {
		return nil
	}
	return &r.Cause
}

func recorded(r inbox.Receipt) *time.Time {
	if r.Recorded.IsZero() {
		return nil
	}
	return &r.Recorded
}

// Receive implements [inbox.Tx].
func (a adapter) Receive(ctx context.Context, r inbox.Receipt) (fresh bool, err error) {
	err = a.tx.QueryRow(ctx, postgres.Receive, args(r)...).Scan(&fresh)
	return fresh, postgres.Error(err)
}

// QueueReceive queues what Receive does, so that it travels with BEGIN. Fresh
// is set when the batch's results are closed; its errors are for [Error].
func QueueReceive(b *pgx.Batch, r inbox.Receipt, fresh *bool) {
	b.Queue(postgres.Receive, args(r)...).QueryRow(func(row pgx.Row) error { return row.Scan(fresh) })
}

// Error names what a function of the inbox refused; every other error stays as
// it is.
func Error(err error) error { return postgres.Error(err) }

func args(r inbox.Receipt) []any {
	return []any{r.Consumer, r.Source, r.ID, recorded(r), cause(r), r.AllowOld}
}

// Claim implements [inbox.Tx].
func (a adapter) Claim(ctx context.Context, r inbox.Receipt, ttl time.Duration) (c inbox.Claim, err error) {
	if err := inbox.CheckTTL(ttl); err != nil {
		return c, err
	}
	var wait int64
	err = a.tx.QueryRow(ctx, postgres.Claim, r.Consumer, r.Source, r.ID, recorded(r), ttl.Milliseconds(), r.AllowOld).
		Scan(&c.State, &c.ID, &c.Attempt, &wait, &c.Result)
	c.Wait = time.Duration(wait) * time.Millisecond
	return c, postgres.Error(err)
}

// Finish implements [inbox.Tx].
func (a adapter) Finish(ctx context.Context, r inbox.Receipt, claim string, result []byte) error {
	if err := inbox.CheckResult(result); err != nil {
		return err
	}
	_, err := a.tx.Exec(ctx, postgres.Finish, r.Consumer, r.Source, r.ID, claim, result)
	return postgres.Error(err)
}

// Release implements [inbox.Tx].
func (a adapter) Release(ctx context.Context, r inbox.Receipt, claim string) error {
	_, err := a.tx.Exec(ctx, postgres.Release, r.Consumer, r.Source, r.ID, claim)
	return postgres.Error(err)
}
