package contract

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// applyProposal applies a proposal as its documentation says, by code that
// shares nothing with the engine's: cuts, decoding, then RFC 6902 over decoded
// values.
func applyProposal(t testing.TB, payload []byte, p *headgate.Proposal) any {
	t.Helper()
	text := cutBytes(t, payload, p.Cuts)
	if p.Decode {
		var inner string
		if err := json.Unmarshal(text, &inner); err != nil {
			t.Fatalf("decode: %v", err)
		}
		text = cutBytes(t, []byte(inner), p.InnerCuts)
	} else if p.InnerCuts != nil {
		t.Fatalf("inner cuts without decoding: %+v", p)
	}
	doc := decode(t, text)
	for _, op := range p.Patch {
		doc = applyOp(t, doc, op)
	}
	return doc
}

func cutBytes(t testing.TB, text []byte, cuts []headgate.TextCut) []byte {
	t.Helper()
	for _, c := range slices.Backward(cuts) {
		if c.Offset < 0 || c.Length <= 0 || c.Offset+c.Length > len(text) {
			t.Fatalf("cut %+v of %d bytes", c, len(text))
		}
		text = slices.Concat(text[:c.Offset], text[c.Offset+c.Length:])
	}
	return text
}

func applyOp(t testing.TB, doc any, op headgate.PatchOp) any {
	t.Helper()
	switch op.Op {
	case "move":
		v, ok := lookupPointer(doc, op.From)
		if !ok {
			t.Fatalf("%+v moves nothing", op)
		}
		if op.Path == "" {
			return v
		}
		doc = applyOp(t, doc, headgate.PatchOp{Op: "remove", Path: op.From})
		return setAt(t, doc, op, v)
	case "add":
		return setAt(t, doc, op, decode(t, op.Value))
	case "replace":
		if _, ok := lookupPointer(doc, op.Path); !ok {
			t.Fatalf("%+v replaces nothing", op)
		}
		if op.Path == "" {
			return decode(t, op.Value)
		}
		return setAt(t, doc, op, decode(t, op.Value))
	case "remove":
		parent, last := parentOf(t, doc, op)
		obj, ok := parent.(map[string]any)
		if _, there := obj[last]; !ok || !there {
			t.Fatalf("%+v removes nothing", op)
		}
		delete(obj, last)
		return doc
	}
	t.Fatalf("operation %+v", op)
	return nil
}

func parentOf(t testing.TB, doc any, op headgate.PatchOp) (parent any, last string) {
	t.Helper()
	i := strings.LastIndexByte(op.Path, '/')
	parent, ok := lookupPointer(doc, op.Path[:i])
	if !ok {
		t.Fatalf("%+v: no parent", op)
	}
	return parent, strings.ReplaceAll(strings.ReplaceAll(op.Path[i+1:], "~1", "/"), "~0", "~")
}

func setAt(t testing.TB, doc any, op headgate.PatchOp, v any) any {
	t.Helper()
	switch parent, last := parentOf(t, doc, op); p := parent.(type) {
	case map[string]any:
		if _, there := p[last]; there && op.Op != "replace" {
			t.Fatalf("%+v overwrites a member", op)
		}
		p[last] = v
	case []any:
		i, err := strconv.Atoi(last)
		if err != nil || i >= len(p) {
			t.Fatalf("%+v: no such item", op)
		}
		p[i] = v
	default:
		t.Fatalf("%+v: no container", op)
	}
	return doc
}

// scalars lists the scalars of a value, without what lossless steps change of
// their spelling.
func scalars(v any, out []string) []string {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			out = scalars(v[k], out)
		}
	case []any:
		for _, e := range v {
			out = scalars(e, out)
		}
	default:
		s := fmt.Sprint(v)
		if len(s) > 10 && s[10] == ' ' {
			s = s[:10] + "T" + s[11:]
		}
		out = append(out, s)
	}
	return out
}

