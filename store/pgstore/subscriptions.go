package pgstore

import (
	"context"

	"github.com/headgate/headgate/store"
)

const subscriptionColumns = "name, paused, managed, created, updated, spec"

func scanSubscription(q *query) store.Subscription {
	return store.Subscription{
		Name: q.colText(), Paused: q.colBool(), Managed: q.colText(), Created: q.colTime(), Updated: q.colTime(), Spec: q.colBlob(),
	}
}

// Put implements store.Subscriptions.
func (r subscriptions) Put(_ context.Context, s store.Subscription) error {
	q := r.query("INSERT INTO @subscriptions (" + subscriptionColumns + `) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET
		paused = excluded.paused, managed = excluded.managed, created = excluded.created, updated = excluded.updated, spec = excluded.spec`)
	q.text(s.Name)
	q.bool(s.Paused)
	q.text(s.Managed)
	q.time(s.Created)
	q.time(s.Updated)
	q.blob(s.Spec)
	return q.run()
}

// Get implements store.Subscriptions.
func (r subscriptions) Get(_ context.Context, name string) (store.Subscription, error) {
	q := r.query("SELECT " + subscriptionColumns + " FROM @subscriptions WHERE name = ?")
	q.text(name)
	if !q.next() {
		if err := q.close(); err != nil {
			return store.Subscription{}, err
		}
		return store.Subscription{}, notFound("subscription", name)
	}
	s := scanSubscription(&q)
	return s, q.close()
}

// List implements store.Subscriptions.
func (r subscriptions) List(context.Context) ([]store.Subscription, error) {
	q := r.query("SELECT " + subscriptionColumns + " FROM @subscriptions ORDER BY name")
	var all []store.Subscription
	for q.next() {
		all = append(all, scanSubscription(&q))
	}
	return all, q.close()
}

// Delete implements store.Subscriptions.
func (r subscriptions) Delete(_ context.Context, name string) error {
	q := r.query("DELETE FROM @subscriptions WHERE name = ?")
	q.text(name)
	n, err := q.change()
	if err != nil {
		return err
	}
	for _, sql := range []string{"DELETE FROM @progress WHERE subscription = ?", "DELETE FROM @exceptions WHERE subscription = ?"} {
		q = r.query(sql)
		q.text(name)
		if err := q.run(); err != nil {
			return err
		}
	}
	if n == 0 {
		return notFound("subscription", name)
	}
	return nil
}
