package perimeter_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/topology"
)

var rewrite = flag.Bool("rewrite", false, "write the expected answers of the scenarios anew")

// TestScenarios runs the files of testdata/scenarios. A line is a command; the
// lines below it that start with ">" are what the observer must be told. "#"
// starts a comment.
//
//	admit by=P [of=ID,ID] ITEM [; ITEM]…   submit events, children of those named
//	prepare by=P [of=ID] ITEM …            the same without storing; then commit or release
//	commit | release | gas ID | records | broker throttle|unsure|lost|well
//
// An item is "TYPE ID DATA [NAME=VALUE]…" with attributes and extensions.
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
			s := newScenario(t)
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
	gate  *gate
	door  *perimeter.Perimeter
	known map[string]*headgate.Event
	batch *perimeter.Batch
	out   strings.Builder
}

func newScenario(t *testing.T) *scenario {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	s := &scenario{t: t, known: map[string]*headgate.Event{}}
	s.gate = open(t, setup{
		now:   func() time.Time { return now },
		types: []topology.Type{{Pattern: "ticket.*", Gas: 5, TTL: 3}, {Pattern: "order.*", Key: "data.n"}},
	})
	s.gate.cfg.Observer = &headgate.Observer{
		Admitted: func(i headgate.AdmittedInfo) { s.say("%s", i); s.known[i.Event.ID] = i.Event },
		Refused:  func(i headgate.RefusedInfo) { s.say("%s", i) },
		Ignored:  func(i headgate.IgnoredInfo) { s.say("%s", i) },
	}
	s.door = s.gate.with(&odd{})
	return s
}

func (s *scenario) say(format string, args ...any) { fmt.Fprintf(&s.out, "> "+format+"\n", args...) }

func (s *scenario) run(text string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, ">") {
			continue
		}
		s.out.WriteString(line)
		if name, args, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" && name[0] != '#' {
			s.command(name, args)
		}
	}
	return s.out.String()
}

func (s *scenario) command(name, args string) {
	switch name {
	case "admit":
		s.door.Admit(s.t.Context(), s.submission(args))
	case "prepare":
		s.batch = s.door.Prepare(s.t.Context(), s.submission(args))
		for _, r := range s.batch.Results {
			if r.Err == nil && !r.Duplicate {
				s.say("prepared %s %s ttl=%d hop=%d", r.Event.Type, r.Event.ID, r.Event.Header.TTL, r.Event.Header.Hop)
			}
		}
	case "commit":
		s.batch.Commit()
	case "release":
		s.batch.Release()
	case "gas":
		s.say("%d left", s.gate.left(s.known[args]))
	case "records":
		s.records()
	case "broker":
		s.door = s.gate.with(map[string]*odd{"throttle": {throttle: 1}, "unsure": {unknownStored: 1}, "lost": {unknownLost: 1}, "well": {}}[args])
	default:
		s.t.Fatalf("unknown command %q", name)
	}
}

func (s *scenario) records() {
	rows, err := s.gate.quarantine.List(s.t.Context(), store.QuarantineFilter{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range rows {
		s.say("%s %s %s %s root=%s cause=%s: %s", r.Kind, r.Reason, r.Type, r.ID, r.Root, r.Cause, r.Message)
	}
}

func (s *scenario) submission(args string) perimeter.Submission {
	sub := perimeter.Submission{Door: "test"}
	for {
		word, rest, _ := strings.Cut(args, " ")
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			break
		}
		args = rest
		switch name {
		case "by":
			sub.Principal = helpdesk()
			if value != "helpdesk" {
				sub.Principal = agent(value)
			}
		case "of":
			for id := range strings.SplitSeq(value, ",") {
				token := id
				if e := s.known[id]; e != nil {
					token = s.gate.mintFor(e, sub.Principal.Name)
				}
				sub.Tokens = append(sub.Tokens, token)
			}
		}
	}
	for text := range strings.SplitSeq(args, " ; ") {
		fields := strings.Fields(text)
		e := event(fields[0], fields[1], fields[2])
		for _, f := range fields[3:] {
			name, value, _ := strings.Cut(f, "=")
			switch name {
			case "key":
				e.Key = value
			case "media":
				e.DataContentType = value
			case "source":
				e.Source = value
			default:
				e.SetExtension(headgate.Extension{Name: name, Value: value})
			}
		}
		sub.Items = append(sub.Items, perimeter.Item{Event: e})
	}
	return sub
}
