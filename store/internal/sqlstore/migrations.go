package sqlstore

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Migration is one step between schema versions.
type Migration struct {
	Version  int
	Name     string
	Up, Down string // scripts
}

// Migrations reads NUMBER_name.up.sql and NUMBER_name.down.sql from the folder
// "migrations". Versions count from 1 without gaps.
func Migrations(files fs.FS) ([]Migration, error) {
	ups, err := fs.Glob(files, "migrations/*.up.sql")
	if err != nil {
		return nil, err
	}
	var all []Migration
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
		all = append(all, Migration{Version: version, Name: name, Up: string(up), Down: string(down)})
	}
	return all, nil
}
