package pgrelay

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/relay"
	"github.com/jackc/pgx/v5"
)

// untold reports whether the server has text that it cannot tell in UTF-8: signs
// of its encoding that UTF-8 lacks, or the name of a role that was made in a
// database of another encoding. Writers are refused it; what the table has from
// before, or from its owner, may hold it.
func untold(err error) bool {
	s := sqlState(err)
	return s == "22P05" || s == "22021" // untranslatable_character, character_not_in_repertoire
}

const untoldReason = "the log has a row whose text cannot be told in UTF-8: the table is read, and the row goes to quarantine"

// readOneByOne reads rows of which at least one has such text.
func readOneByOne(ctx context.Context, conn *pgx.Conn, of []rowSize, p *stretch) ([]*relay.Row, error) {
	var all []*relay.Row
	for _, s := range of {
		rows, err := readRows(ctx, conn, between, s.seq, s.seq+1, p.since, p.until, p.restored)
		if untold(err) {
			rows, err = readUntold(ctx, conn, s.seq, p)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// readUntold reads a row in the server's own encoding, as bytes.
func readUntold(ctx context.Context, conn *pgx.Conn, seq int64, p *stretch) ([]*relay.Row, error) {
	if _, err := conn.Exec(ctx, `SELECT set_config('client_encoding', current_setting('server_encoding'), false)`); err != nil {
		return nil, sqlError("reading text as it is", err)
	}
	rows, err := conn.Query(ctx, selectColumns+"headgate.outbox WHERE "+between, seq, seq+1, p.since, p.until, p.restored)
	if err != nil {
		return nil, sqlError("reading text as it is", err)
	}
	defer rows.Close()
	var all []*relay.Row
	for rows.Next() {
		s, err := scanStored(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, refuseUntold(s))
	}
	if err := rows.Err(); err != nil {
		return nil, sqlError("reading text as it is", err)
	}
	if _, err := conn.Exec(ctx, `SELECT set_config('client_encoding', 'UTF8', false)`); err != nil {
		return nil, sqlError("reading text as it is", err)
	}
	return all, nil
}

// refuseUntold makes a row for the quarantine: text that is not ASCII is kept as
// bytes, since in this encoding it has another meaning.
func refuseUntold(s *stored) *relay.Row {
	row := &relay.Row{Written: s.created(), Committed: s.created()}
	row.Seq, _ = strconv.ParseInt(text(s, colSeq), 10, 64) // only shown
	row.Role = clip(text(s, colRole), maxName)
	var names []string
	all := map[string]string{}
	for i, name := range outboxColumns {
		v, ok := s.get(column(i))
		switch {
		case !ok:
		case column(i) == colData:
			all[name] = string(v[:min(len(v), 2*keptData)]) // in hexadecimal form already
		case strings.IndexFunc(string(v), func(r rune) bool { return r >= utf8.RuneSelf }) >= 0:
			names = append(names, name)
			all[name] = string(hexText(v[:min(len(v), maxText)]))
		default:
			all[name] = clip(string(v), maxText)
		}
	}
	row.Err = headgate.NewError(headgate.CodeBadEnvelope, "row %d of the outbox has text that cannot be told in UTF-8: one of %s, kept as bytes of the database's encoding", row.Seq, strings.Join(names, ", "))
	row.Raw, _ = json.Marshal(all) // strings always marshal
	return row
}

// untoldInLog notes that the table has to be read.
func (x *session) untoldInLog(ctx context.Context) error {
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	if err := x.setRepair(ctx, untoldReason); err != nil {
		return err
	}
	return fmt.Errorf("pgrelay: %s", untoldReason)
}