// checkProposals holds the promises of every proposal.
func checkProposals(t testing.TB, c *Contract, payload []byte, v *headgate.Verdict, mended []byte) {
	t.Helper()
	if len(v.Proposals) > maxProposals {
		t.Errorf("%d proposals", len(v.Proposals))
	}
	for i := range v.Proposals {
		p := &v.Proposals[i]
		doc := applyProposal(t, payload, p)
		if again := c.Check(encode(t, doc)); again != nil {
			t.Errorf("%s\nproposal %s\ndoes not validate: %v", clip(string(payload), 600), encode(t, p), brief(again))
		}
		if len(p.Steps) == 0 || p.Version != headgate.RepairVersion || p.Confidence <= 0 || p.Confidence > 1 {
			t.Errorf("proposal %s", encode(t, p))
		}
		lossless := true
		for _, s := range p.Steps {
			lossless = lossless && s.Lossless && s.Step.Lossless()
			if s.Reason == "" || s.Lossless && s.Confidence != 1 {
				t.Errorf("step %+v", s)
			}
		}
		if lossless != p.Lossless || lossless && i > 0 {
			t.Errorf("lossless: %s", encode(t, p))
		}
		if !lossless {
			continue
		}
		if original := decode(t, cutBytes(t, payload, p.Cuts)); !reflect.DeepEqual(undo(t, decode(t, encode(t, doc)), p), original) || !cutsSayNothing(payload, p.Cuts) {
			t.Errorf("%s cannot be made again from %s and %s", payload, encode(t, doc), encode(t, p))
		}
		before, after := scalars(decode(t, cutBytes(t, payload, p.Cuts)), nil), scalars(doc, nil)
		slices.Sort(before)
		slices.Sort(after)
		if !slices.Equal(before, after) {
			t.Errorf("a lossless proposal lost values:\n%v\n%v\n%s", before, after, encode(t, p))
		}
	}
	switch {
	case mended == nil:
		if c.Repair() == RepairLossless && len(v.Proposals) > 0 && v.Proposals[0].Lossless {
			t.Error("a lossless proposal was not applied")
		}
	case c.Repair() != RepairLossless || !v.Proposals[0].Lossless:
		t.Errorf("mended without leave: %s", mended)
	default:
		if !c.engine.accept(mended) {
			t.Errorf("mended to what the gate refuses: %s", mended)
		}
		if !reflect.DeepEqual(decode(t, mended), applyProposal(t, payload, &v.Proposals[0])) {
			t.Errorf("mended bytes %s are not what the patch gives: %s", mended, encode(t, v.Proposals[0]))
		}
	}
}

const repairSchema = `{"type":"object","x-headgate-repair":"apply-lossless","properties":{
	"sub_path":{"type":"string","x-headgate-aliases":["path","file"]},
	"order_id":{"type":"string","format":"uuid"},
	"count":{"type":"integer","default":1},
	"price":{"type":"number"},
	"urgent":{"type":["boolean","null"]},
	"at":{"type":"string","format":"date-time"},
	"day":{"type":"string","format":"date"},
	"tags":{"type":"array","items":{"type":"string"}},
	"state":{"enum":["open","closed","in progress"]},
	"level":{"enum":[1,2,3]},
	"v":{"const":"v1"},
	"note":{"type":"string","maxLength":5},
	"pin":{"type":"integer","x-headgate-sensitive":true},
	"box":{"type":"object","properties":{"inner_id":{"type":"integer"}},"additionalProperties":false}},
	"required":["sub_path"],"additionalProperties":false}`

