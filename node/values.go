package node

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/principal"
)

// UnmarshalText reads "100/s", "6000/m" or "3600/h".
func (r *Rate) UnmarshalText(text []byte) error {
	num, unit, ok := strings.Cut(string(text), "/")
	n, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	per := map[string]float64{"s": 1, "m": 60, "h": 3600}[strings.TrimSpace(unit)]
	if !ok || err != nil || per == 0 || !(n/per > 0) || n/per > principal.MaxRate { // NaN too
		return fmt.Errorf("rate %q: want NUMBER/s, NUMBER/m or NUMBER/h, above zero and at most %d/s", clip(text), principal.MaxRate)
	}
	*r = Rate(n / per)
	return nil
}

// MarshalText writes the rate a second.
func (r Rate) MarshalText() ([]byte, error) {
	return []byte(strconv.FormatFloat(float64(r), 'g', -1, 64) + "/s"), nil
}

// UnmarshalText reads a number of bytes with an optional unit: KiB, MiB, GiB
// (powers of 1024) or kB, MB, GB (powers of 1000).
func (s *Size) UnmarshalText(text []byte) error {
	str := strings.TrimSpace(string(text))
	i := strings.LastIndexAny(str, "0123456789.") + 1
	n, err := strconv.ParseFloat(str[:i], 64)
	unit, ok := map[string]float64{"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[strings.TrimSpace(str[i:])]
	if err != nil || !ok || n < 0 || n*unit > 1<<50 || n > 0 && n*unit < 1 { // a part of a byte would read as 0, which is the default
		return fmt.Errorf("size %q: want a number of bytes such as 512KiB or 1MiB", clip(text))
	}
	*s = Size(n * unit)
	return nil
}

// MarshalText writes the size in the largest whole unit.
func (s Size) MarshalText() ([]byte, error) {
	for _, u := range []struct {
		name string
		size Size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s != 0 && s%u.size == 0 {
			return []byte(strconv.FormatInt(int64(s/u.size), 10) + u.name), nil
		}
	}
	return []byte(strconv.FormatInt(int64(s), 10)), nil
}

// UnmarshalText reads a Go duration, or whole days such as "7d".
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			*d = Duration(time.Duration(n) * 24 * time.Hour)
			return nil
		}
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 || v == 0 && strings.ContainsAny(s, "123456789") { // as in Size
		return fmt.Errorf("duration %q: want such as 30s, 10m, 12h or 7d", clip(text))
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes whole days as days, anything else as Go does.
func (d Duration) MarshalText() ([]byte, error) {
	const day = 24 * time.Hour
	if v := time.Duration(d); v > 0 && v%day == 0 {
		return []byte(strconv.FormatInt(int64(v/day), 10) + "d"), nil
	}
	return []byte(time.Duration(d).String()), nil
}

// UnmarshalText reads "none" or a rate.
func (r *Roots) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*r = Roots{None: true}
		return nil
	}
	return r.Rate.UnmarshalText(text)
}

// MarshalText writes what UnmarshalText reads.
func (r Roots) MarshalText() ([]byte, error) {
	if r.Rate == 0 {
		return []byte("none"), nil
	}
	return r.Rate.MarshalText()
}

// UnmarshalText reads a reference or the text itself. A reference to nothing is
// refused: it is no value of another host either.
func (s *Secret) UnmarshalText(text []byte) error {
	kind, at, _ := strings.Cut(string(text), ":")
	switch {
	case kind == "env" && (at == "" || strings.ContainsAny(at, "=\x00")):
		return errors.New("env: needs the name of an environment variable behind it")
	case kind == "file" && (at == "" || strings.Contains(at, "\x00")):
		return errors.New("file: needs the path of a file behind it")
	}
	*s = Secret(text)
	return nil
}

// Resolve returns the value behind the reference: the environment variable of
// env:NAME, the trimmed content of file:PATH, or the text itself.
func (s Secret) Resolve() (string, error) {
	ref := string(s)
	if name, ok := strings.CutPrefix(ref, "env:"); ok {
		v, set := os.LookupEnv(name)
		if !set || v == "" {
			return "", fmt.Errorf("environment variable %s is not set", name)
		}
		return v, nil
	}
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		v := strings.TrimSpace(string(b))
		if v == "" {
			return "", errors.New("the file " + path + " is empty")
		}
		return v, nil
	}
	return ref, nil
}

// IsReference reports whether the secret stands elsewhere.
func (s Secret) IsReference() bool {
	return strings.HasPrefix(string(s), "env:") || strings.HasPrefix(string(s), "file:")
}

// clip bounds what an error repeats of its input.
func clip(text []byte) string {
	if len(text) > 40 {
		return string(text[:40]) + "…"
	}
	return string(text)
}
