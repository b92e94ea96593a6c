package confluent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/principal"
	"github.com/headgate/headgate/registry/confluent"
)

// start runs a node with the face.
func start(t *testing.T) *nodetest.Node {
	t.Helper()
	var dir *principal.Directory
	n := nodetest.Start(t, &nodetest.Opts{Gateway: func(c *gateway.Config) { dir = c.Principals }})
	if err := confluent.Mount(n.Gateway, confluent.Config{Registry: n.Registry, Principals: dir, Version: "test"}); err != nil {
		t.Fatal(err)
	}
	return n
}

type reply struct {
	status int
	body   string
	header http.Header
}

// do calls as a principal; "" as none.
func do(t testing.TB, n *nodetest.Node, who, method, path, body string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.URL+"/registry"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if who != "" {
		req.SetBasicAuth("any", n.Tokens[who])
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, strings.TrimSpace(string(b)), res.Header}
}

// submit wraps a schema as clients do.
// The latest version is found by what its metadata says.
func TestMetadata(t *testing.T) {
	t.Parallel()
	n := start(t)
	meta := func(owner, stage string) string {
		return `,"metadata":{"properties":{"owner":"` + owner + `","stage":"` + stage + `"}}`
	}
	version := func(version, id int, owner, stage string) string {
		return fmt.Sprintf(`{"subject":"m-value","version":%d,"id":%d,"metadata":{"properties":{"owner":%q,"stage":%q}},"schema":%s}`,
			version, id, owner, stage, quoted(avroA))
	}
	run(t, n, []step{
		{"first", "POST", "/subjects/m-value/versions", submit("", avroA, meta("a", "test")), 200, `{"id":3}`},
		{"second", "POST", "/subjects/m-value/versions", submit("", avroA, meta("a", "live")), 200, `{"id":4}`},
		{"third", "POST", "/subjects/m-value/versions", submit("", avroA, meta("b", "live")), 200, `{"id":5}`},
		{"plain", "POST", "/subjects/p-value/versions", submit("", avroA, ""), 200, `{"id":6}`},
		{"one property", "GET", "/subjects/m-value/metadata?key=owner&value=a", "", 200, version(2, 4, "a", "live")},
		{"two properties", "GET", "/subjects/m-value/metadata?key=owner&value=a&key=stage&value=test", "", 200, version(1, 3, "a", "test")},
		{"none", "GET", "/subjects/m-value/metadata", "", 200, version(3, 5, "b", "live")},
		{"no match", "GET", "/subjects/m-value/metadata?key=owner&value=c", "", 404, "code 40403"},
		{"no metadata", "GET", "/subjects/p-value/metadata?key=owner&value=a", "", 404, "code 40403"},
		{"no subject", "GET", "/subjects/x-value/metadata?key=owner&value=a", "", 404, "code 40401"},
		{"deleted", "DELETE", "/subjects/m-value/versions/2", "", 200, "2"},
		{"not the deleted", "GET", "/subjects/m-value/metadata?key=owner&value=a", "", 200, version(1, 3, "a", "test")},
		{"with the deleted", "GET", "/subjects/m-value/metadata?key=owner&value=a&deleted=true", "", 200, version(2, 4, "a", "live")},
	})
}

func submit(kind, schema, more string) string {
	text, _ := json.Marshal(schema)
	out := `{"schema":` + string(text)
	if kind != "" {
		out += `,"schemaType":"` + kind + `"`
	}
	return out + more + "}"
}

const (
	avroA = `{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`
	avroB = `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"string","default":""}]}`
	avroC = `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"c","type":"string"}]}`
	jsonA = `{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}`
)

// step is one call and its answer: the body whole, or, for errors, the code.
type step struct {
	name, method, path, body string
	status                   int
	want                     string // "code N" of an error
}

var guidMember = regexp.MustCompile(`"guid":"[-0-9a-f]{36}",`)

func run(t *testing.T, n *nodetest.Node, steps []step) {
	t.Helper()
	for _, s := range steps {
		r := do(t, n, "admin", s.method, s.path, s.body)
		if r.status != s.status {
			t.Errorf("%s: %s %s: status %d, want %d: %s", s.name, s.method, s.path, r.status, s.status, r.body)
			continue
		}
		if code, ok := strings.CutPrefix(s.want, "code "); ok {
			var members map[string]any
			if err := json.Unmarshal([]byte(r.body), &members); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
			if fmt.Sprint(members["error_code"]) != code || len(members) != 2 || members["message"] == "" {
				t.Errorf("%s: %s %s: %s, want code %s and a message, nothing else", s.name, s.method, s.path, r.body, code)
			}
			continue
		}
		// GUIDs have a test of their own.
		if r.body = guidMember.ReplaceAllString(r.body, ""); r.body != s.want {
			t.Errorf("%s: %s %s: %s\nwant %s", s.name, s.method, s.path, r.body, s.want)
		}
	}
}

