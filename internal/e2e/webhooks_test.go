package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/internal/outside"
	"github.com/headgate/headgate/internal/servertest"
)

// webhook is one real delivery and what an independent run of the schema
// library says of it.
type webhook struct {
	id, event, subject, pointer string
	payload                     []byte
	valid                       bool
	at                          map[string]bool // instance locations of the library's leaf faults

	accepted bool // by the node
	answer   *headgate.Error
}

const webhookConfig = `
version: 1
data: %s
listen: %s
principals:
  - { name: operator, kind: human, roles: [developer, operator], listen: ["*"], token: env:TOKEN_OPERATOR }
  - { name: hub, kind: system, emit: ["github.*"], roots: 100000/s, token: env:TOKEN_HUB }
  - { name: labeller, kind: agent, emit: ["note.labelled"], listen: ["github.issues.*"], token: env:TOKEN_LABELLER }
  - { name: greeter, kind: agent, emit: ["note.greeted"], listen: ["github.issues.*"], token: env:TOKEN_GREETER }
subscriptions:
  labeller: { types: ["github.issues.*"], as: labeller, from: beginning, claim: 2s, backoff: 10ms..100ms }
  greeter: { types: ["github.issues.*"], as: greeter, from: beginning, claim: 2s, backoff: 10ms..100ms }
`

const noteContract = `{"type":"object","required":["about"],"properties":{"about":{"type":"string"}},"additionalProperties":false}`

// Real deliveries go through a node that is killed ten times meanwhile. Every
// verdict is that of the schema library, nothing acknowledged is missing,
// each agent's effect happens once per accepted issue, and what was refused
// is in quarantine with the right pointers.
func TestRealWebhooksSurviveTenKills(t *testing.T) {
	hooks := readWebhooks(t)
	dir := t.TempDir()
	addr := freeAddr(t)
	tokens := map[string]string{}
	for _, name := range []string{"operator", "hub", "labeller", "greeter"} {
		tokens[name] = "a-token-for-tests-of-" + name + "-0123456789"
		t.Setenv("TOKEN_"+strings.ToUpper(name), tokens[name])
	}
	config := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, webhookConfig, filepath.Join(dir, "data"), addr), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := servertest.Start(t, binary, addr, "serve", "--config", config)
	operator := srv.Client(tokens["operator"])
	registerWebhookContracts(t, operator, hooks)

	work, stop := context.WithCancel(t.Context())
	var agents sync.WaitGroup
	effects := map[string]*effectLog{}
	for name, emit := range map[string]string{"labeller": "note.labelled", "greeter": "note.greeted"} {
		log := &effectLog{seen: map[string]int{}}
		effects[name] = log
		c := srv.Client(tokens[name])
		agents.Go(func() { log.run(work, c, name, emit) })
	}

	publishWithKills(t, srv, srv.Client(tokens["hub"]), hooks, 10)
	waitQuiet(t, operator)
	stop()
	agents.Wait()

	checkVerdicts(t, hooks)
	stored := readAll(t, operator)
	checkStored(t, hooks, stored)
	checkEffects(t, hooks, effects, stored)
	checkQuarantine(t, operator, hooks)
}