func TestRepairSteps(t *testing.T) {
	c := compileOK(t, repairSchema)
	for _, x := range []struct{ payload, steps, want string }{
		// lossless
		{"\xef\xbb\xbf" + `{"sub_path":"a"}`, "strip_bom", `{"sub_path":"a"}`},
		{"```json\n{\"sub_path\":\"a\"}\n```\n", "strip_fence", `{"sub_path":"a"}`},
		{"```\n{\"sub_path\":\"a\"}\n```", "strip_fence", `{"sub_path":"a"}`},
		{"```{\"sub_path\":\"a\"}```", "strip_fence", `{"sub_path":"a"}`},
		{`{"sub_path":"a,}","tags":["x",],}`, "trailing_comma", `{"sub_path":"a,}","tags":["x"]}`},
		{"\xef\xbb\xbf```json\n{\"sub_path\":\"a\",}\n```", "strip_bom strip_fence trailing_comma", `{"sub_path":"a"}`},
		{`{"input":{"sub_path":"a"}}`, "?unwrap", `{"sub_path":"a"}`},
		{`{"subPath":"a"}`, "spelling", `{"sub_path":"a"}`},
		{`{"SUB-PATH":"a"}`, "spelling", `{"sub_path":"a"}`},
		{`{"path":"a"}`, "alias", `{"sub_path":"a"}`},
		{`{"sub_path":"a","count":"12"}`, "integer_string", `{"sub_path":"a","count":12}`},
		{`{"sub_path":"a","at":"2026-11-30 20:00:00Z"}`, "time_separator", `{"sub_path":"a","at":"2026-11-30T20:00:00Z"}`},
		{`{"sub_path":"a","Box":{"innerId":"7"}}`, "spelling spelling integer_string", `{"sub_path":"a","box":{"inner_id":7}}`},
		{`{"sub_path":"a","order_id":"5B0C2F5E-7F64-4D0B-9A55-0D9C7F1F2A10","Count":1}`, "spelling", `{"sub_path":"a","order_id":"5B0C2F5E-7F64-4D0B-9A55-0D9C7F1F2A10","count":1}`},
		// guesses
		{`"{\"sub_path\":\"a\"}"`, "?decode_text", `{"sub_path":"a"}`},
		{`{"sub_path":"a","box":"{\"inner_id\":1}"}`, "?decode_text", `{"sub_path":"a","box":{"inner_id":1}}`},
		{`{"sub_pat":"a"}`, "?rename", `{"sub_path":"a"}`},
		{`{"sub_path":"a","zzz":1}`, "?drop", `{"sub_path":"a"}`},
		{`{"sub_path":"a","note":null}`, "?drop_null", `{"sub_path":"a"}`},
		{`{"sub_path":"a","state":"Open"}`, "?nearest_value", `{"sub_path":"a","state":"open"}`},
		{`{"sub_path":"a","state":"closd"}`, "?nearest_value", `{"sub_path":"a","state":"closed"}`},
		{`{"sub_path":"a","level":"2"}`, "?nearest_value", `{"sub_path":"a","level":2}`},
		{`{"sub_path":"a","price":"12.50"}`, "?number_string", `{"sub_path":"a","price":12.50}`},
		{`{"sub_path":7}`, "?string_number", `{"sub_path":"7"}`},
		{`{"sub_path":"a","urgent":"yes"}`, "?truth_word", `{"sub_path":"a","urgent":true}`},
		{`{"sub_path":"a","urgent":0}`, "?truth_word", `{"sub_path":"a","urgent":false}`},
		{`{"sub_path":"a","urgent":"None"}`, "?null_word", `{"sub_path":"a","urgent":null}`},
		{`{"sub_path":"a","tags":"x"}`, "?wrap_array", `{"sub_path":"a","tags":["x"]}`},
		{`{"sub_path":["a"]}`, "?unwrap_array", `{"sub_path":"a"}`},
		{`{"sub_path":"a","order_id":"urn:uuid:5b0c2f5e-7f64-4d0b-9a55-0d9c7f1f2a10"}`, "?uuid_form", `{"sub_path":"a","order_id":"5b0c2f5e-7f64-4d0b-9a55-0d9c7f1f2a10"}`},
		{`{"sub_path":"a","order_id":"{5b0c2f5e7f644d0b9a550d9c7f1f2a10}"}`, "?uuid_form", `{"sub_path":"a","order_id":"5b0c2f5e-7f64-4d0b-9a55-0d9c7f1f2a10"}`},
		{`{"sub_path":"a","day":"2026/11/30"}`, "?date_form", `{"sub_path":"a","day":"2026-11-30"}`},
		{`{"sub_path":"a","note":" abcd  "}`, "?trim", `{"sub_path":"a","note":"abcd"}`},
		{`{"sub_path":"a","zz":1,"qq":2}`, "?drop drop", `{"sub_path":"a"}`},
		{`{"zzzz":1,"path":"a"}`, "?alias drop", `{"sub_path":"a"}`},
		// none: nothing is invented, ties are refused, and half a repair is none
		{`{}`, "", ""},
		{`{"path":"a","file":"b"}`, "", ""},
		{`{"sub_path":"a","order_id":"nonsense"}`, "", ""},
		{`{"sub_path":"a","note":"much too long","count":"12"}`, "", ""},
		{`{"sub_path":"a","count":"012"}`, "", ""},
		{`{"sub_path":"a","pin":"12"}`, "", ""},
		{"Here it is:\n```json\n{\"sub_path\":\"a\"}\n```", "", ""},
		{`{"sub_path":"a","sub_path":"b"}`, "", ""},
		{`{"sub_path":"a"`, "", ""},
		{`{"sub_path":"a",,}`, "", ""},
	} {
		v, mended := c.Report([]byte(x.payload))
		if v == nil {
			t.Errorf("%s is valid", x.payload)
			continue
		}
		checkReport(t, []byte(x.payload), v)
		checkProposals(t, c, []byte(x.payload), v, mended)
		steps, lossless := strings.CutPrefix(x.steps, "?")
		lossless = !lossless
		if x.steps == "" {
			if len(v.Proposals) > 0 {
				t.Errorf("%s: %s", x.payload, encode(t, v.Proposals))
			}
			continue
		}
		if len(v.Proposals) == 0 {
			t.Errorf("%s: no proposal, want %s", x.payload, x.steps)
			continue
		}
		p := &v.Proposals[0]
		var got []string
		for _, s := range p.Steps {
			got = append(got, string(s.Step))
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(strings.Fields(steps)))) || p.Lossless != lossless {
			t.Errorf("%s: steps %v (lossless: %v), want %s", x.payload, got, p.Lossless, x.steps)
		}
		if doc := applyProposal(t, []byte(x.payload), p); !reflect.DeepEqual(doc, decode(t, []byte(x.want))) {
			t.Errorf("%s: %s, want %s", x.payload, encode(t, doc), x.want)
		}
		if again, twice := c.Report([]byte(x.payload)); !reflect.DeepEqual(again, v) || string(twice) != string(mended) {
			t.Errorf("%s: two reports differ", x.payload)
		}
	}
}

