package router

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/store"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected output of scenario files")

// TestScenarios runs the scenario files: commands, each followed by what the
// observer saw and what the command answered, in virtual time.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.scenario")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".scenario"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = runScenario(t, string(text)) })
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("%s differs; run with -rewrite and read the diff. Got:\n%s", file, firstDifference(string(text), got))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range g {
		if i >= len(w) || w[i] != g[i] {
			lo := max(0, i-3)
			return fmt.Sprintf("line %d:\nwant %s\ngot  %s", i+1,
				strings.Join(w[min(lo, len(w)):min(i+3, len(w))], "\n     "), strings.Join(g[lo:min(i+3, len(g))], "\n     "))
		}
	}
	return "the text is shorter"
}

type scenario struct {
	*rig
	started time.Time
	running bool
}

// runScenario plays a text of blocks, "command\n----\nexpected\n\n", and
// returns it with what was really seen.
func runScenario(t *testing.T, text string) string {
	sc := &scenario{rig: newRig(t), started: time.Now()}
	sc.start()
	sc.running = true
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		input, _, isCommand := strings.Cut(block+"\n", "----\n")
		if !isCommand {
			out.WriteString(block + "\n\n")
			continue
		}
		out.WriteString(input + "----\n")
		for line := range strings.SplitSeq(strings.TrimSpace(input), "\n") {
			if strings.HasPrefix(line, "#") {
				continue
			}
			answer := sc.do(line)
			synctest.Wait()
			for _, l := range sc.seen() {
				out.WriteString("  " + l + "\n")
			}
			for _, l := range answer {
				out.WriteString(l + "\n")
			}
		}
		out.WriteString("\n")
	}
	if sc.running {
		sc.end()
	} else {
		sc.close()
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// args splits "verb a b k=v" into words and options.
func args(line string) (words []string, opts map[string]string) {
	opts = map[string]string{}
	for w := range strings.FieldsSeq(line) {
		if k, v, ok := strings.Cut(w, "="); ok {
			opts[k] = v
		} else {
			words = append(words, w)
		}
	}
	return words, opts
}

func (sc *scenario) do(line string) []string {
	w, o := args(line)
	ctx := context.Background()
	switch w[0] {
	case "put":
		return sc.doPut(ctx, w[1], o)
	case "emit":
		sc.doEmit(w, o)
		return nil
	case "pull":
		limit, _ := strconv.Atoi(o["max"])
		wait, _ := time.ParseDuration(o["wait"])
		as := o["as"]
		if as == "" {
			as = "worker"
		}
		got, err := sc.router.Pull(ctx, sc.people.get(as), w[1], max(limit, 1), wait)
		if err != nil {
			return []string{err.Error()}
		}
		if len(got) == 0 {
			return []string{"nothing"}
		}
		return nil
	case "settle":
		return sc.doSettle(ctx, w, o)
	case "wait":
		d, err := time.ParseDuration(w[1])
		if err != nil {
			sc.t.Fatal(err)
		}
		time.Sleep(d) // virtual time
		return nil
	case "balance":
		return sc.doBalance(ctx)
	case "rows":
		return sc.doRows(ctx, w[1])
	case "quarantine":
		return sc.doQuarantine(ctx)
	case "explain":
		return sc.doExplain(ctx, w[1])
	case "superseded":
		pos, _ := headgate.ParsePosition(w[2])
		n, _ := strconv.Atoi(w[3])
		return []string{fmt.Sprint(sc.router.Superseded(w[1], "events", pos, n))}
	case "pause", "resume", "delete", "unblock", "trim", "damage":
		return sc.doManage(ctx, w)
	case "restart", "crash":
		if w[0] == "crash" {
			sc.crash()
		} else if err := sc.stop(); err != nil {
			return []string{err.Error()}
		}
		sc.start()
		return nil
	case "down":
		sc.running = false
		if err := sc.stop(); err != nil {
			return []string{err.Error()}
		}
		return nil
	case "up":
		sc.running = true
		sc.start()
		return nil
	case "full":
		sc.maxRecords, _ = strconv.Atoi(w[1])
		return nil
	case "refuse":
		code := headgate.Code(w[1])
		sc.refuse = func(*headgate.Event) *headgate.Error { return headgate.NewError(code, "by the scenario") }
		if code == "nothing" {
			sc.refuse = nil
		}
		return nil
	case "handle":
		return sc.doHandle(w[1])
	case "log":
		sc.mu.Lock()
		defer sc.mu.Unlock()
		lines := sc.logged
		sc.logged = nil
		return lines
	}
	sc.t.Fatalf("unknown command %q", line)
	return nil
}

func (sc *scenario) doPut(ctx context.Context, name string, o map[string]string) []string {
	spec := Spec{Order: o["order"], Backoff: o["backoff"], Dedupe: o["dedupe"], From: o["from"], As: "worker", Types: []string{"*"}}
	if o["types"] != "" {
		spec.Types = strings.Split(o["types"], ",")
	}
	spec.Attempts, _ = strconv.Atoi(o["attempts"])
	spec.Concurrency, _ = strconv.Atoi(o["concurrency"])
	for k, d := range map[string]*Duration{"claim": &spec.Claim, "max_block": &spec.MaxBlock, "expire": &spec.Expire} {
		if o[k] != "" {
			if err := d.UnmarshalText([]byte(o[k])); err != nil {
				sc.t.Fatal(err)
			}
		}
	}
	if o["deliver"] == "handler" {
		spec.Deliver.Handler = &Handler{}
	}
	if _, err := sc.router.Put(ctx, sc.people.get("dev"), name, spec, "api"); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func (sc *scenario) doEmit(w []string, o map[string]string) {
	for _, id := range w[2:] {
		ev := event(id, w[1], o["key"])
		if o["ttl"] != "" {
			ev.Header.TTL, _ = strconv.Atoi(o["ttl"])
		}
		if o["header"] == "none" {
			ev.Header = headgate.Header{}
		}
		if d, err := time.ParseDuration(o["expires"]); err == nil {
			ev.ExpiryTime = time.Now().Add(d)
		}
		sc.publish(ev)
	}
}

func (sc *scenario) doSettle(ctx context.Context, w []string, o map[string]string) []string {
	in := Settlement{Claim: w[2], Outcome: w[3], Reason: o["reason"]}
	if d, err := time.ParseDuration(o["delay"]); err == nil {
		in.Delay = d
	}
	if o["emit"] != "" {
		for id := range strings.SplitSeq(o["emit"], ",") {
			in.Emit = append(in.Emit, perimeter.Item{Event: &headgate.Event{ID: id, Source: "/child", Type: "child.made"}})
		}
	}
	out, err := sc.router.Settle(ctx, sc.people.get("worker"), w[1], []Settlement{in})
	if err != nil {
		return []string{err.Error()}
	}
	lines := []string{}
	for _, e := range out[0].Emitted {
		if e.Err != nil {
			lines = append(lines, fmt.Sprintf("emitted %s: %s", e.Event.ID, e.Err.Code))
		}
	}
	if out[0].Err != nil {
		return append(lines, "not settled: "+out[0].Err.Error())
	}
	return append(lines, "settled")
}

func (sc *scenario) doBalance(ctx context.Context) []string {
	all, err := sc.router.Conservation(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	lines := []string{}
	for _, b := range all {
		c := b.Counts
		lines = append(lines, fmt.Sprintf("%s: accepted=%d pending=%d in_flight=%d settled=%d unmatched=%d parked=%d extinguished=%d expired=%d discarded=%d trimmed=%d holds=%v %s",
			b.Subscription, b.Accepted, b.Pending, b.InFlight, c.Settled, c.Unmatched, c.Parked, c.Extinguished, c.Expired, c.Discarded, c.Trimmed, b.Holds, b.Detail))
		lines[len(lines)-1] = strings.TrimSpace(lines[len(lines)-1])
	}
	return lines
}

func (sc *scenario) doRows(ctx context.Context, name string) (lines []string) {
	err := sc.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Deliveries.Exceptions(ctx, name, "", headgate.Position{}, 100)
		for _, x := range rows {
			due := "-"
			if !x.Due.IsZero() {
				due = x.Due.Sub(sc.started).String()
			}
			lines = append(lines, fmt.Sprintf("%s %s %s attempts=%d due=%s", x.Position, x.ID, x.State, x.Attempts, due))
		}
		return err
	})
	if err != nil {
		return []string{err.Error()}
	}
	if len(lines) == 0 {
		return []string{"none"}
	}
	return lines
}

func (sc *scenario) doQuarantine(ctx context.Context) (lines []string) {
	recs, err := sc.quar.List(ctx, store.QuarantineFilter{})
	if err != nil {
		return []string{err.Error()}
	}
	slices.Reverse(recs)
	for _, rec := range recs {
		lines = append(lines, fmt.Sprintf("%s %s %s of %s: %s", rec.Kind, rec.Reason, rec.ID, rec.Subscription, rec.Message))
	}
	if len(lines) == 0 {
		return []string{"none"}
	}
	return lines
}

func (sc *scenario) doExplain(ctx context.Context, id string) (lines []string) {
	for part := range uint32(2) {
		stored, err := sc.broker.Browse(ctx, "events", headgate.Position{Partition: part}, 1000)
		if err != nil {
			return []string{err.Error()}
		}
		for _, s := range stored {
			if s.Event.ID != id {
				continue
			}
			states, err := sc.router.Explain(ctx, s.Event, "events", s.Position)
			if err != nil {
				return []string{err.Error()}
			}
			for _, st := range states {
				lines = append(lines, fmt.Sprintf("%s: %s attempts=%d, %s", st.Subscription, st.State, st.Attempts, st.Why))
				for _, a := range st.History {
					lines = append(lines, fmt.Sprintf("  attempt %d: %s %s", a.N, a.Outcome, a.Error))
				}
			}
		}
	}
	return lines
}

func (sc *scenario) doManage(ctx context.Context, w []string) []string {
	var err error
	switch w[0] {
	case "pause":
		err = sc.router.Pause(ctx, w[1])
	case "resume":
		err = sc.router.Resume(ctx, w[1])
	case "delete":
		err = sc.router.Delete(ctx, w[1])
	case "unblock":
		err = sc.router.Unblock(ctx, w[1], "events", w[2])
	case "trim":
		part, _ := strconv.ParseUint(w[1], 10, 32)
		below, _ := strconv.ParseUint(w[2], 10, 64)
		err = sc.broker.Trim(ctx, "events", uint32(part), below)
	case "damage":
		var pos headgate.Position
		if pos, err = headgate.ParsePosition(w[1]); err == nil {
			err = sc.broker.Damage(ctx, "events", pos)
		}
	}
	if err != nil {
		return []string{err.Error()}
	}
	return nil
}

// doHandle attaches a handler that does what the event's id says.
func (sc *scenario) doHandle(name string) []string {
	err := sc.router.Handle(name, func(ctx context.Context, d *Delivery, out *Emitter) error {
		id := d.Event.ID
		switch {
		case strings.HasPrefix(id, "panic"):
			panic("at " + id)
		case strings.HasPrefix(id, "reject"):
			return Reject(fmt.Errorf("never %s", id))
		case strings.HasPrefix(id, "later"):
			if d.Attempt == 1 {
				return RetryAfter(7*time.Second, fmt.Errorf("not yet"))
			}
		case strings.HasPrefix(id, "fail"):
			if d.Attempt < 3 {
				return fmt.Errorf("attempt %d failed", d.Attempt)
			}
		case strings.HasPrefix(id, "slow"):
			<-ctx.Done()
			return ctx.Err()
		case strings.HasPrefix(id, "emit"):
			out.Emit(&headgate.Event{ID: "child-of-" + id, Source: "/child", Type: "child.made"})
		}
		return nil
	})
	if err != nil {
		return []string{err.Error()}
	}
	return nil
}
