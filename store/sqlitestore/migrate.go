package sqlitestore

import (
	"embed"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// applicationID marks a database as ours ("HGAT").
const applicationID = 0x48474154

// migrate brings the schema to a version, one transaction per step: after a
// crash the next start goes on where it was. It refuses what is not ours.
func migrate(c *conn, all []sqlstore.Migration, want int) error {
	have, err := schemaVersion(c, len(all))
	if err != nil {
		return err
	}
	for ; have < want; have++ {
		if err := step(c, all[have].Up, have+1); err != nil {
			return fmt.Errorf("migration %d %s up: %w", all[have].Version, all[have].Name, err)
		}
	}
	for ; have > want; have-- {
		if err := step(c, all[have-1].Down, have-1); err != nil {
			return fmt.Errorf("migration %d %s down: %w", all[have-1].Version, all[have-1].Name, err)
		}
	}
	return nil
}

func step(c *conn, sql string, version int) error {
	if err := c.db.Exec(sqlBegin); err != nil {
		return err
	}
	err := c.db.Exec(sql)
	if err == nil {
		err = c.db.Exec(fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d", applicationID, version))
	}
	if err == nil {
		err = c.db.Exec(sqlCommit)
	}
	if err != nil && !c.db.GetAutocommit() {
		_ = c.db.Exec(sqlRollback) // the first error says more
	}
	return err
}

// schemaVersion returns the version of the tables; 0 for an empty database.
func schemaVersion(c *conn, newest int) (int, error) {
	app, err := c.int64Pragma("application_id")
	if err != nil {
		return 0, err
	}
	version, err := c.int64Pragma("user_version")
	if err != nil {
		return 0, err
	}
	objects, err := c.int64Pragma("schema_version")
	if err != nil {
		return 0, err
	}
	switch {
	case app == 0 && version == 0 && objects == 0:
		return 0, nil
	case app != applicationID:
		return 0, headgate.NewError(headgate.CodeInvalidConfig, "the database belongs to another application")
	case version < 0 || version > int64(newest):
		return 0, &headgate.Error{
			Code:   headgate.CodeInvalidConfig,
			Detail: fmt.Sprintf("the database has schema %d, this version of Headgate knows up to %d", version, newest),
			Fix:    "Run the newer version of Headgate that wrote it.",
		}
	}
	return int(version), nil
}
