package relay

import (
	"time"

	"github.com/headgate/headgate"
)

// Finding is something wrong or unsafe about an outbox.
type Finding struct {
	Severity string `json:"severity"` // error or warning
	What     string `json:"what"`
	Fix      string `json:"fix"`
}

// ReplayFilter selects rows of the outbox. At least one field is needed.
type ReplayFilter struct {
	IDs          []string
	Type, Key    string
	Since, Until time.Time // written
	Limit        int       // default 1000, at most 100,000
}

// Check says whether the filter selects anything, and fills in its limit.
// Errors: invalid_argument.
func (f *ReplayFilter) Check() error {
	if len(f.IDs) == 0 && f.Type == "" && f.Key == "" && f.Since.IsZero() && f.Until.IsZero() {
		return headgate.NewError(headgate.CodeInvalidArgument, "say which rows: by id, type, key or time")
	}
	if f.Limit <= 0 {
		f.Limit = 1000
	}
	f.Limit = min(f.Limit, 100_000)
	return nil
}