func quoted(s string) string { b, _ := json.Marshal(s); return string(b) }

func TestRegistration(t *testing.T) {
	n := start(t)
	spaced := strings.ReplaceAll(avroA, ",", " , ")
	first := do(t, n, "admin", "POST", "/subjects/s-value/versions", submit("", avroA, ""))
	if first.status != 200 {
		t.Fatal(first)
	}
	var got struct{ ID int }
	if err := json.Unmarshal([]byte(first.body), &got); err != nil {
		t.Fatal(err)
	}
	id := got.ID
	run(t, n, []step{
		{"root", "GET", "", "", 200, "{}"},
		{"root with a slash", "GET", "/", "", 200, "{}"},
		{"types", "GET", "/schemas/types", "", 200, `["JSON","AVRO"]`},
		{"the same again", "POST", "/subjects/s-value/versions", submit("AVRO", avroA, ""), 200, fmt.Sprintf(`{"id":%d}`, id)},
		{"the same in another spelling", "POST", "/subjects/s-value/versions?normalize=true", submit("", spaced, ""), 200, fmt.Sprintf(`{"id":%d}`, id)},
		{"the same under another subject", "POST", "/subjects/other-value/versions", submit("", avroA, ""), 200, fmt.Sprintf(`{"id":%d}`, id)},
		{"empty and null members", "POST", "/subjects/s-value/versions", submit("", avroA, `,"references":[],"metadata":null,"ruleSet":null`), 200, fmt.Sprintf(`{"id":%d}`, id)},
		{"by id", "GET", fmt.Sprintf("/schemas/ids/%d", id), "", 200, `{"schema":` + quoted(avroA) + `}`},
		{"text by id", "GET", fmt.Sprintf("/schemas/ids/%d/schema", id), "", 200, avroA},
		{"subjects by id", "GET", fmt.Sprintf("/schemas/ids/%d/subjects", id), "", 200, `["other-value","s-value"]`},
		{"versions by id", "GET", fmt.Sprintf("/schemas/ids/%d/versions", id), "", 200, `[{"subject":"other-value","version":1},{"subject":"s-value","version":1}]`},
		{"second version", "POST", "/subjects/s-value/versions", submit("", avroB, ""), 200, fmt.Sprintf(`{"id":%d}`, id+1)},
		{"versions", "GET", "/subjects/s-value/versions", "", 200, "[1,2]"},
		{"latest", "GET", "/subjects/s-value/versions/latest", "", 200, fmt.Sprintf(`{"subject":"s-value","version":2,"id":%d,"schema":%s}`, id+1, quoted(avroB))},
		{"latest by -1", "GET", "/subjects/s-value/versions/-1/schema", "", 200, avroB},
		{"first", "GET", "/subjects/s-value/versions/1/schema", "", 200, avroA},
		{"look up", "POST", "/subjects/s-value", submit("", spaced, ""), 200, fmt.Sprintf(`{"subject":"s-value","version":1,"id":%d,"schema":%s}`, id, quoted(avroA))},
		{"JSON", "POST", "/subjects/j-value/versions", submit("JSON", jsonA, ""), 200, fmt.Sprintf(`{"id":%d}`, id+2)},
		{"JSON by id", "GET", fmt.Sprintf("/schemas/ids/%d", id+2), "", 200, `{"schemaType":"JSON","schema":` + quoted(jsonA) + `}`},
		{"subjects by prefix", "GET", "/subjects?subjectPrefix=s-", "", 200, `["s-value"]`},
		{"unknown id", "GET", "/schemas/ids/9999", "", 404, "code 40403"},
		{"unknown subject", "GET", "/subjects/nope/versions", "", 404, "code 40401"},
		{"unknown subject's version", "GET", "/subjects/nope/versions/1", "", 404, "code 40401"},
		{"unknown version", "GET", "/subjects/s-value/versions/7", "", 404, "code 40402"},
		{"version 0", "GET", "/subjects/s-value/versions/0", "", 422, "code 42202"},
		{"version in words", "GET", "/subjects/s-value/versions/newest", "", 422, "code 42202"},
		{"look up in an unknown subject", "POST", "/subjects/nope", submit("", avroA, ""), 404, "code 40401"},
		{"look up an unknown schema", "POST", "/subjects/other-value", submit("", avroB, ""), 404, "code 40403"},
		{"Protobuf", "POST", "/subjects/p/versions", submit("PROTOBUF", `"syntax"`, ""), 422, "code 42201"},
		{"no Avro", "POST", "/subjects/p/versions", submit("", `{"type":"nope"}`, ""), 422, "code 42201"},
		{"an Avro default of another type", "POST", "/subjects/p/versions", submit("", `{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}`, ""), 422, "code 42201"},
		{"no JSON", "POST", "/subjects/p/versions", submit("JSON", `{"type":`, ""), 422, "code 42201"},
		{"empty", "POST", "/subjects/p/versions", submit("", "", ""), 422, "code 42201"},
		{"not JSON at all", "POST", "/subjects/p/versions", "{", 400, "code 400"},
		{"an unknown member", "POST", "/subjects/p/versions", submit("", avroA, `,"shema":"x"`), 422, "code 422"},
		{"an id outside of an import", "POST", "/subjects/p/versions", submit("", avroA, `,"id":77`), 422, "code 42205"},
		{"incompatible, by the level of the subject", "PUT", "/config/s-value", `{"compatibility":"BACKWARD"}`, 200, `{"compatibility":"BACKWARD"}`},
		{"incompatible", "POST", "/subjects/s-value/versions", submit("", avroC, ""), 409, "code 409"},
		{"no such path", "GET", "/associations/resources/-/topic", "", 404, "code 404"},
		{"no such DEK registry", "POST", "/dek-registry/v1/keks", "{}", 404, "code 404"},
		{"no such method", "PUT", "/subjects", "{}", 405, "code 405"},
		{"no method of the face", "PATCH", "/subjects", "{}", 405, "code 405"},
		{"a subject that reads from the right", "GET", "/subjects/a%E2%80%AEb/versions", "", 422, "code 42208"},
	})
	if r := do(t, n, "admin", "POST", "/subjects/s-value/versions", submit("", avroC, "")); !strings.Contains(r.body, "avro_resolution") {
		t.Errorf("no reason: %s", r.body)
	}
}

