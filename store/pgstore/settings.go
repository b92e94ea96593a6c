package pgstore

import "context"

// Get implements store.Settings.
func (r settings) Get(_ context.Context, key string) ([]byte, error) {
	q := r.query("SELECT value FROM @settings WHERE key = ?")
	q.text(key)
	if !q.next() {
		if err := q.close(); err != nil {
			return nil, err
		}
		return nil, notFound("setting", key)
	}
	value := q.colBlob()
	return value, q.close()
}

// Put implements store.Settings.
func (r settings) Put(_ context.Context, key string, value []byte) error {
	q := r.query("INSERT INTO @settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value")
	q.text(key)
	q.blob(value)
	return q.run()
}

// Delete implements store.Settings.
func (r settings) Delete(_ context.Context, key string) error {
	q := r.query("DELETE FROM @settings WHERE key = ?")
	q.text(key)
	return q.run()
}

// List implements store.Settings.
func (r settings) List(_ context.Context, prefix string) (map[string][]byte, error) {
	end, bounded := successor(prefix)
	sql := "SELECT key, value FROM @settings WHERE key >= ?"
	if bounded {
		sql = "SELECT key, value FROM @settings WHERE key >= ? AND key < ?"
	}
	q := r.query(sql)
	q.text(prefix)
	if bounded {
		q.text(end)
	}
	all := make(map[string][]byte)
	for q.next() {
		key := q.colText()
		all[key] = q.colBlob()
	}
	return all, q.close()
}

// successor returns the smallest string above every string that starts with
// prefix, in byte order; there is none when prefix is empty or all 0xff.
func successor(prefix string) (string, bool) {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1}), true
		}
	}
	return "", false
}
