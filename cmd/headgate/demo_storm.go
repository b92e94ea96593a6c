package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/spf13/cobra"
)

// stormConfig is the node of the storm: a person opens tickets, and two agents
// answer each other's notes.
const stormConfig = `
version: 1
defaults: { ttl: %d, gas: %d, repeats: %d }
principals:
  - { name: alice,  kind: human, emit: ["ticket.opened"], roles: [developer], roots: 10/s }
  - { name: triage, kind: agent, emit: ["triage.noted"], listen: ["ticket.opened", "helper.noted"], roots: none }
  - { name: helper, kind: agent, emit: ["helper.noted"], listen: ["triage.noted"], roots: none }
subscriptions:
  triage: { types: ["ticket.opened", "helper.noted"], as: triage, from: beginning }
  helper: { types: ["triage.noted"], as: helper, from: beginning }
`

const noteSchema = `{"type":"object","required":["note"],"properties":{"note":{"type":"string","maxLength":200}},"additionalProperties":false}`

// scene is one run of the storm.
type scene struct {
	name             string
	why              string
	fanOut           int
	ttl, gas, repeat int
}

var scenes = [...]scene{
	{"loop", "fan-out 1: the path shows the same agent and type again and again", 1, 16, 1000, 4},
	{"ttl", "fan-out 1, repetition declared as wanted: the depth ends it", 1, 16, 1000, 64},
	{"gas", "fan-out 3, repetition declared as wanted: the budget ends it", 3, 16, 200, 64},
}

// sceneResult is what one run came to.
type sceneResult struct {
	Scene     string   `json:"scene"`
	FanOut    int      `json:"fan_out"`
	TTL       int      `json:"ttl"`
	Gas       int      `json:"gas"`
	Admitted  int      `json:"admitted"`
	Depth     int      `json:"depth"`
	Cuts      int      `json:"cuts"`
	Reasons   []string `json:"reasons"`
	Pace      float64  `json:"events_per_second"`
	Unguarded string   `json:"unguarded"`
	Tree      api.Tree `json:"tree"`
}

func (a *app) stormCommand() *cobra.Command {
	var think time.Duration
	var only string
	cmd := &cobra.Command{
		Use:   "storm",
		Short: "Two agents answer each other for ever; see what ends it",
		Long: "Two agents, each a process of its own, answer each other's notes over HTTP. Nothing in them\n" +
			"stops. Three scenes show what does: the path limit, the TTL, and the gas.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var results []sceneResult
			for _, s := range scenes {
				if only != "" && only != s.name {
					continue
				}
				r, err := a.storm(cmd.Context(), s, think)
				if err != nil {
					return err
				}
				if !a.json {
					a.printScene(a.out, s, r)
				}
				results = append(results, r)
			}
			if results == nil {
				return usagef("no scene %q: loop, ttl or gas", only)
			}
			if a.json {
				return a.printJSON(results)
			}
			a.next("headgate demo poison")
			return nil
		},
	}
	cmd.Flags().DurationVar(&think, "think", 35*time.Millisecond, "time that an agent thinks about each event")
	cmd.Flags().StringVar(&only, "scene", "", "run one scene: loop, ttl or gas")
	return cmd
}