// A JSON schema registered here is the contract of its type, and the other
// way round.
func TestContractsAreSubjects(t *testing.T) {
	n := start(t)
	r := do(t, n, "admin", "GET", "/subjects/ticket.opened/versions/latest", "")
	var e struct {
		ID, Version int
		SchemaType  string
		Schema      string
	}
	if err := json.Unmarshal([]byte(r.body), &e); err != nil || e.Version != 1 || e.SchemaType != "JSON" || e.Schema != nodetest.TicketSchema || e.ID < 1 {
		t.Fatalf("%v: %s", err, r.body)
	}
	run(t, n, []step{{"register", "POST", "/subjects/order.placed/versions", submit("JSON", jsonA, ""), 200, `{"id":3}`}})
	c := n.Registry.Lookup("order.placed")
	if c == nil || c.Check([]byte(`{"a":1}`)) != nil || c.Check([]byte(`{"a":"x"}`)) == nil {
		t.Fatalf("no contract, or another one: %v", c)
	}
	run(t, n, []step{
		{"delete", "DELETE", "/subjects/order.placed", "", 200, "[1]"},
		{"delete for good", "DELETE", "/subjects/order.placed?permanent=true", "", 200, "[1]"},
		{"a verdict's version is not given again", "POST", "/subjects/order.placed/versions", submit("JSON", jsonA, ""), 200, `{"id":4}`},
		{"versions go on", "GET", "/subjects/order.placed/versions", "", 200, "[2]"},
	})
	if c := n.Registry.Lookup("order.placed"); c == nil || c.Ref().Version != 2 {
		t.Errorf("in use: %v", c)
	}
}

func TestDeletion(t *testing.T) {
	n := start(t)
	run(t, n, []step{
		{"v1", "POST", "/subjects/d~value/versions", submit("", avroA, ""), 200, `{"id":3}`},
		{"v2", "POST", "/subjects/d~value/versions", submit("", avroB, ""), 200, `{"id":4}`},
		{"for good before softly", "DELETE", "/subjects/d~value/versions/1?permanent=true", "", 404, "code 40407"},
		{"softly", "DELETE", "/subjects/d~value/versions/1", "", 200, "1"},
		{"softly again", "DELETE", "/subjects/d~value/versions/1", "", 404, "code 40406"},
		{"gone", "GET", "/subjects/d~value/versions/1", "", 404, "code 40402"},
		{"still there", "GET", "/subjects/d~value/versions/1/schema?deleted=true", "", 200, avroA},
		{"what is live", "GET", "/subjects/d~value/versions", "", 200, "[2]"},
		{"with deleted", "GET", "/subjects/d~value/versions?deleted=true", "", 200, "[1,2]"},
		{"deleted alone", "GET", "/subjects/d~value/versions?deletedOnly=true", "", 200, "[1]"},
		{"a deleted one is registered again", "POST", "/subjects/d~value/versions", submit("", avroA, ""), 200, `{"id":3}`},
		{"as a new version", "GET", "/subjects/d~value/versions", "", 200, "[2,3]"},
		{"an unknown version", "DELETE", "/subjects/d~value/versions/9", "", 404, "code 40402"},
		{"an unknown subject", "DELETE", "/subjects/nope", "", 404, "code 40401"},
		{"subject for good before softly", "DELETE", "/subjects/d~value?permanent=true", "", 404, "code 40405"},
		{"subject", "DELETE", "/subjects/d~value", "", 200, "[2,3]"},
		{"subject again", "DELETE", "/subjects/d~value", "", 404, "code 40404"},
		{"hidden", "GET", "/subjects?subjectPrefix=d~", "", 200, "[]"},
		{"seen", "GET", "/subjects?subjectPrefix=d~&deleted=true", "", 200, `["d~value"]`},
		{"its id stays", "GET", "/schemas/ids/3/schema", "", 200, avroA},
		{"subject for good", "DELETE", "/subjects/d~value?permanent=true", "", 200, "[1,2,3]"},
		{"its id goes", "GET", "/schemas/ids/3", "", 404, "code 40403"},
		{"nothing is left", "GET", "/subjects/d~value/versions?deleted=true", "", 404, "code 40401"},
		{"ids are not given again", "POST", "/subjects/d~value/versions", submit("", avroA, ""), 200, `{"id":5}`},
		{"versions are, without contracts", "GET", "/subjects/d~value/versions", "", 200, "[1]"},
		{"latest", "DELETE", "/subjects/d~value/versions/latest", "", 200, "1"},
	})
}

