package sqlstore

import (
	"context"

	"github.com/headgate/headgate/store"
)

const subscriptionColumns = "name, paused, managed, created, updated, spec"

func scanSubscription(q query) store.Subscription {
	return store.Subscription{
		Name: q.ColText(), Paused: q.ColBool(), Managed: q.ColText(), Created: q.colTime(), Updated: q.colTime(), Spec: q.ColBlob(),
	}
}

// Put implements store.Subscriptions.
func (r subscriptions) Put(_ context.Context, s store.Subscription) error {
	q := r.query("INSERT INTO @subscriptions (" + subscriptionColumns + `) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET
		paused = excluded.paused, managed = excluded.managed, created = excluded.created, updated = excluded.updated, spec = excluded.spec`)
	q.Text(s.Name)
	q.Bool(s.Paused)
	q.Text(s.Managed)
	q.time(s.Created)
	q.time(s.Updated)
	q.Blob(s.Spec)
	return q.Run()
}

// Get implements store.Subscriptions.
func (r subscriptions) Get(_ context.Context, name string) (store.Subscription, error) {
	q := r.query("SELECT " + subscriptionColumns + " FROM @subscriptions WHERE name = ?")
	q.Text(name)
	if !q.Next() {
		if err := q.Close(); err != nil {
			return store.Subscription{}, err
		}
		return store.Subscription{}, notFound("subscription", name)
	}
	s := scanSubscription(q)
	return s, q.Close()
}

// List implements store.Subscriptions.
func (r subscriptions) List(context.Context) ([]store.Subscription, error) {
	q := r.query("SELECT " + subscriptionColumns + " FROM @subscriptions ORDER BY name")
	var all []store.Subscription
	for q.Next() {
		all = append(all, scanSubscription(q))
	}
	return all, q.Close()
}

// Delete implements store.Subscriptions.
func (r subscriptions) Delete(_ context.Context, name string) error {
	q := r.query("DELETE FROM @subscriptions WHERE name = ?")
	q.Text(name)
	n, err := q.Change()
	if err != nil {
		return err
	}
	for _, sql := range []string{"DELETE FROM @progress WHERE subscription = ?", "DELETE FROM @exceptions WHERE subscription = ?"} {
		q = r.query(sql)
		q.Text(name)
		if err := q.Run(); err != nil {
			return err
		}
	}
	if n == 0 {
		return notFound("subscription", name)
	}
	return nil
}
