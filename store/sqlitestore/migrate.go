package sqlitestore

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// applicationID marks a database as ours ("HGAT").
const applicationID = 0x48474154

// migration is one step between schema versions.
type migration struct {
	version  int
	name     string
	up, down string
}

// loadMigrations reads NUMBER_name.up.sql and NUMBER_name.down.sql. Versions
// count from 1 without gaps.
func loadMigrations(files fs.FS) ([]migration, error) {
	ups, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, file := range ups { // in order of their names
		number, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".up.sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s: want number %d", file, i+1)
		}
		up, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		down, err := fs.ReadFile(files, strings.TrimSuffix(file, ".up.sql")+".down.sql")
		if err != nil {
			return nil, err
		}
		all = append(all, migration{version: version, name: name, up: string(up), down: string(down)})
	}
	return all, nil
}

func ownMigrations() ([]migration, error) {
	sub, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	return loadMigrations(sub)
}

// migrate brings the schema to a version, one transaction per step: after a
// crash the next start goes on where it was. It refuses what is not ours.
func migrate(c *conn, all []migration, want int) error {
	have, err := schemaVersion(c, len(all))
	if err != nil {
		return err
	}
	for ; have < want; have++ {
		if err := step(c, all[have].up, have+1); err != nil {
			return fmt.Errorf("migration %d %s up: %w", all[have].version, all[have].name, err)
		}
	}
	for ; have > want; have-- {
		if err := step(c, all[have-1].down, have-1); err != nil {
			return fmt.Errorf("migration %d %s down: %w", all[have-1].version, all[have-1].name, err)
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
