package pgrelay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// sendingRevision is the first revision of what is installed that has a place for
// the sending of the last proof.
const sendingRevision = 9

// sending is what decides whether the log sends the rows. Heartbeats come whatever
// the publication holds, so that each brings it along, as of its own snapshot:
// what had changed and was put back since the last proof has another number.
type sending struct {
	Whole bool              `json:"whole"` // every row that is written now
	Of    string            `json:"of"`    // publication and table, and the transactions that changed the first
	Parts map[string]string `json:"parts"` // the file of each partition: one that was unlogged and is not has another
}

// selectSending reads it as the text of a JSON object without spaces.
const selectSending = `(
	SELECT replace(json_build_object(
	  'whole', coalesce(o.relkind = 'p' AND p.pubinsert AND p.pubviaroot AND (
	      p.puballtables
	      OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = o.oid AND r.prqual IS NULL)
	      OR EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = p.oid AND n.pnnspid = o.relnamespace))
	    AND NOT EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = o.oid AND c.relpersistence <> 'p'), false),
	  'of', concat_ws('/', o.oid, p.oid, p.xmin,
	    (SELECT string_agg(concat_ws(':', r.oid, r.xmin), ',' ORDER BY r.oid) FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = o.oid),
	    (SELECT string_agg(concat_ws(':', n.oid, n.xmin), ',' ORDER BY n.oid) FROM pg_publication_namespace n WHERE n.pnpubid = p.oid AND n.pnnspid = o.relnamespace)),
	  'parts', (SELECT json_object_agg(c.oid, c.relfilenode::text) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = o.oid)
	)::text, ' ', '')
	FROM (VALUES (1)) one LEFT JOIN (pg_class o JOIN pg_namespace s ON s.oid = o.relnamespace AND s.nspname = 'headgate') ON o.relname = 'outbox'
	LEFT JOIN pg_publication p ON p.pubname = '` + Publication + `')`

// changedSince says why rows that were written since an earlier sending may not
// be in the log; "" when all are.
func (s *sending) changedSince(before *sending) string {
	if !s.Whole {
		return "the publication " + Publication + " does not send every row of the outbox, or a partition is unlogged"
	}
	if before == nil {
		return ""
	}
	changed := s.Of != before.Of
	for part, file := range before.Parts {
		now, there := s.Parts[part]
		changed = changed || there && now != file
	}
	if changed {
		return "the publication, the table of the outbox or a partition was changed: rows may be missing from the log"
	}
	return ""
}

// changedMeanwhile compares what is sent now with what was as of the last proof.
func (x *session) changedMeanwhile(ctx context.Context) (string, error) {
	var text string
	if err := x.sql.QueryRow(ctx, `SELECT `+selectSending).Scan(&text); err != nil {
		return "", sqlError("reading the publication", err)
	}
	now := sendingOf(&text)
	if now == nil {
		return "", fmt.Errorf("pgrelay: what the publication sends cannot be read: %.200s", text)
	}
	return now.changedSince(x.sends), nil
}

// sendsAll ends the session for a repair if rows may be missing from the log
// before this heartbeat, which then proves nothing. Only the reader calls it.
func (x *session) sendsAll(ctx context.Context, now *sending) error {
	reason := now.changedSince(x.sends)
	if reason == "" {
		x.sends = now
		return nil
	}
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	if err := x.setRepair(ctx, reason); err != nil {
		return err
	}
	return errors.New("pgrelay: " + reason + "; they are read from the table")
}

// text is the form in which a proof keeps it.
func (s *sending) text() string {
	b, err := json.Marshal(s)
	if err != nil {
		return "" // strings always marshal
	}
	return string(b)
}

// sendingOf reads what a proof has kept; nil: nothing is known.
func sendingOf(text *string) *sending {
	var s sending
	if text == nil || json.Unmarshal([]byte(*text), &s) != nil {
		return nil
	}
	return &s
}
