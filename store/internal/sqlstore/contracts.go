package sqlstore

import (
	"context"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const contractColumns = "subject, version, type, digest, draft, deleted, created, by, policy, schema"

func scanContract(q query) store.Contract {
	return store.Contract{
		Subject: q.ColText(), Version: int(q.ColInt()), Type: q.ColText(), Digest: q.ColText(), Draft: q.ColBool(), Deleted: q.ColBool(),
		Created: q.colTime(), By: q.ColText(), Policy: q.ColBlob(), Schema: q.ColBlob(),
	}
}

func scanContracts(q query) ([]store.Contract, error) {
	var all []store.Contract
	for q.Next() {
		all = append(all, scanContract(q))
	}
	return all, q.Close()
}

// Put implements store.Contracts.
func (r contracts) Put(_ context.Context, c store.Contract) error {
	q := r.query("SELECT max(version) FROM @contracts WHERE subject = ?")
	q.Text(c.Subject)
	highest := 0
	if q.Next() {
		highest = int(q.ColInt()) // NULL reads as 0
	}
	if err := q.Close(); err != nil {
		return err
	}
	if c.Version != highest+1 {
		return headgate.NewError(headgate.CodeConflict, "the next version of contract %q is %d, not %d", Clip(c.Subject), highest+1, c.Version)
	}
	q = r.query("INSERT INTO @contracts (" + contractColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	q.Text(c.Subject)
	q.Int(int64(c.Version))
	q.Text(c.Type)
	q.Text(c.Digest)
	q.Bool(c.Draft)
	q.Bool(c.Deleted)
	q.time(c.Created)
	q.Text(c.By)
	q.Blob(c.Policy)
	q.Blob(c.Schema)
	return q.Run()
}

// Get implements store.Contracts.
func (r contracts) Get(_ context.Context, subject string, version int) (store.Contract, error) {
	var q query
	if version == 0 {
		q = r.query("SELECT " + contractColumns + " FROM @contracts WHERE subject = ? AND NOT deleted ORDER BY version DESC LIMIT 1")
		q.Text(subject)
	} else {
		q = r.query("SELECT " + contractColumns + " FROM @contracts WHERE subject = ? AND version = ?")
		q.Text(subject)
		q.Int(int64(version))
	}
	if !q.Next() {
		if err := q.Close(); err != nil {
			return store.Contract{}, err
		}
		name := subject
		if version != 0 {
			name = Clip(subject) + "@" + strconv.Itoa(version)
		}
		return store.Contract{}, notFound("contract", name)
	}
	c := scanContract(q)
	return c, q.Close()
}

// Versions implements store.Contracts.
func (r contracts) Versions(_ context.Context, subject string) ([]store.Contract, error) {
	q := r.query("SELECT " + contractColumns + " FROM @contracts WHERE subject = ? ORDER BY version")
	q.Text(subject)
	return scanContracts(q)
}

// Latest implements store.Contracts.
func (r contracts) Latest(context.Context) ([]store.Contract, error) {
	q := r.query("SELECT " + contractColumns + ` FROM @contracts AS c WHERE NOT deleted
		AND version = (SELECT max(version) FROM @contracts WHERE subject = c.subject AND NOT deleted) ORDER BY subject`)
	return scanContracts(q)
}

// Delete implements store.Contracts.
func (r contracts) Delete(_ context.Context, subject string, version int) (int, error) {
	var q query
	if version == 0 {
		q = r.query("UPDATE @contracts SET deleted = true WHERE subject = ? AND NOT deleted")
		q.Text(subject)
	} else {
		q = r.query("UPDATE @contracts SET deleted = true WHERE subject = ? AND version = ? AND NOT deleted")
		q.Text(subject)
		q.Int(int64(version))
	}
	return q.Change()
}
