package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// flatten maps the JSON Pointer of every leaf of a JSON text to its raw value.
// A text that is no JSON has one leaf, the text itself.
func flatten(text []byte) map[string]string {
	out := map[string]string{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		out[""] = string(text)
		return out
	}
	flattenInto(out, "", v)
	return out
}

func flattenInto(out map[string]string, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			out[at] = "{}"
		}
		for name, member := range v {
			flattenInto(out, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), member)
		}
	case []any:
		if len(v) == 0 {
			out[at] = "[]"
		}
		for i, item := range v {
			flattenInto(out, at+"/"+strconv.Itoa(i), item)
		}
	default:
		raw, _ := json.Marshal(v) // a decoded scalar always encodes
		out[at] = string(raw)
	}
}

func sortedKeys(a, b map[string]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