func TestRepairModes(t *testing.T) {
	for mode, want := range map[string][2]bool{`"off"`: {false, false}, `"propose"`: {true, false}, `"apply-lossless"`: {true, true}} {
		c := compileOK(t, strings.Replace(repairSchema, `"apply-lossless"`, mode, 1))
		v, mended := c.Report([]byte(`{"subPath":"a"}`))
		if got := [2]bool{len(v.Proposals) > 0, mended != nil}; got != want {
			t.Errorf("%s: proposed and applied: %v, want %v", mode, got, want)
		}
	}
	// Without a word about it, proposals are made and not applied.
	c := compileOK(t, strings.Replace(repairSchema, `"x-headgate-repair":"apply-lossless",`, "", 1))
	if v, mended := c.Report([]byte(`{"subPath":"a"}`)); len(v.Proposals) != 1 || mended != nil {
		t.Errorf("%+v %s", v, mended)
	}
	if v, mended := c.Report([]byte(`{"sub_path":"a"}`)); v != nil || mended != nil {
		t.Errorf("%+v %s", v, mended)
	}
}

// damage spoils a valid payload as models and serializers do.
func damage(rng *rand.Rand, root any) any {
	var objects []map[string]any
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			objects = append(objects, v)
			for _, k := range sortedKeys(v) {
				walk(v[k])
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(root)
	if len(objects) == 0 {
		return root
	}
	obj := objects[rng.IntN(len(objects))]
	keys := sortedKeys(obj)
	if len(keys) == 0 {
		obj["note to self"] = "x"
		return root
	}
	k := keys[rng.IntN(len(keys))]
	v := obj[k]
	rename := func(to string) {
		if _, taken := obj[to]; !taken {
			delete(obj, k)
			obj[to] = v
		}
	}
	switch rng.IntN(14) {
	case 0:
		rename(strings.ToUpper(k))
	case 1:
		rename(strings.ReplaceAll(k, "_", ""))
	case 2:
		rename(strings.ReplaceAll(k, "_", "-"))
	case 3:
		if len(k) > 3 {
			rename(k[:len(k)-2] + k[len(k)-1:] + k[len(k)-2:len(k)-1])
		}
	case 4:
		rename(k + "s")
	case 5:
		obj["reasoning"] = "because"
	case 6:
		obj[k] = nil
	case 7:
		obj[k] = []any{v}
	case 8:
		delete(obj, k)
	case 9:
		return map[string]any{"data": root}
	default:
		switch s := v.(type) {
		case json.Number:
			obj[k] = s.String()
		case bool:
			obj[k] = map[bool]string{true: "yes", false: "False"}[s]
		case string:
			switch {
			case len(s) > 10 && s[10] == 'T' && rng.IntN(3) > 0:
				obj[k] = s[:10] + " " + s[11:]
			case len(s) == 36 && rng.IntN(2) == 0:
				obj[k] = "{" + s + "}"
			case rng.IntN(2) == 0:
				obj[k] = " " + strings.ToUpper(s)
			case isNumberText(s):
				obj[k] = json.Number(s)
			}
		case []any:
			if len(s) == 1 {
				obj[k] = s[0]
			}
		case map[string]any:
			text, err := json.Marshal(s)
			if err == nil && rng.IntN(2) == 0 {
				obj[k] = string(text)
			}
		}
	}
	return root
}

// damageText spoils the text of a payload.
func damageText(rng *rand.Rand, text []byte) []byte {
	switch rng.IntN(8) {
	case 0:
		return append([]byte("\xef\xbb\xbf"), text...)
	case 1:
		return fmt.Appendf(nil, "```json\n%s\n```\n", text)
	case 2:
		s := strings.TrimSuffix(string(text), "}")
		return []byte(s + ", }")
	case 3:
		quoted, err := json.Marshal(string(text))
		if err == nil {
			return quoted
		}
	}
	return text
}

// Whatever is proposed validates, and what is lossless keeps every value, for
// real and made-up payloads that are spoilt as models spoil them. Policies that
// close objects and contracts that apply repairs are among them.
func TestProposalsAlwaysValidate(t *testing.T) {
	rounds := 4
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		rounds = 60
	}
	if raceEnabled {
		rounds = 1
	}
	var refused, proposed, lossless, applied int
	run := func(c *Contract, payload []byte, rng *rand.Rand) {
		for range rounds {
			root := decode(t, payload)
			for range 1 + rng.IntN(3) {
				root = damage(rng, root)
			}
			text := damageText(rng, encode(t, root))
			v, mended := c.Report(text)
			if v == nil {
				continue
			}
			refused++
			checkProposals(t, c, text, v, mended)
			if len(v.Proposals) > 0 {
				proposed++
				if v.Proposals[0].Lossless {
					lossless++
				}
			}
			if mended != nil {
				applied++
			}
		}
	}
	rng := rand.New(rand.NewPCG(7, 9))
	for _, s := range sampleSchemas(t) {
		var doc map[string]any
		if json.Unmarshal(s.Schema, &doc) != nil {
			continue
		}
		doc[keyRepair] = string(RepairLossless)
		schema := encode(t, doc)
		for _, closed := range []bool{false, true} {
			c, _, err := Compile(s.Name, 1, schema, &CompileOpts{Policy: Policy{CloseObjects: closed}})
			if err != nil {
				t.Fatalf("%s: %v", s.Name, err)
			}
			for _, p := range s.Payloads {
				run(c, p, rng)
			}
		}
	}
	document, deliveries := webhooks(t)
	src, err := readSource(document)
	if err != nil {
		t.Fatal(err)
	}
	defs := definitionsOf(t, document)
	for i, w := range deliveries {
		if i%8 != 0 && rounds < 50 {
			continue
		}
		bundle, err := src.bundle(w.pointer(defs))
		if err != nil {
			t.Fatal(err)
		}
		run(compileOK(t, string(bundle)), w.Payload, rng)
	}
	t.Logf("%d refused, %d with proposals, %d of them lossless, %d mended", refused, proposed, lossless, applied)
	if !raceEnabled && (refused < 500 || proposed < refused/10 || lossless < 50 || applied < 50) {
		t.Errorf("%d refused, %d with proposals, %d lossless, %d mended say little", refused, proposed, lossless, applied)
	}
}

