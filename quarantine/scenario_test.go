package quarantine

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var rewrite = flag.Bool("rewrite", false, "write the expected answers of the scenarios anew")

// TestScenarios runs the files of testdata/scenarios. A line is a command; the
// lines below it that start with ">" are what it must answer. "#" starts a
// comment.
//
//	open [quota= max= retain=]           open the quarantine, again after a restart
//	refuse by=P [code= type= id= detail= at= times=N]
//	park sub=S [kind= reason= type= id= message= times=N]
//	advance D | expire | flush | list | groups | overflow
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &scenario{t: t, store: openStore(t), clock: newClock()}
			got := s.run(string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s: answers differ; run with -rewrite and compare:\n%s", file, got)
			}
		})
	}
}

type scenario struct {
	t     *testing.T
	store store.Store
	clock *fakeClock
	q     *Quarantine
	out   strings.Builder
}

// run returns the text with the answers that were given.
func (s *scenario) run(text string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, ">") {
			continue
		}
		s.out.WriteString(line)
		if fields := strings.Fields(line); len(fields) > 0 && fields[0][0] != '#' {
			s.command(fields[0], arguments(strings.TrimSpace(line)))
		}
	}
	return s.out.String()
}

// arguments reads "name=value" pairs; a value in double quotes may have blanks.
func arguments(line string) map[string]string {
	args := map[string]string{}
	for line != "" {
		var word string
		word, line, _ = strings.Cut(line, " ")
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			args["arg"] = word
			continue
		}
		if strings.HasPrefix(value, `"`) {
			rest := value[1:] + " " + line
			value, line, _ = strings.Cut(rest, `"`)
			line = strings.TrimPrefix(line, " ")
		}
		args[name] = value
	}
	return args
}

func (s *scenario) say(format string, args ...any) { fmt.Fprintf(&s.out, "> "+format+"\n", args...) }

func (s *scenario) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scenario) command(name string, args map[string]string) {
	ctx := s.t.Context()
	switch name {
	case "open":
		if s.q != nil {
			s.must(s.q.Close(ctx))
		}
		retain, _ := time.ParseDuration(args["retain"])
		s.q = open(s.t, Config{Store: s.store, Now: s.clock.Now, RefusalQuota: number(args["quota"]), MaxRecords: number(args["max"]), Retain: retain})
	case "refuse":
		s.refuse(args)
	case "park":
		s.park(args)
	case "advance":
		d, err := time.ParseDuration(args["arg"])
		s.must(err)
		s.clock.advance(d)
	case "expire":
		s.q.expire(ctx)
	case "flush":
		s.must(s.q.overflow.flush(ctx, s.store))
	case "list":
		rows, err := s.q.List(ctx, store.QuarantineFilter{})
		s.must(err)
		for _, r := range rows {
			s.say("%s %s %s %s %s: %s", r.Kind, r.Reason, r.Type, r.ID, or(r.Subscription, r.Principal), r.Message)
		}
	case "groups":
		groups, err := s.q.Groups(ctx, store.QuarantineFilter{})
		s.must(err)
		for _, g := range groups {
			s.say("%d %s %s %s %s: %s", g.Count, g.Kind, g.Reason, g.Type, g.Subscription, g.Message)
		}
	case "overflow":
		rows, err := s.q.Overflow(ctx)
		s.must(err)
		for _, r := range rows {
			s.say("%s %s %s %d", r.Principal, r.Reason, r.Type, r.Count)
		}
	default:
		s.t.Fatalf("unknown command %q", name)
	}
}

func (s *scenario) refuse(args map[string]string) {
	r := refusal(args["by"])
	r.Event.Type, r.Event.ID = or(args["type"], "ticket.opened"), args["id"]
	r.Err = headgate.NewError(headgate.Code(or(args["code"], "type_not_allowed")), "%s", args["detail"])
	if at, ok := args["at"]; ok {
		r.Err.Verdict = &headgate.Verdict{
			Contract:   headgate.ContractRef{Subject: r.Event.Type, Version: 1},
			Violations: []headgate.Violation{{Code: headgate.ViolationWrongType, At: at, Fix: "Send a number."}},
		}
	}
	kept, counted := 0, 0
	for range max(number(args["times"]), 1) {
		if s.q.Refused(s.t.Context(), r) != "" {
			kept++
		} else {
			counted++
		}
	}
	s.say("kept %d, counted %d", kept, counted)
}

func (s *scenario) park(args map[string]string) {
	for range max(number(args["times"]), 1) {
		p := parked(s.q, args["message"])
		p.Subscription, p.Reason = args["sub"], or(args["reason"], "handler_exhausted")
		p.Kind = store.QuarantineKind(or(args["kind"], string(store.KindParked)))
		p.Event.Type, p.Event.ID = or(args["type"], "ticket.opened"), args["id"]
		rec := s.q.Record(p)
		err := s.store.Update(s.t.Context(), func(ctx context.Context, tx *store.Tx) error { return s.q.Put(ctx, tx, rec) })
		if err != nil {
			s.say("%v", err)
			return
		}
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
