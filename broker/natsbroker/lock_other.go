//go:build !unix

package natsbroker

import (
	"errors"
	"os"

	"github.com/headgate/headgate"
)

// lockFolder creates the lock file; this system offers no lock that ends with
// the process.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, headgate.NewError(headgate.CodeUnavailable, "data folder: %v", err)
	}
	return f, nil
}

func freeSpace(string) (free, size int64, err error) { return 0, 0, errors.ErrUnsupported }