// A report with proposals takes bounded work on hostile payloads too.
func TestRepairIsBounded(t *testing.T) {
	c := compileOK(t, repairSchema)
	many := `{"sub_path":"a"`
	for i := range 3000 {
		many += fmt.Sprintf(`,"p%d":"x"`, i)
	}
	for _, payload := range []string{
		many + "}", strings.Repeat("[", 60) + strings.Repeat("]", 60), `{"a":` + strings.Repeat(`{"a":`, 50) + "1" + strings.Repeat("}", 51),
		strings.Repeat(",}", 30000), "```" + strings.Repeat("`", 50000), `"` + strings.Repeat(`\\\"`, 9000) + `"`,
		"{" + strings.Repeat(" ", maxRepairPayload) + "}",
	} {
		v, mended := c.Report([]byte(payload))
		if v == nil || len(v.Proposals) > 0 || mended != nil {
			t.Errorf("%.40s…: %+v", payload, v)
		}
		r := &repairer{}
		r.begin(c, []byte(payload), nil)
		for level := range levelDrops + 1 {
			r.mend([]byte(payload), level)
		}
		if limit := -len(payload)*repairWorkPerByte - 2*repairWorkBase; r.work < limit {
			t.Errorf("%.40s…: the work went %d beyond its bound", payload, -r.work)
		}
	}
}

