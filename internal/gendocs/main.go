// Command gendocs writes the reference pages that are made from the code:
//
//	go run ./internal/gendocs
//
// A test fails when a page in docs is not what this command would write.
package main

import (
	"errors"
	"os"
	"path/filepath"
)

// page is one generated file, below the root of the repository.
type page struct {
	path   string
	render func() []byte
}

func pages() []page {
	return []page{{filepath.Join("docs", "errors.md"), errorsPage}}
}

func main() {
	if err := run(); err != nil {
		panic(err) // a tool for developers: the trace does no harm
	}
}

func run() error {
	root, err := repoRoot()
	if err != nil {
		return err
	}
	for _, p := range pages() {
		if err := os.WriteFile(filepath.Join(root, p.path), p.render(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// repoRoot finds the folder of go.mod, at or above the working folder.
func repoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("there is no go.mod here or above")
		}
		dir = parent
	}
}
