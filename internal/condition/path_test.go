package condition_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/condition"
)

// TestPathsAgreeWithTheLanguage compares the walk that plain paths take with
// the language itself, which an expression that is no plain path goes through.
func TestPathsAgreeWithTheLanguage(t *testing.T) {
	paths := []string{`data.a`, `data.b`, `data.a.b`, `data.a.b.c`, `data.b.a`}
	var walk, language []*condition.Value
	for _, p := range paths {
		for expr, list := range map[string]*[]*condition.Value{p: &walk, `true ? dyn(` + p + `) : ""`: &language} {
			v, err := condition.CompileValue(expr)
			if err != nil {
				t.Fatal(err)
			}
			*list = append(*list, v)
		}
	}
	names := rapid.SampledFrom([]string{"a", "b", "c", "d", "é"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaves := rapid.OneOf(
			rapid.Just[any](nil), rapid.Just[any](true), rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Float64().AsAny(),
			rapid.Just[any](json.RawMessage("18446744073709551615")), rapid.Just[any](json.RawMessage("-18446744073709551616")),
		)
		if depth == 0 {
			return leaves
		}
		return rapid.OneOf(leaves, rapid.SliceOfN(value(depth-1), 0, 2).AsAny(), rapid.MapOf(names, value(depth-1)).AsAny())
	}
	check := func(t interface{ Fatalf(string, ...any) }, data []byte) {
		e := &headgate.Event{Data: data}
		for i, p := range paths {
			got, gotErr := walk[i].Eval(e)
			want, wantErr := language[i].Eval(e)
			if got != want || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Fatalf("%s of %s: the walk gives %q, %v; the language %q, %v", p, data, got, gotErr, want, wantErr)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		data, err := json.Marshal(rapid.MapOf(names, value(3)).Draw(t, "data"))
		if err != nil {
			t.Fatal(err)
		}
		check(t, data)
	})
	for _, data := range []string{
		`{"\u0061":"x"}`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`, `{"a":1`, `{"a":1}}`, `7`, `null`, `[{"a":1}]`, `{"a":"\ud800"}`, `{"b":1,"a":{"c":3,"b":{"c":"x"}}}`,
	} {
		check(t, []byte(data))
	}
}

func BenchmarkKey(b *testing.B) {
	e := ticket()
	for _, expr := range []string{`data.id`, `true ? data.id : 0`} {
		v, err := condition.CompileValue(expr)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(expr, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Eval(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