// Nothing of a payload stands in a report unescaped, in proposals neither.
func TestProposalsEscape(t *testing.T) {
	c := compileOK(t, `{"type":"object","properties":{"tags":{"type":"array","items":{"type":"string"}}},"additionalProperties":false}`)
	v, _ := c.Report([]byte("{\"tags\":\"a\u202eb\u0085\"}"))
	if len(v.Proposals) != 1 {
		t.Fatalf("%+v", v)
	}
	if text := string(encode(t, v.Proposals)); strings.ContainsAny(text, "\u202e\u0085") {
		t.Errorf("%q", text)
	}
	checkProposals(t, c, []byte("{\"tags\":\"a\u202eb\u0085\"}"), v, nil)
}

// undo gives the document that lossless steps were taken on, from what they made
// of it and the proposal alone.
func undo(t testing.TB, doc any, p *headgate.Proposal) any {
	t.Helper()
	steps := slices.DeleteFunc(slices.Clone(p.Steps), func(s headgate.ProposedStep) bool {
		return s.Step == headgate.StepStripBOM || s.Step == headgate.StepStripFence || s.Step == headgate.StepTrailingComma
	})
	if len(steps) != len(p.Patch) || p.Decode {
		t.Fatalf("%d steps, %d operations: %s", len(steps), len(p.Patch), encode(t, p))
	}
	for i, op := range slices.Backward(p.Patch) {
		now, _ := lookupPointer(doc, op.Path)
		switch s, _ := now.(string); steps[i].Step {
		case headgate.StepAlias, headgate.StepSpelling:
			doc = applyOp(t, doc, headgate.PatchOp{Op: "move", From: op.Path, Path: op.From})
		case headgate.StepIntegerString:
			doc = applyOp(t, doc, headgate.PatchOp{Op: "replace", Path: op.Path, Value: encode(t, fmt.Sprint(now))})
		case headgate.StepTimeSeparator:
			doc = applyOp(t, doc, headgate.PatchOp{Op: "replace", Path: op.Path, Value: encode(t, s[:10]+" "+s[11:])})
		default:
			t.Fatalf("%s is no lossless step", steps[i].Step)
		}
	}
	return doc
}

