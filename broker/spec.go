package broker

import (
	"strconv"

	"github.com/headgate/headgate"
)

// MaxPartitions bounds the partitions of one stream: each costs a driver
// files, memory and goroutines of its own.
const MaxPartitions = 256

// maxStreamName leaves room for a driver's own prefix and suffix.
const maxStreamName = 64

// Validate reports the first thing wrong with the specification.
func (s StreamSpec) Validate() error {
	if !validStreamName(s.Name) {
		return headgate.NewError(headgate.CodeInvalidArgument, "stream name %q: want 1 to %d lower-case letters, digits, \"-\" and \"_\"", clip(s.Name), maxStreamName)
	}
	if s.Partitions < 0 || s.Partitions > MaxPartitions {
		return headgate.NewError(headgate.CodeInvalidArgument, "stream %s: %d partitions, want 1 to %d", s.Name, s.Partitions, MaxPartitions)
	}
	if s.MaxBytes < 0 {
		return headgate.NewError(headgate.CodeInvalidArgument, "stream %s: MaxBytes %d is negative", s.Name, s.MaxBytes)
	}
	return nil
}

// WithDefaults returns the specification with its zero values replaced.
func (s StreamSpec) WithDefaults() StreamSpec {
	if s.Partitions == 0 {
		s.Partitions = DefaultPartitions
	}
	return s
}

// Compare returns the drift between what is wanted and what is there, of the
// settings that every driver has. The number of partitions is unsafe: a key
// would move to another partition and lose its order.
func Compare(want, have StreamSpec) []Drift {
	var drift []Drift
	if want.Partitions != have.Partitions {
		drift = append(drift, Drift{
			Stream: want.Name, Setting: "partitions", Unsafe: true,
			Want: strconv.Itoa(want.Partitions), Have: strconv.Itoa(have.Partitions),
		})
	}
	if want.MaxBytes != have.MaxBytes {
		drift = append(drift, Drift{
			Stream: want.Name, Setting: "max_bytes",
			Want: strconv.FormatInt(want.MaxBytes, 10), Have: strconv.FormatInt(have.MaxBytes, 10),
		})
	}
	return drift
}

func validStreamName(s string) bool {
	if s == "" || len(s) > maxStreamName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func clip(s string) string {
	if len(s) > maxStreamName {
		return s[:maxStreamName] + "…"
	}
	return s
}