func TestReferences(t *testing.T) {
	n := start(t)
	outer := `{"type":"record","name":"Outer","fields":[{"name":"r","type":"R"}]}`
	ref := `,"references":[{"name":"R","subject":"r-value","version":1}]`
	address := `{"type":"object","properties":{"zip":{"type":"string","minLength":3}},"required":["zip"]}`
	person := `{"type":"object","properties":{"home":{"$ref":"address.json"}}}`
	jref := `,"references":[{"name":"address.json","subject":"address","version":1}]`
	run(t, n, []step{
		{"unknown reference", "POST", "/subjects/o-value/versions", submit("", outer, ref), 422, "code 42201"},
		{"inner", "POST", "/subjects/r-value/versions", submit("", avroA, ""), 200, `{"id":3}`},
		{"without it", "POST", "/subjects/o-value/versions", submit("", outer, ""), 422, "code 42201"},
		{"outer", "POST", "/subjects/o-value/versions", submit("", outer, ref), 200, `{"id":4}`},
		{"outer by id", "GET", "/schemas/ids/4", "", 200, `{"references":[{"name":"R","subject":"r-value","version":1}],"schema":` + quoted(outer) + `}`},
		{"referenced by", "GET", "/subjects/r-value/versions/1/referencedby", "", 200, "[4]"},
		{"in use", "DELETE", "/subjects/r-value/versions/1", "", 422, "code 42206"},
		{"in use as a whole", "DELETE", "/subjects/r-value", "", 422, "code 42206"},
		{"outer goes", "DELETE", "/subjects/o-value", "", 200, "[1]"},
		{"inner goes", "DELETE", "/subjects/r-value", "", 200, "[1]"},
		{"inner stays for good", "DELETE", "/subjects/r-value?permanent=true", "", 422, "code 42206"},
		{"JSON without", "POST", "/subjects/person/versions", submit("JSON", person, ""), 422, "code 42201"},
		{"address", "POST", "/subjects/address/versions", submit("JSON", address, ""), 200, `{"id":5}`},
		{"person", "POST", "/subjects/person/versions", submit("JSON", person, jref), 200, `{"id":6}`},
		{"person's text", "GET", "/subjects/person/versions/1/schema", "", 200, person},
		{"compatible across the reference", "POST", "/compatibility/subjects/person/versions/latest", submit("JSON", person, jref), 200, `{"is_compatible":true}`},
	})
	c := n.Registry.Lookup("person")
	if c == nil || c.Check([]byte(`{"home":{"zip":"123"}}`)) != nil || c.Check([]byte(`{"home":{"zip":"1"}}`)) == nil {
		t.Errorf("the contract does not hold across the reference: %v", c)
	}
}