func (a *app) storm(ctx context.Context, sc scene, think time.Duration) (r sceneResult, err error) {
	s, err := newStage(ctx, fmt.Sprintf(stormConfig, sc.ttl, sc.gas, sc.repeat))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	alice, _, err := s.as(ctx, "alice")
	if err != nil {
		return r, err
	}
	for _, subject := range []string{"ticket.opened", "triage.noted", "helper.noted"} {
		if _, _, err := alice.PutContract(ctx, subject, []byte(noteSchema)); err != nil {
			return r, err
		}
	}
	for name, emit := range map[string]string{"triage": "triage.noted", "helper": "helper.noted"} {
		_, token, err := s.as(ctx, name)
		if err != nil {
			return r, err
		}
		stop, err := a.startAgent(ctx, s, token, agentArgs{subscription: name, emit: emit, fanOut: sc.fanOut, think: think})
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	root, err := alice.Publish(ctx, &headgate.Event{Type: "ticket.opened", Data: []byte(`{"note":"the printer is on fire"}`)})
	if err != nil {
		return r, err
	}
	if err := s.quiet(ctx); err != nil {
		return r, err
	}
	tree, err := alice.Tree(ctx, root.ID, 1000, true)
	if err != nil {
		return r, err
	}
	return sum(sc, tree), nil
}

// sum reads the outcome of a scene off its tree.
func sum(sc scene, t api.Tree) sceneResult {
	r := sceneResult{Scene: sc.name, FanOut: sc.fanOut, TTL: sc.ttl, Gas: sc.gas, Admitted: t.Events, Depth: t.Depth, Cuts: t.Cuts, Tree: t}
	var first, last time.Time
	reasons := map[string]bool{}
	var walk func(n *api.Node)
	walk = func(n *api.Node) {
		if first.IsZero() || n.Recorded.Before(first) {
			first = n.Recorded
		}
		if n.Recorded.After(last) {
			last = n.Recorded
		}
		for _, c := range n.Cuts {
			if !reasons[c.Reason] {
				reasons[c.Reason] = true
				r.Reasons = append(r.Reasons, c.Reason)
			}
		}
		for _, c := range n.Children {
			walk(c)
		}
	}
	if t.Root != nil {
		walk(t.Root)
	}
	if span := last.Sub(first).Seconds(); span > 0 {
		r.Pace = float64(t.Events-1) / span
	}
	r.Unguarded = unguarded(sc, r.Pace)
	return r
}

// unguarded says what the same agents would do without a guard.
func unguarded(sc scene, pace float64) string {
	if sc.fanOut == 1 {
		return fmt.Sprintf("at this pace, %.0f events in twelve minutes, and no end", pace*12*60)
	}
	const hops = 16
	events, level := 1, 1
	for range hops {
		level *= sc.fanOut
		events += level
	}
	return fmt.Sprintf("%d events after %d hops, %d times as many after each further one", events, hops, sc.fanOut)
}

func (a *app) printScene(w io.Writer, sc scene, r sceneResult) {
	fmt.Fprintf(w, "\n%s: %s\n", sc.name, sc.why)
	fmt.Fprintf(w, "  unguarded  %s\n", r.Unguarded)
	fmt.Fprintf(w, "  guarded    %d events ever admitted (gas %d, TTL %d), greatest hop %d, %d answers refused: %v\n\n",
		r.Admitted, r.Gas, r.TTL, r.Depth, r.Cuts, r.Reasons)
	shown := r.Tree
	if r.Admitted > treeShown {
		cuts := map[int]int{}
		cutsByHop(r.Tree.Root, cuts)
		for _, hop := range slices.Sorted(maps.Keys(cuts)) {
			fmt.Fprintf(w, "  cut        %d answers to events of hop %d\n", cuts[hop], hop)
		}
		fmt.Fprintln(w)
		shown.Shown = 0
		shown.Root = topOf(r.Tree.Root, 2, &shown.Shown)
	}
	_ = writeTree(w, &shown)
}

// treeShown is how many events a tree may have to be drawn whole.
const treeShown = 40

// cutsByHop counts the refused answers to events of each hop.
func cutsByHop(n *api.Node, cuts map[int]int) {
	if n == nil {
		return
	}
	for _, c := range n.Cuts {
		cuts[n.Hop] += c.Count
	}
	for _, child := range n.Children {
		cutsByHop(child, cuts)
	}
}

// topOf copies the first hops of a tree and counts its events.
func topOf(n *api.Node, hops int, count *int) *api.Node {
	if n == nil {
		return nil
	}
	*count++
	top := *n
	top.Children = nil
	if hops > 0 {
		for _, child := range n.Children {
			top.Children = append(top.Children, topOf(child, hops-1, count))
		}
	}
	return &top
}
