package compat

import "testing"

// FuzzCompare looks for texts that make the comparison panic, go on without
// end, or give two answers.
func FuzzCompare(f *testing.F) {
	for _, p := range pairs {
		f.Add(p.writer, p.reader)
	}
	f.Add(`{"$ref":"#/$defs/%61~1b","$defs":{"a/b":{"$id":"%zz","$ref":"#"}}}`, `{"items":[{"$ref":""}],"additionalItems":{"$dynamicRef":"#x"}}`)
	f.Fuzz(func(t *testing.T, writer, reader string) {
		if len(writer)+len(reader) > 4096 {
			return
		}
		for _, p := range []Policy{Logical, Lenient} {
			first, second := Compare(p, js(writer), js(reader)), Compare(p, js(writer), js(reader))
			if ids(first) != ids(second) {
				t.Errorf("two answers: %v and %v", first, second)
			}
			for _, d := range first {
				if len(d.String()) > 8192 {
					t.Errorf("a reason of %d bytes", len(d.String()))
				}
			}
		}
		Compare(Lenient, Schema{Kind: Avro, Text: []byte(writer)}, Schema{Kind: Avro, Text: []byte(reader)})
	})
}