func TestConfigAndCompatibility(t *testing.T) {
	n := start(t)
	run(t, n, []step{
		{"v1", "POST", "/subjects/c-value/versions", submit("", avroA, ""), 200, `{"id":3}`},
		{"the registry's own", "GET", "/config", "", 200, `{"compatibilityLevel":"NONE"}`},
		{"set", "PUT", "/config", `{"compatibility":"FULL"}`, 200, `{"compatibility":"FULL"}`},
		{"get", "GET", "/config", "", 200, `{"compatibilityLevel":"FULL"}`},
		{"none of the subject", "GET", "/config/c-value", "", 404, "code 40408"},
		{"what holds for the subject", "GET", "/config/c-value?defaultToGlobal=true", "", 200, `{"compatibilityLevel":"FULL"}`},
		{"an unknown subject's", "PUT", "/config/new-value", `{"compatibility":"none"}`, 200, `{"compatibility":"NONE"}`},
		{"is kept", "GET", "/config/new-value", "", 200, `{"compatibilityLevel":"NONE"}`},
		{"an unknown level", "PUT", "/config", `{"compatibility":"SIDEWAYS"}`, 422, "code 42203"},
		{"no level", "PUT", "/config", `{}`, 422, "code 42203"},
		{"what is not enforced", "PUT", "/config", `{"compatibility":"FULL","validateFields":true}`, 422, "code 42205"},
		{"what says nothing", "PUT", "/config", `{"compatibility":"FULL","alias":null,"defaultRuleSet":null}`, 200, `{"compatibility":"FULL"}`},
		{"a policy", "PUT", "/config/new-value", `{"compatibility":"FULL","compatibilityPolicy":"STRICT","normalize":true}`, 200, `{"compatibility":"FULL","compatibilityPolicy":"STRICT","normalize":true}`},
		{"compatible", "POST", "/compatibility/subjects/c-value/versions/latest", submit("", avroB, ""), 200, `{"is_compatible":true}`},
		{"compatible with a version", "POST", "/compatibility/subjects/c-value/versions/1?verbose=true", submit("", avroB, ""), 200, `{"is_compatible":true,"messages":[]}`},
		{"incompatible", "POST", "/compatibility/subjects/c-value/versions", submit("", avroC, ""), 200, `{"is_compatible":false}`},
		{"latest of an unknown subject", "POST", "/compatibility/subjects/nope/versions/latest", submit("", avroC, ""), 200, `{"is_compatible":true}`},
		{"a version of an unknown subject", "POST", "/compatibility/subjects/nope/versions/1", submit("", avroC, ""), 404, "code 40401"},
		{"an unknown version", "POST", "/compatibility/subjects/c-value/versions/9", submit("", avroC, ""), 404, "code 40402"},
		{"not a schema", "POST", "/compatibility/subjects/c-value/versions/latest", submit("", `{"type":"nope"}`, ""), 422, "code 42201"},
		{"a change of type", "POST", "/subjects/c-value/versions", submit("JSON", jsonA, ""), 409, "code 409"},
		{"delete", "DELETE", "/config/new-value", "", 200, `{"compatibilityLevel":"FULL"}`},
		{"delete again", "DELETE", "/config/new-value", "", 404, "code 40408"},
		{"delete the registry's", "DELETE", "/config", "", 200, `{"compatibilityLevel":"NONE"}`},
	})
	r := do(t, n, "admin", "POST", "/compatibility/subjects/c-value/versions/1?verbose=true", submit("", avroC, ""))
	if r.body != `{"is_compatible":true,"messages":[]}` { // NONE by now
		t.Error(r.body)
	}
	do(t, n, "admin", "PUT", "/config/c-value", `{"compatibility":"BACKWARD"}`)
	r = do(t, n, "admin", "POST", "/compatibility/subjects/c-value/versions/1?verbose=true", submit("", avroC, ""))
	if !strings.Contains(r.body, "avro_resolution") {
		t.Error(r.body)
	}
}

func TestModes(t *testing.T) {
	n := start(t)
	run(t, n, []step{
		{"default", "GET", "/mode", "", 200, `{"mode":"READWRITE"}`},
		{"none of the subject", "GET", "/mode/m-value", "", 404, "code 40409"},
		{"read-only", "PUT", "/mode/m-value", `{"mode":"READONLY"}`, 200, `{"mode":"READONLY"}`},
		{"refused", "POST", "/subjects/m-value/versions", submit("", avroA, ""), 422, "code 42205"},
		{"delete", "DELETE", "/mode/m-value", "", 200, `{"mode":"READONLY"}`},
		{"allowed", "POST", "/subjects/m-value/versions", submit("", avroA, ""), 200, `{"id":3}`},
		{"an import over what is there", "PUT", "/mode/m-value", `{"mode":"IMPORT"}`, 422, "code 42205"},
		{"forced", "PUT", "/mode/m-value?force=true", `{"mode":"IMPORT"}`, 200, `{"mode":"IMPORT"}`},
		{"import", "PUT", "/mode/i-value", `{"mode":"IMPORT"}`, 200, `{"mode":"IMPORT"}`},
		{"with an id and a version", "POST", "/subjects/i-value/versions", submit("", avroC, `,"id":100,"version":1`), 200, `{"id":100}`},
		{"an id that is taken", "POST", "/subjects/i-value/versions", submit("", avroB, `,"id":100,"version":2`), 422, "code 42207"},
		{"a version that is taken", "POST", "/subjects/i-value/versions", submit("", avroB, `,"id":102,"version":1`), 422, "code 42207"},
		{"another id for a known schema", "POST", "/subjects/i-value/versions", submit("", avroA, `,"id":101,"version":2`), 422, "code 42207"},
		{"ids go on above", "POST", "/subjects/z-value/versions", submit("", avroB, ""), 200, `{"id":101}`},
		{"forwarding does not exist", "PUT", "/mode", `{"mode":"FORWARD"}`, 422, "code 42204"},
		{"nonsense", "PUT", "/mode", `{"mode":"X"}`, 422, "code 42204"},
		{"override", "PUT", "/mode", `{"mode":"READONLY_OVERRIDE"}`, 200, `{"mode":"READONLY_OVERRIDE"}`},
		{"holds everywhere", "POST", "/subjects/i-value/versions", submit("", avroB, ""), 422, "code 42205"},
		{"holds for deletion", "DELETE", "/subjects/z-value", "", 422, "code 42205"},
		{"back", "PUT", "/mode", `{"mode":"READWRITE"}`, 200, `{"mode":"READWRITE"}`},
		{"works", "DELETE", "/subjects/z-value", "", 200, "[1]"},
	})
}