// cutsSayNothing reports whether what a lossless proposal cuts is known without
// the original: commas, a byte order mark, white space, a fence for JSON.
func cutsSayNothing(payload []byte, cuts []headgate.TextCut) bool {
	known := regexp.MustCompile("^(,|(\xef\xbb\xbf)?\\s*(```)?(?i:json[c5]?)?\\s*(```)?\\s*)$")
	for _, c := range cuts {
		if !known.Match(payload[c.Offset : c.Offset+c.Length]) {
			return false
		}
	}
	return true
}

// Nothing is unwrapped by itself, nor at all where the name may be meant.
func TestUnwrapIsAGuess(t *testing.T) {
	const op = `"properties":{"op":{"type":"string"},"undo":{"type":"object","x-headgate-aliases":["revert"]}},"required":["op"]`
	for _, x := range []struct {
		schema, payload string
		proposed        bool
	}{
		{`{"type":"object",` + op + `}`, `{"undo":{"op":"delete"}}`, false},
		{`{"type":"object",` + op + `}`, `{"revert":{"op":"delete"}}`, false},
		{`{"type":"object","patternProperties":{"^un":{}},` + op + `}`, `{"unmake":{"op":"delete"}}`, false},
		{`{"type":"object","additionalProperties":{"type":"object"},` + op + `}`, `{"cancel":{"op":"delete"}}`, false},
		{`{"type":"object","anyOf":[{"properties":{"cancel":{}}}],` + op + `}`, `{"cancel":{"op":"delete"}}`, false},
		{`{"type":"object",` + op + `}`, `{"do_not":{"op":"delete"}}`, true},
		{`{` + op + `,"not":{"maxProperties":0},"anyOf":[{"type":"object"},{"type":"string"}]}`, `{"do_not":{"op":"delete"}}`, false},
		{`{"type":"string"}`, `{"a":"abc"}`, false},
		{`{"not":{"required":["a"]}}`, `{"a":"abc"}`, false},
		{`{"not":{"required":["a"]}}`, `{"a":{}}`, false},
	} {
		c := compileOK(t, `{"x-headgate-repair":"apply-lossless",`+x.schema[1:])
		v, mended := c.Report([]byte(x.payload))
		if v == nil || mended != nil {
			t.Errorf("%s for %s: %v, mended to %s", x.payload, x.schema, v, mended)
			continue
		}
		proposed := false
		for i := range v.Proposals {
			for _, s := range v.Proposals[i].Steps {
				proposed = proposed || s.Step == headgate.StepUnwrap
			}
			if v.Proposals[i].Lossless || v.Proposals[i].Confidence > 0.5 {
				t.Errorf("%s for %s: %s", x.payload, x.schema, encode(t, v.Proposals[i]))
			}
		}
		if proposed != x.proposed {
			t.Errorf("%s for %s: unwrapped: %v, want %v", x.payload, x.schema, proposed, x.proposed)
		}
	}
}

// What looks like an idle slip and may say something is left alone.
func TestLosslessKeepsMeaning(t *testing.T) {
	c := compileOK(t, `{"x-headgate-repair":"apply-lossless","type":"object","properties":{"x_id":{"type":"integer"},"l":{"type":"array"}},
		"patternProperties":{"^X":{"type":"integer"}},"required":["x_id"]}`)
	for _, payload := range []string{
		`{"XID":1}`,                                         // is what it is
		"```do-not-apply\n{\"x_id\":1}\n```",                // the word would be lost
		`{"x_id":1,"l":[,]}`, `{,}`, `{"x_id":1,"l":[1,,]}`, // may stand for something
	} {
		if v, mended := c.Report([]byte(payload)); v == nil || mended != nil {
			t.Errorf("%s: %v, mended to %s", payload, v, mended)
		}
	}
}
