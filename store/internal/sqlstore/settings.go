package sqlstore

import "context"

// Get implements store.Settings.
func (r settings) Get(_ context.Context, key string) ([]byte, error) {
	q := r.query("SELECT value FROM @settings WHERE key = ?")
	q.Text(key)
	if !q.Next() {
		if err := q.Close(); err != nil {
			return nil, err
		}
		return nil, notFound("setting", key)
	}
	value := q.ColBlob()
	return value, q.Close()
}

// Put implements store.Settings.
func (r settings) Put(_ context.Context, key string, value []byte) error {
	q := r.query("INSERT INTO @settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value")
	q.Text(key)
	q.Blob(value)
	return q.Run()
}

// Delete implements store.Settings.
func (r settings) Delete(_ context.Context, key string) error {
	q := r.query("DELETE FROM @settings WHERE key = ?")
	q.Text(key)
	return q.Run()
}

// List implements store.Settings.
func (r settings) List(_ context.Context, prefix string) (map[string][]byte, error) {
	end, bounded := successor(prefix)
	sql := "SELECT key, value FROM @settings WHERE key >= ?"
	if bounded {
		sql = "SELECT key, value FROM @settings WHERE key >= ? AND key < ?"
	}
	q := r.query(sql)
	q.Text(prefix)
	if bounded {
		q.Text(end)
	}
	all := make(map[string][]byte)
	for q.Next() {
		key := q.ColText()
		all[key] = q.ColBlob()
	}
	return all, q.Close()
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