func TestContexts(t *testing.T) {
	n := start(t)
	run(t, n, []step{
		{"in a context", "POST", "/subjects/:.lab:x-value/versions", submit("", avroA, ""), 200, `{"id":1}`},
		{"in the default one", "POST", "/subjects/x-value/versions", submit("", avroB, ""), 200, `{"id":3}`},
		{"by a path", "POST", "/contexts/.lab/subjects/y-value/versions", submit("", avroB, ""), 200, `{"id":2}`},
		{"ids are apart", "GET", "/schemas/ids/1/schema?subject=:.lab:x-value", "", 200, avroA},
		{"ids by a path", "GET", "/contexts/.lab/schemas/ids/2/schema", "", 200, avroB},
		{"contexts", "GET", "/contexts", "", 200, `[".",".lab"]`},
		{"subjects of one", "GET", "/subjects?subjectPrefix=:.lab:", "", 200, `[":.lab:x-value",":.lab:y-value"]`},
		{"of all", "GET", "/subjects?subjectPrefix=:*:x-", "", 200, `[":.lab:x-value","x-value"]`},
		{"of the default one", "GET", "/subjects?subjectPrefix=x-", "", 200, `["x-value"]`},
		{"a level for a context", "PUT", "/config/:.lab:", `{"compatibility":"FULL"}`, 200, `{"compatibility":"FULL"}`},
		{"holds for its subjects", "GET", "/config/:.lab:x-value?defaultToGlobal=true", "", 200, `{"compatibilityLevel":"FULL"}`},
		{"and not for others", "GET", "/config/x-value?defaultToGlobal=true", "", 200, `{"compatibilityLevel":"NONE"}`},
		{"is in use", "DELETE", "/contexts/.lab", "", 422, "code 42211"},
		{"a name without an end", "GET", "/subjects/:.lab/versions", "", 422, "code 42208"},
		{"a slash in a name", "POST", "/subjects/a%2Fb/versions", submit("", avroA, ""), 200, `{"id":4}`},
		{"is kept", "GET", "/subjects/a%2Fb/versions", "", 200, "[1]"},
	})
}

func TestAccess(t *testing.T) {
	n := start(t)
	for _, c := range []struct {
		who, method, path, body string
		status                  int
	}{
		{"", "GET", "/subjects", "", 401},
		{"viewer", "GET", "/subjects", "", 200},
		{"desk", "GET", "/subjects", "", 200},
		{"triage", "GET", "/schemas/types", "", 200},
		{"desk", "POST", "/subjects/x/versions", submit("", avroA, ""), 403},
		{"viewer", "PUT", "/config", `{"compatibility":"NONE"}`, 403},
		{"triage", "DELETE", "/subjects/ticket.opened", "", 403},
		{"viewer", "PUT", "/mode", `{"mode":"READONLY"}`, 403},
	} {
		if r := do(t, n, c.who, c.method, c.path, c.body); r.status != c.status {
			t.Errorf("%s %s %s: %d, want %d: %s", c.who, c.method, c.path, r.status, c.status, r.body)
		}
	}
	if r := do(t, n, "", "GET", "/subjects", "", "Authorization", "Bearer "+n.Tokens["viewer"]); r.status != 200 {
		t.Errorf("bearer: %d", r.status)
	}
	for accept, want := range map[string]string{
		"":                     "application/vnd.schemaregistry.v1+json",
		"application/json":     "application/json",
		"text/html, */*;q=0.1": "application/vnd.schemaregistry.v1+json",
		"application/vnd.schemaregistry+json; qs=0.9, application/json": "application/vnd.schemaregistry+json",
	} {
		if r := do(t, n, "viewer", "GET", "/subjects", "", "Accept", accept); r.header.Get("Content-Type") != want {
			t.Errorf("Accept %q: %s", accept, r.header.Get("Content-Type"))
		}
	}
	if r := do(t, n, "admin", "POST", "/subjects/x/versions", submit("", avroA, ""), "Content-Type", "text/plain"); r.status != 415 {
		t.Errorf("text/plain: %d", r.status)
	}
	if r := do(t, n, "admin", "POST", "/subjects/x/versions", strings.Repeat(" ", 2<<20)); r.status != 413 {
		t.Errorf("a large body: %d %s", r.status, r.body)
	}
}

