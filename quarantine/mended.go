package quarantine

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// StateMended is the state of records of payloads that were mended at the
// gate: the event was admitted, so that nothing is owed.
const StateMended = "mended"

// KeepMended records the original payloads of events that are admitted with a
// mended one, whole and all in one transaction, before the events are stored.
// Each refusal is the one that the original would have met, with its event as
// it will be admitted; originals are the bytes. It fails when the store does,
// and with quarantine_full at the bound; then none is kept, and the events must
// be refused instead. What
// turns out not to be needed goes with DropMended.
func (q *Quarantine) KeepMended(ctx context.Context, rs []Refusal, originals [][]byte) ([]string, error) {
	now := q.cfg.Now()
	recs := make([]store.QuarantineRecord, len(rs))
	qids := make([]string, len(rs))
	for i := range rs {
		recs[i] = q.refusalRecord(&rs[i], originals[i], len(originals[i]), now)
		recs[i].Kind, recs[i].State = store.KindMended, StateMended
		qids[i] = recs[i].QID
	}
	err := q.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		full, err := q.mended.full(ctx, tx, now)
		if err != nil {
			return err
		}
		if full {
			return headgate.NewError(headgate.CodeQuarantineFull, "%d originals of mended payloads are kept, as many as may be", q.cfg.MaxRecords)
		}
		for _, rec := range recs {
			if _, err := tx.Quarantine.Put(ctx, rec); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	q.mended.add(len(recs))
	return qids, nil
}

// DropMended deletes records of KeepMended that no event names. One that cannot
// be deleted stays until it expires.
func (q *Quarantine) DropMended(ctx context.Context, qids []string) error {
	n := 0
	err := q.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		n, err = tx.Quarantine.Delete(ctx, store.KindMended, qids)
		return err
	})
	if err != nil {
		return err
	}
	q.mended.add(-n)
	return nil
}