func readWebhooks(t *testing.T) []*webhook {
	t.Helper()
	schema, err := os.ReadFile(outside.Data(t, "github-webhooks", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(outside.Data(t, "github-webhooks", "events.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	oracle := newOracle(t, schema)
	var hooks []*webhook
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Event   string
			Payload json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		var head struct{ Action string }
		if err := json.Unmarshal(line.Payload, &head); err != nil {
			t.Fatal(err)
		}
		h := &webhook{id: fmt.Sprintf("hook-%03d", n), event: line.Event, payload: bytes.Clone(line.Payload)}
		h.subject, h.pointer = oracle.definition(line.Event, head.Action)
		h.valid, h.at = oracle.check(t, h.pointer, h.payload)
		hooks = append(hooks, h)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(hooks) != 329 {
		t.Fatalf("%d deliveries, want 329", len(hooks))
	}
	return hooks
}

// oracle runs the schema library by itself, without any of our code.
type oracle struct {
	compiler *jsonschema.Compiler
	names    map[string]bool
	document []byte
}

func newOracle(t *testing.T, schema []byte) *oracle {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	o := &oracle{compiler: jsonschema.NewCompiler(), names: map[string]bool{}, document: schema}
	o.compiler.AssertFormat()
	// The library refuses {/path} expressions, which RFC 6570, section 3.2.6,
	// allows and nearly every delivery holds.
	template := regexp.MustCompile(`^([^{}\x00-\x20"'<>\\^|]|\{[+#./;?&]?[A-Za-z0-9_.,:*%]+\})*$`)
	o.compiler.RegisterFormat(&jsonschema.Format{Name: "uri-template", Validate: func(v any) error {
		if s, ok := v.(string); ok && !template.MatchString(s) {
			return errors.New("no URI template")
		}
		return nil
	}})
	if err := o.compiler.AddResource("https://webhooks.test/schema.json", doc); err != nil {
		t.Fatal(err)
	}
	for name := range doc.(map[string]any)["definitions"].(map[string]any) {
		o.names[name] = true
	}
	return o
}

// definition maps an event and its action to an event type and to the pointer
// of its definition.
func (o *oracle) definition(event, action string) (eventType, pointer string) {
	if name := event + "$" + action; o.names[name] {
		return "github." + event + "." + action, "/definitions/" + name
	}
	return "github." + event, "/definitions/" + event + "$event"
}

func (o *oracle) check(t *testing.T, pointer string, payload []byte) (bool, map[string]bool) {
	t.Helper()
	s, err := o.compiler.Compile("https://webhooks.test/schema.json#" + pointer)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Validate(v)
	if err == nil {
		return true, nil
	}
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		t.Fatal(err)
	}
	at := map[string]bool{}
	collectFaults(ve, at)
	return false, at
}

// collectFaults gathers the locations of leaf faults; of a missing or unknown
// property, the property's own.
func collectFaults(e *jsonschema.ValidationError, at map[string]bool) {
	base := ""
	for _, token := range e.InstanceLocation {
		base += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
	}
	for _, c := range e.Causes {
		collectFaults(c, at)
	}
	if len(e.Causes) > 0 {
		return
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, m := range k.Missing {
			at[base+"/"+m] = true
		}
	case *kind.AdditionalProperties:
		for _, p := range k.Properties {
			at[base+"/"+p] = true
		}
	default:
		at[base] = true
	}
}

func registerWebhookContracts(t *testing.T, c *client.Client, hooks []*webhook) {
	t.Helper()
	document, err := os.ReadFile(outside.Data(t, "github-webhooks", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]bool{}
	for _, h := range hooks {
		if done[h.subject] {
			continue
		}
		done[h.subject] = true
		schema, err := contract.Bundle(document, h.pointer)
		if err != nil {
			t.Fatalf("%s: %v", h.pointer, err)
		}
		if _, _, err := c.PutContract(t.Context(), h.subject, schema); err != nil {
			t.Fatalf("contract %s: %v", h.subject, err)
		}
	}
	for _, subject := range []string{"note.labelled", "note.greeted"} {
		if _, _, err := c.PutContract(t.Context(), subject, []byte(noteContract)); err != nil {
			t.Fatal(err)
		}
	}
}

// publishWithKills publishes every delivery until it has an answer that is
// final, from four clients at once, and kills the node evenly spread meanwhile.
func publishWithKills(t *testing.T, srv *servertest.Server, hub *client.Client, hooks []*webhook, kills int) {
	t.Helper()
	jobs := make(chan *webhook)
	answered := make(chan struct{}, len(hooks))
	var publishers sync.WaitGroup
	for range 4 {
		publishers.Go(func() {
			for h := range jobs {
				h.accepted, h.answer = publishUntilFinal(t.Context(), hub, h)
				answered <- struct{}{}
			}
		})
	}
	go func() {
		defer close(jobs)
		for _, h := range hooks {
			select {
			case jobs <- h:
			case <-t.Context().Done():
				return
			}
		}
	}()
	every := len(hooks) / (kills + 1)
	for n := 1; n <= len(hooks); n++ {
		<-answered
		if n%every == 0 && n/every <= kills {
			srv.Kill()
			srv.Restart()
		}
	}
	publishers.Wait()
}

// publishUntilFinal repeats a publish with the same id until the answer does
// not ask for a repetition.
func publishUntilFinal(ctx context.Context, c *client.Client, h *webhook) (bool, *headgate.Error) {
	e := &headgate.Event{ID: h.id, Source: "/github", Type: h.subject, Data: h.payload}
	for {
		_, err := c.Publish(ctx, e)
		he := headgate.AsError(err)
		if err == nil {
			return true, nil
		}
		if he.Info().Retry != headgate.RetryLater {
			return false, he
		}
		if !wait(ctx, 20*time.Millisecond) {
			return false, he
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// effectLog is an agent whose effect happens once per event: it keeps the ids
// that it has handled, as an inbox does.
type effectLog struct {
	mu   sync.Mutex
	seen map[string]int // deliveries per event id
}

func (l *effectLog) run(ctx context.Context, c *client.Client, subscription, emit string) {
	for ctx.Err() == nil {
		deliveries, err := c.Pull(ctx, subscription, 4, time.Second)
		if err != nil {
			wait(ctx, 20*time.Millisecond)
			continue
		}
		for _, d := range deliveries {
			var e struct{ ID string }
			if json.Unmarshal(d.Event, &e) != nil {
				continue
			}
			l.mu.Lock()
			l.seen[e.ID]++
			l.mu.Unlock()
			child := fmt.Appendf(nil, `{"type":%q,"data":{"about":%q}}`, emit, e.ID)
			// A lost answer is repeated: the settlement happens once.
			for ctx.Err() == nil {
				_, err := c.Settle(ctx, subscription, api.Settlement{Claim: d.Claim, Outcome: "ack", Emit: []json.RawMessage{child}})
				if e := headgate.AsError(err); e == nil || e.Info().Retry != headgate.RetryLater {
					break
				}
				wait(ctx, 20*time.Millisecond)
			}
		}
	}
}

// waitQuiet waits until every subscription handled all it accepted, and checks
// the conservation law.
func waitQuiet(t *testing.T, c *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		d, err := c.Doctor(ctx)
		if err != nil {
			t.Fatal(err)
		}
		idle := true
		for _, b := range d.Conservation {
			if !b.Holds {
				t.Fatalf("conservation law of %s is broken: %s (%+v)", b.Subscription, b.Detail, b)
			}
			idle = idle && b.Pending == 0 && b.InFlight == 0
		}
		if idle {
			return
		}
		if !wait(ctx, 50*time.Millisecond) {
			t.Fatalf("deliveries are still open: %+v", d.Conservation)
		}
	}
}

func checkVerdicts(t *testing.T, hooks []*webhook) {
	t.Helper()
	accepted := 0
	for _, h := range hooks {
		if h.accepted {
			accepted++
		} else if h.answer.Code != headgate.CodeContractViolation {
			t.Errorf("%s %s: refused as %v", h.id, h.subject, h.answer)
		}
		if h.accepted != h.valid {
			t.Errorf("%s %s: accepted=%v, the library says valid=%v", h.id, h.subject, h.accepted, h.valid)
		}
	}
	t.Logf("%d accepted, %d refused", accepted, len(hooks)-accepted)
	if accepted == 0 || accepted == len(hooks) {
		t.Error("the input proves nothing: all verdicts are the same")
	}
}

// readAll reads every stored event through the live stream. Events that the
// node outbox still publishes may come a moment later, so it reads until the
// notes are complete or time is up.
func readAll(t *testing.T, c *client.Client) map[string][]*headgate.Event {
	t.Helper()
	d, err := c.Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want uint64
	for _, s := range d.Streams {
		want += s.Stored
	}
	tail, err := c.Tail(t.Context(), client.TailOpts{Types: []string{"*"}, From: "beginning"})
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	dec := headgate.Decoder{Trusted: true, MaxEvent: 8 << 20}
	byType := map[string][]*headgate.Event{}
	for range want {
		m, err := tail.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Gap != nil {
			t.Fatalf("gap in the stream: %+v", m.Gap)
		}
		got, err := dec.Structured(m.Event.Event)
		if err != nil {
			t.Fatal(err)
		}
		byType[got.Event.Type] = append(byType[got.Event.Type], got.Event)
	}
	return byType
}

// checkStored demands every accepted delivery exactly once, byte for byte, and
// no refused one.
func checkStored(t *testing.T, hooks []*webhook, stored map[string][]*headgate.Event) {
	t.Helper()
	got := map[string][]*headgate.Event{}
	for typ, events := range stored {
		if strings.HasPrefix(typ, "github.") {
			for _, e := range events {
				got[e.ID] = append(got[e.ID], e)
			}
		}
	}
	for _, h := range hooks {
		events := got[h.id]
		switch {
		case h.accepted && len(events) != 1:
			t.Errorf("%s was acknowledged and is stored %d times", h.id, len(events))
		case !h.accepted && len(events) != 0:
			t.Errorf("%s was refused and is stored", h.id)
		case h.accepted && !bytes.Equal(events[0].Data, h.payload):
			t.Errorf("%s: the payload changed", h.id)
		}
	}
}

// checkEffects demands that each agent saw each accepted issue, and that each
// emitted exactly one note about it, however often it was delivered.
func checkEffects(t *testing.T, hooks []*webhook, effects map[string]*effectLog, stored map[string][]*headgate.Event) {
	t.Helper()
	for name, emit := range map[string]string{"labeller": "note.labelled", "greeter": "note.greeted"} {
		notes := map[string]int{}
		for _, e := range stored[emit] {
			if len(e.Header.Causes) != 1 || e.Header.RootID != e.Header.Causes[0] || e.Header.Hop != 1 {
				t.Errorf("%s %s has cause %v, root %s, hop %d", emit, e.ID, e.Header.Causes, e.Header.RootID, e.Header.Hop)
				continue
			}
			notes[e.Header.Causes[0]]++
		}
		want, repeated := 0, 0
		for _, h := range hooks {
			if !h.accepted || !strings.HasPrefix(h.subject, "github.issues.") {
				continue
			}
			want++
			if effects[name].seen[h.id] == 0 {
				t.Errorf("%s never saw %s", name, h.id)
			}
			if effects[name].seen[h.id] > 1 {
				repeated++
			}
			if notes[h.id] != 1 {
				t.Errorf("%s emitted %d notes about %s, want 1", name, notes[h.id], h.id)
			}
		}
		if len(notes) != want {
			t.Errorf("%s emitted notes about %d events, want %d", name, len(notes), want)
		}
		t.Logf("%s: %d issues, %d of them delivered more than once", name, want, repeated)
	}
}

// checkQuarantine demands a record for every refusal, with the payload and with
// pointers that the schema library gives too.
func checkQuarantine(t *testing.T, c *client.Client, hooks []*webhook) {
	t.Helper()
	for _, h := range hooks {
		if h.accepted {
			continue
		}
		page, err := c.Quarantine(t.Context(), client.QuarantineFilter{ID: h.id}, client.Page{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Records) == 0 {
			t.Errorf("%s was refused and is not in quarantine", h.id)
			continue
		}
		rec, err := c.Quarantined(t.Context(), page.Records[0].QID)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Body != string(h.payload) {
			t.Errorf("%s: the quarantined payload changed", h.id)
		}
		if rec.Kind != "refused" || rec.Reason != "contract_violation" {
			t.Errorf("%s: quarantined as %s, %s", h.id, rec.Kind, rec.Reason)
		}
		for _, v := range h.answer.Verdict.Violations {
			if !h.at[v.At] {
				t.Errorf("%s: violation at %q; the library has %v", h.id, v.At, sorted(h.at))
			}
			if !bytes.Contains(rec.Detail, []byte(fmt.Sprintf("%q", v.At))) {
				t.Errorf("%s: the record does not name %q", h.id, v.At)
			}
		}
	}
}

func sorted(set map[string]bool) []string {
	var out []string
	for k := range set {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