// Of registrations at the same time of one schema each gets the same id, and
// of different ones each its own, without a gap in the versions.
func TestConcurrentRegistration(t *testing.T) {
	n := start(t)
	const writers = 8
	ids := make([]string, 2*writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			ids[i] = do(t, n, "admin", "POST", "/subjects/same-value/versions", submit("", avroA, "")).body
		})
		wg.Go(func() {
			schema := fmt.Sprintf(`{"type":"record","name":"R","fields":[{"name":"f%d","type":"int"}]}`, i)
			ids[writers+i] = do(t, n, "admin", "POST", "/subjects/own-value/versions", submit("", schema, "")).body
		})
	}
	wg.Wait()
	own := map[string]bool{}
	for i := range writers {
		if ids[i] != ids[0] {
			t.Errorf("two ids of one schema: %s and %s", ids[0], ids[i])
		}
		own[ids[writers+i]] = true
	}
	if len(own) != writers || own[ids[0]] {
		t.Errorf("ids: %v", ids)
	}
	run(t, n, []step{
		{"one version", "GET", "/subjects/same-value/versions", "", 200, "[1]"},
		{"as many as there were", "GET", "/subjects/own-value/versions", "", 200, "[1,2,3,4,5,6,7,8]"},
	})
}

// Whatever is asked, the answer is JSON with a code and a message, or an
// answer of the gateway, and never a fault of the node.
func TestHostilePaths(t *testing.T) {
	n := start(t)
	for _, path := range []string{
		"//subjects", "/subjects/", "/subjects//versions", "/subjects/%00/versions", "/subjects/%FF/versions", "/subjects/..%2f..%2fx/versions",
		"/subjects/a/versions/99999999999999999999", "/subjects/a/versions/-2", "/subjects/a/versions/1e3", "/schemas/ids/-1", "/schemas/ids/x",
		"/schemas/ids/99999999999", "/schemas/guids/nope", "/contexts/a/b/c/d", "/contexts/:.:/subjects", "/subjects/:.x/versions", "/config/:*:",
		"/subjects?limit=-1&offset=-1", "/subjects?limit=x&deleted=maybe", "/subjects?subjectPrefix=%FF", "/mode/" + strings.Repeat("x", 4000),
		"/subjects/" + strings.Repeat("%E6%97%A5", 600) + "/versions",
	} {
		for _, method := range []string{"GET", "DELETE"} {
			r := do(t, n, "admin", method, path, "")
			if r.status >= 500 || r.body == "" {
				t.Errorf("%s %s: %d %s", method, path, r.status, r.body)
			}
			if r.status >= 400 && !strings.Contains(r.body, `"error_code"`) && !strings.Contains(r.header.Get("Content-Type"), "problem") {
				t.Errorf("%s %s: %d %s", method, path, r.status, r.body)
			}
		}
	}
	for _, body := range []string{
		"", "null", "[]", `"x"`, "{}", `{"schema":null}`, `{"schema":1}`, `{"schema":"{}","references":[{}]}`, `{"schema":"{}","references":{}}`,
		`{"schema":"{}","schema":"[]"}`, `{"schema":"{}","version":1e99}`, `{"schema":"\ud800"}`, "{\"schema\":\"\xff\"}",
		`{"schema":"` + strings.Repeat("[", 5000) + `","schemaType":"JSON"}`, `{"schema":"` + strings.Repeat("[", 5000) + `"}`,
		`{"schema":"\"string\"","references":[{"name":"x","subject":":.a","version":1}]}`, `{"schema":"{}","metadata":"x","schemaType":"JSON","ruleSet":7}`,
	} {
		for _, path := range []string{"/subjects/h/versions", "/subjects/ticket.opened", "/compatibility/subjects/ticket.opened/versions", "/compatibility/subjects/h/versions/latest"} {
			if r := do(t, n, "admin", "POST", path, body); r.status >= 500 || (r.status >= 400 && !strings.Contains(r.body, `"error_code"`)) {
				t.Errorf("POST %s %q: %d %s", path, body[:min(len(body), 60)], r.status, r.body)
			}
		}
		for _, path := range []string{"/config/h", "/mode/h"} {
			if r := do(t, n, "admin", "PUT", path, body); r.status < 400 || r.status >= 500 {
				t.Errorf("PUT %s %q: %d %s", path, body[:min(len(body), 60)], r.status, r.body)
			}
		}
	}
}

