package sqlstore

import (
	"testing"
	"testing/fstest"
)

func TestMigrationsRefuseGaps(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"gap":       {"migrations/0001_a.up.sql": {}, "migrations/0001_a.down.sql": {}, "migrations/0003_c.up.sql": {}, "migrations/0003_c.down.sql": {}},
		"no down":   {"migrations/0001_a.up.sql": {}},
		"no number": {"migrations/a.up.sql": {}, "migrations/a.down.sql": {}},
	} {
		if _, err := Migrations(files); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
