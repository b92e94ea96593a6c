package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Duration is a time.Duration that is written as text such as "30s". It reads
// the same text, and a plain number as seconds.
type Duration time.Duration

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) {
	return []byte(strconv.Quote(time.Duration(d).String())), nil
}

// UnmarshalJSON reads "30s", "1m30s", "7d" or a number of seconds. Negative
// durations are refused.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var s string
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	} else {
		s = string(b)
	}
	v, err := ParseDuration(s)
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}

// String returns the text form.
func (d Duration) String() string { return time.Duration(d).String() }

// ParseDuration reads a duration as [Duration] does: Go's form, a whole number
// of days such as "7d", or a plain number of seconds.
func ParseDuration(s string) (time.Duration, error) {
	if len(s) > 32 {
		s = s[:32]
	}
	if secs, err := strconv.ParseFloat(s, 64); err == nil {
		if secs < 0 || math.IsNaN(secs) || secs > float64(math.MaxInt64)/float64(time.Second) {
			return 0, fmt.Errorf("duration %q is out of range", s)
		}
		return time.Duration(secs * float64(time.Second)), nil
	}
	if n := len(s); n > 1 && s[n-1] == 'd' {
		if days, err := strconv.ParseUint(s[:n-1], 10, 16); err == nil {
			return time.Duration(days) * 24 * time.Hour, nil
		}
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("duration %q: want a form such as \"30s\", or a number of seconds", s)
	}
	return v, nil
}