// Answers hold the GUID, by which newer clients write their headers; clients that
// say that they ignore what they do not know are told every type, and all of
// what they registered.
func TestNewerClients(t *testing.T) {
	n := start(t)
	const header = "Confluent-Accept-Unknown-Properties"
	ask := func(method, path, body string) map[string]any {
		t.Helper()
		r := do(t, n, "admin", method, path, body, header, "true")
		var members map[string]any
		if err := json.Unmarshal([]byte(r.body), &members); err != nil || r.status != http.StatusOK {
			t.Fatalf("%s %s: %d %s", method, path, r.status, r.body)
		}
		return members
	}
	rules := `,"ruleSet":{"domainRules":[{"name":"r","kind":"CONDITION","type":"CEL","mode":"WRITE","expr":"true"}]}`
	done := ask("POST", "/subjects/g-value/versions", submit("", avroA, rules))
	guid, _ := done["guid"].(string)
	if len(guid) != 36 || done["id"] != 1.0 && done["id"] != 3.0 || done["version"] != 1.0 || done["schemaType"] != "AVRO" || done["schema"] != avroA || done["ruleSet"] == nil {
		t.Errorf("registered: %v", done)
	}
	id := fmt.Sprint(done["id"])
	for _, path := range []string{"/subjects/g-value/versions/1", "/schemas/ids/" + id, "/schemas/guids/" + guid} {
		if m := ask("GET", path, ""); m["guid"] != guid || m["schemaType"] != "AVRO" {
			t.Errorf("%s: %v", path, m)
		}
	}
	for _, path := range []string{"/subjects/g-value/versions/latest", "/schemas/ids/" + id, "/schemas/guids/" + guid, "/schemas?subjectPrefix=g"} {
		if r := do(t, n, "admin", "GET", path, ""); !strings.Contains(r.body, `"guid":"`+guid+`"`) || strings.Contains(r.body, "schemaType") {
			t.Errorf("%s: %s", path, r.body)
		}
	}
	plain := quoted(avroA)
	rule := `"ruleSet":{"domainRules":[{"expr":"true","kind":"CONDITION","mode":"WRITE","name":"r","type":"CEL"}]},`
	whole := `{"subject":"g-value","version":1,"id":` + id + `,` + rule + `"schema":` + plain + `}`
	run(t, n, []step{
		{"again", "POST", "/subjects/g-value/versions", submit("", avroA, rules), 200, `{"id":` + id + `}`},
		{"by id", "GET", "/schemas/ids/" + id, "", 200, `{` + rule + `"schema":` + plain + `}`},
		{"with the highest id", "GET", "/schemas/ids/" + id + "?fetchMaxId=true", "", 200, `{` + rule + `"schema":` + plain + `,"maxId":` + id + `}`},
		{"by guid", "GET", "/schemas/guids/" + guid, "", 200, `{` + rule + `"schema":` + plain + `}`},
		{"without a rule", "POST", "/subjects/h-value/versions", submit("", avroA, ""), 200, `{"id":` + fmt.Sprint(done["id"].(float64)+1) + `}`},
		{"by a rule", "GET", "/schemas?ruleType=CEL", "", 200, `[` + whole + `]`},
		{"by a rule, behind it", "GET", "/schemas?ruleType=CEL&offset=1", "", 200, `[]`},
		{"by another rule", "GET", "/schemas?ruleType=JSONATA", "", 200, `[]`},
		{"in a context", "POST", "/subjects/:.lab:x/versions", submit("", avroA, ""), 200, `{"id":1}`},
		{"contexts by a prefix", "GET", "/contexts?contextPrefix=.l", "", 200, `[".lab"]`},
		{"modes of two subjects", "PUT", "/mode/g-value", `{"mode":"READONLY"}`, 200, `{"mode":"READONLY"}`},
		{"and of a context", "PUT", "/mode/:.lab:x", `{"mode":"READONLY"}`, 200, `{"mode":"READONLY"}`},
		{"end together", "DELETE", "/mode?recursive=true", "", 200, `{"mode":"READWRITE"}`},
		{"in one context", "GET", "/mode/g-value", "", 404, "code 40409"},
		{"alone", "GET", "/mode/:.lab:x", "", 200, `{"mode":"READONLY"}`},
		{"not there", "GET", "/exporters", "", 404, "code 404"},
		{"not there either", "GET", "/dek-registry/v1/keks", "", 404, "code 404"},
		{"nor tags", "POST", "/subjects/g-value/versions/1/tags", `{"tagsToAdd":[]}`, 404, "code 404"},
	})
}
