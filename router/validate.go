package router

import (
	"strings"

	"github.com/headgate/headgate"
)

// Validate returns an invalid_argument error that lists every problem of the
// specification at once, or nil.
func (s Spec) Validate() error {
	if _, bad := s.compile(); len(bad) > 0 {
		return headgate.NewError(headgate.CodeInvalidArgument, "%s", strings.Join(bad, "; "))
	}
	return nil
}
