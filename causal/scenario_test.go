package causal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

var rewrite = flag.Bool("rewrite", false, "write the expected answers of the scenarios anew")

// TestScenarios runs the files of testdata. A line is a command; the lines
// below it that start with ">" are what it must answer. "#" starts a comment.
//
//	node NAME                            open a node on the shared store; later commands use it
//	on NAME                              use that node
//	root ID by=P [type= ttl= gas= origins=a,b]
//	child ID of=ID[,ID] by=P [type= ttl= breadth= repeats= origins= times=N]
//	token NAME of=ID to=P [attempt=N]    mint a token
//	with NAME[,NAME] ID by=P [type=]     publish with tokens
//	gas ID | advance D | rotate | keys | superseded yes|no | store up|down|lossy
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newScenario().run(string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := strings.Split(string(text), "\n")
			for i, line := range strings.Split(got, "\n") {
				if i >= len(want) || line != want[i] {
					t.Fatalf("%s:%d: got\n%s\nwant\n%s", file, i+1, line, strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""))
				}
			}
		})
	}
}

// scenario is the state of one file.
type scenario struct {
	store  *memStore
	clk    *clock
	claims takenOver
	nodes  map[string]*Engine
	node   *Engine
	events map[string]*headgate.Event
	places map[string]headgate.Position
	tokens map[string]string
}

func newScenario() *scenario {
	return &scenario{
		store: newMemStore(), clk: newClock(), nodes: map[string]*Engine{},
		events: map[string]*headgate.Event{}, places: map[string]headgate.Position{}, tokens: map[string]string{},
	}
}

func (s *scenario) run(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, ">") {
			continue
		}
		out.WriteString(line + "\n")
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			for answer := range strings.Lines(s.command(words)) {
				out.WriteString("> " + strings.TrimSuffix(answer, "\n") + "\n")
			}
		}
	}
	return out.String()
}

// options are the words NAME=VALUE of a command.
type options map[string]string

func (o options) int(name string) int {
	n, _ := strconv.Atoi(o[name])
	return n
}

func (o options) list(name string) []string {
	if o[name] == "" {
		return nil
	}
	return strings.Split(o[name], ",")
}

func (s *scenario) command(words []string) string {
	opts := options{}
	var args []string
	for _, w := range words[1:] {
		if name, value, ok := strings.Cut(w, "="); ok {
			opts[name] = value
		} else {
			args = append(args, w)
		}
	}
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch words[0] {
	case "node":
		e, err := Open(context.Background(), Config{Store: s.store, Now: s.clk.now, Claims: &s.claims})
		if err != nil {
			return s.refusal(err)
		}
		s.node, s.nodes[arg(0)] = e, e
	case "on":
		s.node = s.nodes[arg(0)]
	case "root", "child", "with":
		return s.publish(words[0], args, opts)
	case "token":
		d := s.delivered(opts["of"], opts["to"])
		d.Attempt = max(1, opts.int("attempt"))
		s.tokens[arg(0)] = s.node.Mint(d)
	case "gas":
		a, err := s.node.Gas(context.Background(), s.events[arg(0)])
		if err != nil {
			return s.refusal(err)
		}
		return fmt.Sprintf("total=%d debited=%d local=%d left=%d", a.Total, a.Debited, a.Local, a.Left())
	case "rotate":
		if err := s.node.Rotate(context.Background()); err != nil {
			return s.refusal(err)
		}
	case "keys":
		return strconv.Itoa(len(s.store.settings))
	default:
		return s.surroundings(words[0], arg(0))
	}
	return ""
}

// surroundings changes the clock, the claims or the store.
func (s *scenario) surroundings(what, how string) string {
	switch what {
	case "advance":
		d, err := time.ParseDuration(how)
		if err != nil {
			return err.Error()
		}
		s.clk.advance(d)
	case "superseded":
		s.claims.yes = how == "yes"
	case "store":
		s.store.before, s.store.after = nil, nil
		fault := func() error { return errors.New("store: gone") }
		switch how {
		case "down":
			s.store.before = fault
		case "lossy":
			s.store.after = fault
		}
	default:
		return "unknown command"
	}
	return ""
}

// delivered is the one delivery that an event has to a principal.
func (s *scenario) delivered(id, to string) Delivered {
	name := id + " " + to
	pos, ok := s.places[name]
	if !ok {
		pos = headgate.Position{Offset: uint64(len(s.places))}
		s.places[name] = pos
	}
	return Delivered{Event: s.events[id], Stream: "events", Position: pos, Subscription: to, Principal: to, Attempt: 1}
}

func (s *scenario) publish(how string, args []string, opts options) string {
	id := args[len(args)-1]
	r := Request{
		Principal: &headgate.Principal{Name: opts["by"], Kind: headgate.KindAgent},
		Type:      opts["type"], EventID: id, TTL: opts.int("ttl"), Gas: opts.int("gas"), Breadth: opts.int("breadth"), Repeats: opts.int("repeats"),
	}
	if r.Type == "" {
		r.Type = "t." + id
	}
	for _, o := range opts.list("origins") {
		r.Origins = append(r.Origins, headgate.Origin(o))
	}
	switch opts["by"] {
	case "ann":
		r.Principal.Kind, r.Principal.Roots = headgate.KindHuman, headgate.RootRight{Allowed: true}
	case "desk":
		r.Principal.Kind, r.Principal.Roots = headgate.KindSystem, headgate.RootRight{Allowed: true, Rate: 2, Burst: 3}
	}
	switch how {
	case "child":
		for _, parent := range opts.list("of") {
			r.Causes = append(r.Causes, s.node.CauseOf(s.delivered(parent, opts["by"])))
		}
	case "with":
		for name := range strings.SplitSeq(args[0], ",") {
			c, err := s.node.Verify(s.tokens[name], opts["by"])
			if err != nil {
				return s.refusal(err)
			}
			r.Causes = append(r.Causes, c)
		}
	}
	answer := ""
	for n := range max(1, opts.int("times")) {
		ev, err := tryAdmit(s.node, r)
		if err != nil {
			if n > 0 {
				answer = fmt.Sprintf("admitted %d\n", n)
			}
			return answer + s.refusal(err)
		}
		s.events[id] = ev
		h := ev.Header
		answer = fmt.Sprintf("ttl=%d hop=%d root=%s causes=%s origin=%s", h.TTL, h.Hop, h.RootID, headgate.JoinCauses(h.Causes), h.Origin)
	}
	if n := opts.int("times"); n > 1 {
		return fmt.Sprintf("admitted %d", n)
	}
	return answer
}

func (s *scenario) refusal(err error) string {
	out := "refused " + err.Error()
	if e := headgate.AsError(err); e != nil && e.RetryAfter > 0 {
		out += fmt.Sprintf("\nretry after %s", e.RetryAfter)
	}
	return out
}
