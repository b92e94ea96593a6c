package node

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate/headgate/registry/compat"
)

// Setting is one setting as a node would use it.
type Setting struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	Line   int    `json:"line,omitempty"` // 0: default
	Column int    `json:"column,omitempty"`
}

// defaults are the values that stand behind settings left out.
var defaults = [...]Setting{
	{Path: "version", Value: "1"},
	{Path: "data", Value: ".headgate"},
	{Path: "listen", Value: "127.0.0.1:7420"},
	{Path: "store.driver", Value: "sqlite"},
	{Path: "broker.driver", Value: "nats"},
	{Path: "broker.url", Value: "(embedded)"},
	{Path: "broker.prefix", Value: "HG"},
	{Path: "broker.replicas", Value: "1"},
	{Path: "durability", Value: "fsync"},
	{Path: "defaults.ttl", Value: "16"},
	{Path: "defaults.gas", Value: "1000"},
	{Path: "defaults.breadth", Value: "64"},
	{Path: "defaults.repeats", Value: "4"},
	{Path: "defaults.attempts", Value: "8"},
	{Path: "defaults.backoff", Value: "1s..10m"},
	{Path: "defaults.payload_max", Value: "512KiB"},
	{Path: "defaults.retain", Value: "7d"},
	{Path: "defaults.roots", Value: "100/s"},
	{Path: "contracts.compatibility", Value: "backward"},
	{Path: "contracts.unknown_fields", Value: "as_schema"},
	{Path: "quarantine.retain", Value: "14d"},
	{Path: "quarantine.refusal_quota", Value: "1000"},
	{Path: "limits.in_flight", Value: "256MiB"},
	{Path: "limits.connections", Value: "4096"},
	{Path: "limits.body", Value: "256MiB"},
}

// Effective returns every setting, those of the file with their place and the
// defaults behind those left out, ordered by path.
func (l *Loaded) Effective() []Setting {
	var out []Setting
	collect(reflect.ValueOf(l.Config), "", func(path, value string) {
		at := l.places[path]
		out = append(out, Setting{Path: path, Value: value, Line: at.line, Column: at.column})
	})
	for _, d := range defaults {
		if !slices.ContainsFunc(out, func(s Setting) bool { return s.Path == d.Path }) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Setting) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// collect calls fn for every setting that is not zero.
func collect(v reflect.Value, path string, fn func(path, value string)) {
	if v.IsZero() {
		return
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok && v.Kind() != reflect.Struct {
		text, err := m.MarshalText()
		if err == nil {
			fn(path, string(text))
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		collect(v.Elem(), path, fn)
	case reflect.Struct:
		if r, ok := v.Interface().(Roots); ok && r.Burst == 0 {
			text, _ := r.MarshalText() // never fails
			fn(path, string(text))
			return
		}
		names := fieldNames(v.Type())
		for i := range v.NumField() {
			if v.Type().Field(i).Anonymous {
				collect(v.Field(i), path, fn)
			} else if name := names[i]; name != "" {
				collect(v.Field(i), joinPath(path, name), fn)
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			collect(v.MapIndex(k), joinPath(path, k.String()), fn)
		}
	case reflect.Slice:
		for i := range v.Len() {
			collect(v.Index(i), fmt.Sprintf("%s[%d]", path, i), fn)
		}
	default:
		fn(path, fmt.Sprint(v.Interface()))
	}
}

// fieldNames returns the names in files of a struct's fields, by index.
func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range t.NumField() {
		names[i] = settingName(t.Field(i))
	}
	return names
}

// compatibility is the level of contracts where nothing else is configured: in
// dev mode contracts change from minute to minute.
func (l *Loaded) compatibility() string {
	switch {
	case l.Contracts.Compatibility != "":
		return l.Contracts.Compatibility
	case l.Dev:
		return string(compat.None)
	}
	return string(compat.Backward)
}

// IsSet reports whether the file names the setting.
func (l *Loaded) IsSet(path string) bool {
	_, ok := l.places[path]
	return ok
}

// DataDir returns the folder of everything embedded.
func (l *Loaded) DataDir() string { return l.dataDir() }
