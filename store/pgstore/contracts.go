package pgstore

import (
	"context"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const contractColumns = "subject, version, type, digest, draft, deleted, created, by, policy, schema"

func scanContract(q *query) store.Contract {
	return store.Contract{
		Subject: q.colText(), Version: int(q.colInt()), Type: q.colText(), Digest: q.colText(), Draft: q.colBool(), Deleted: q.colBool(),
		Created: q.colTime(), By: q.colText(), Policy: q.colBlob(), Schema: q.colBlob(),
	}
}

func scanContracts(q *query) ([]store.Contract, error) {
	var all []store.Contract
	for q.next() {
		all = append(all, scanContract(q))
	}
	return all, q.close()
}

// Put implements store.Contracts.
func (r contracts) Put(_ context.Context, c store.Contract) error {
	q := r.query("SELECT max(version) FROM @contracts WHERE subject = ?")
	q.text(c.Subject)
	highest := 0
	if q.next() {
		highest = int(q.colInt()) // NULL reads as 0
	}
	if err := q.close(); err != nil {
		return err
	}
	if c.Version != highest+1 {
		return headgate.NewError(headgate.CodeConflict, "the next version of contract %q is %d, not %d", clip(c.Subject), highest+1, c.Version)
	}
	q = r.query("INSERT INTO @contracts (" + contractColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	q.text(c.Subject)
	q.int(int64(c.Version))
	q.text(c.Type)
	q.text(c.Digest)
	q.bool(c.Draft)
	q.bool(c.Deleted)
	q.time(c.Created)
	q.text(c.By)
	q.blob(c.Policy)
	q.blob(c.Schema)
	return q.run()
}

// Get implements store.Contracts.
func (r contracts) Get(_ context.Context, subject string, version int) (store.Contract, error) {
	var q query
	if version == 0 {
		q = r.query("SELECT " + contractColumns + " FROM @contracts WHERE subject = ? AND NOT deleted ORDER BY version DESC LIMIT 1")
		q.text(subject)
	} else {
		q = r.query("SELECT " + contractColumns + " FROM @contracts WHERE subject = ? AND version = ?")
		q.text(subject)
		q.int(int64(version))
	}
	if !q.next() {
		if err := q.close(); err != nil {
			return store.Contract{}, err
		}
		name := subject
		if version != 0 {
			name = clip(subject) + "@" + strconv.Itoa(version)
		}
		return store.Contract{}, notFound("contract", name)
	}
	c := scanContract(&q)
	return c, q.close()
}

// Versions implements store.Contracts.
func (r contracts) Versions(_ context.Context, subject string) ([]store.Contract, error) {
	q := r.query("SELECT " + contractColumns + " FROM @contracts WHERE subject = ? ORDER BY version")
	q.text(subject)
	return scanContracts(&q)
}

// Latest implements store.Contracts.
func (r contracts) Latest(context.Context) ([]store.Contract, error) {
	q := r.query("SELECT " + contractColumns + ` FROM @contracts AS c WHERE NOT deleted
		AND version = (SELECT max(version) FROM @contracts WHERE subject = c.subject AND NOT deleted) ORDER BY subject`)
	return scanContracts(&q)
}

// Delete implements store.Contracts.
func (r contracts) Delete(_ context.Context, subject string, version int) (int, error) {
	var q query
	if version == 0 {
		q = r.query("UPDATE @contracts SET deleted = true WHERE subject = ? AND NOT deleted")
		q.text(subject)
	} else {
		q = r.query("UPDATE @contracts SET deleted = true WHERE subject = ? AND version = ? AND NOT deleted")
		q.text(subject)
		q.int(int64(version))
	}
	return q.change()
}
