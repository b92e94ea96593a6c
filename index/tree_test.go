package index

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
)

var rewrite = flag.Bool("rewrite", false, "write the expected files anew")

var (
	desk  = &headgate.Principal{Name: "desk", Kind: headgate.KindSystem, Roots: headgate.RootRight{Allowed: true}}
	alice = &headgate.Principal{Name: "alice", Kind: headgate.KindAgent}
	bob   = &headgate.Principal{Name: "bob", Kind: headgate.KindAgent}
)

// TestTree builds a tree through the real engine and quarantine: a loop that
// the path limit ends, a join of two roots, and gas that runs out.
func TestTree(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t, nil)
	must := func(e *headgate.Event, err error) *headgate.Event {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	root := must(b.admit(t, desk, "ticket.opened", "root", causal.Request{Gas: 11}))
	other := must(b.admit(t, desk, "ticket.opened", "other", causal.Request{}))
	ev := root
	loops := 0
	for i := range 7 {
		who, what := alice, "ticket.updated"
		if i%2 == 1 {
			who, what = bob, "ticket.commented"
		}
		next, err := b.admit(t, who, what, fmt.Sprint("e", i), causal.Request{Repeats: 3}, ev)
		if err != nil {
			wantCode(t, err, headgate.CodeLoop)
			loops++
			continue
		}
		ev = next
	}
	must(b.admit(t, alice, "ticket.merged", "join", causal.Request{}, root, other))
	must(b.admit(t, alice, "ticket.merged", "foreign", causal.Request{}, other, root))
	for i := range 5 {
		_, err := b.admit(t, bob, "ticket.noted", fmt.Sprint("n", i), causal.Request{}, root)
		if i >= 2 {
			wantCode(t, err, headgate.CodeGasExhausted)
		}
	}
	defer b.run(t)()
	b.wait(t)
	tree, err := b.Tree(ctx, "root", 0)
	if err != nil {
		t.Fatal(err)
	}
	if loops != 1 || tree.Events != 10 || tree.Shown != 10 || tree.Depth != 6 || tree.Cuts != 1+3 || tree.Gas.Total != 11 || tree.Gas.Left() != 0 || tree.Lag != 0 {
		t.Errorf("tree %+v", tree)
	}
	golden(t, "tree.txt", draw(t, tree, 100, false))
	golden(t, "tree-narrow-ascii.txt", draw(t, tree, 40, true))

	_, err = b.Tree(ctx, "e1", 0)
	wantCode(t, err, headgate.CodeNotFound)
	if !strings.Contains(err.Error(), "belongs to root root") {
		t.Error(err)
	}
	_, err = b.Tree(ctx, "nobody", 0)
	wantCode(t, err, headgate.CodeNotFound)
	short, err := b.Tree(ctx, "root", 3)
	if err != nil || short.Shown != 3 || short.Events != 10 || short.Depth != 6 || len(nodesOf(short.Root)) != 3 {
		t.Errorf("short tree %+v, %v", short, err)
	}
}

// TestTreeAfterRetention: the root and an inner event are gone; what is left
// hangs below the root, and the gas is read through it.
func TestTreeAfterRetention(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t, nil)
	root, err := b.admit(t, desk, "a", "root", causal.Request{Gas: 50})
	if err != nil {
		t.Fatal(err)
	}
	ev := root
	for i := range 4 {
		if ev, err = b.admit(t, alice, fmt.Sprint("t", i), fmt.Sprint("e", i), causal.Request{}, ev); err != nil {
			t.Fatal(err)
		}
	}
	stop := b.run(t)
	b.wait(t)
	stop()
	err = b.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Index.ByRoot(ctx, "root", 0, 10)
		if err != nil {
			return err
		}
		if err := tx.Index.Reset(ctx); err != nil {
			return err
		}
		return tx.Index.Put(ctx, slices.DeleteFunc(rows, func(r store.IndexRow) bool { return r.ID == "root" || r.ID == "e1" }))
	})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := b.Tree(ctx, "root", 0)
	if err != nil {
		t.Fatal(err)
	}
	if !tree.Root.Missing || tree.Gas.Left() != 45 || !tree.Gas.Known || len(nodesOf(tree.Root)) != tree.Events+1 {
		t.Errorf("tree %+v", tree)
	}
	if !strings.Contains(draw(t, tree, 0, true), "root (the root is not in the index any more)\n|- t0 e0 by alice ttl=15\n`- t2 e2 by alice ttl=13\n   `- t3 e3") {
		t.Error(draw(t, tree, 0, true))
	}
}

func nodesOf(root *Node) []*Node {
	var all []*Node
	for stack := []*Node{root}; len(stack) > 0; {
		n := stack[len(stack)-1]
		stack = append(stack[:len(stack)-1], n.Children...)
		if all = append(all, n); len(all) > 1<<16 {
			return all // a cycle
		}
	}
	return all
}

// TestPlant: whatever rows say, every one is in the tree once, below a lower
// hop, and drawing ends.
func TestPlant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ids := []string{"root", "a", "b", "c,d", "", "a%2Cb"}
		id := rapid.SampledFrom(ids)
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) store.IndexRow {
			return store.IndexRow{
				ID: id.Draw(t, "id"), Source: rapid.StringN(0, 2, 4).Draw(t, "source"), Root: "root",
				Causes: headgate.JoinCauses(rapid.SliceOfN(id, 0, 3).Draw(t, "causes")), Hop: rapid.IntRange(0, 4).Draw(t, "hop"),
			}
		}), 1, 30).Draw(rt, "rows")
		tree := new(Tree)
		nodes := tree.plant("root", rows)
		all := nodesOf(tree.Root)
		want := len(rows)
		if tree.Root.Missing {
			want++
		}
		if len(all) != want {
			rt.Fatalf("%d nodes of %d rows", len(all), len(rows))
		}
		for _, n := range all {
			for _, c := range n.Children {
				if c.Hop <= n.Hop && n != tree.Root {
					rt.Fatalf("edge from hop %d to hop %d", n.Hop, c.Hop)
				}
			}
		}
		tree.hang(&store.QuarantineRecord{Cause: id.Draw(rt, "cut"), Reason: "loop"}, nodes, map[cutKey]int{})
		var buf bytes.Buffer
		if err := tree.WriteText(&buf, rapid.IntRange(0, 60).Draw(rt, "width"), rapid.Bool().Draw(rt, "ascii")); err != nil {
			rt.Fatal(err)
		}
		if lines := strings.Count(buf.String(), "\n"); lines != want+2 {
			rt.Fatalf("%d lines for %d nodes, a cut and a summary", lines, want)
		}
	})
}

func TestWriteTextEscapes(t *testing.T) {
	t.Parallel()
	evil := "x\x1b[31m\n\"└─ \u202e" + strings.Repeat("y", 500)
	deep := &Node{IndexRow: store.IndexRow{ID: "leaf", Type: "t"}}
	for i := range 300 {
		deep = &Node{IndexRow: store.IndexRow{ID: fmt.Sprint("n", i), Type: "t"}, Children: []*Node{deep, {IndexRow: store.IndexRow{ID: "s"}}}}
	}
	deep.ID, deep.Type, deep.Principal = evil, evil, evil
	deep.Causes = headgate.JoinCauses([]string{"a", evil})
	deep.Cuts = []Cut{{Reason: "loop", Type: evil, Principal: evil, QID: evil}}
	for _, ascii := range []bool{false, true} {
		out := draw(t, &Tree{Root: deep}, 80, ascii)
		if strings.ContainsAny(out, "\x1b\r\u202e") {
			t.Errorf("control characters in %q", out[:200])
		}
		for line := range strings.Lines(out) {
			line = strings.TrimSuffix(line, "\n")
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("line of %d columns: %s", n, line)
			}
			if ascii && strings.IndexFunc(line, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
				t.Errorf("not ASCII: %s", line)
			}
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t, nil)
	root, err := b.admit(t, desk, "a", "root", causal.Request{TTL: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.admit(t, alice, "b", "refused", causal.Request{}, root)
	wantCode(t, err, headgate.CodeTTLExhausted)
	twin := plain("root")
	twin.Source = "/twin"
	b.publish(t, "beta", twin)
	parked := b.quar.Record(quarantine.Parked{
		Kind: store.KindParked, Subscription: "s", Stream: "alpha", Position: headgate.Position{Offset: 0}, Event: root,
		Reason: "handler_permanent", Message: "no", First: time.Now(),
	})
	err = b.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error { return b.quar.Put(ctx, tx, parked) })
	if err != nil {
		t.Fatal(err)
	}
	defer b.run(t)()
	b.wait(t)
	ex, err := b.Explain(ctx, "root", nil)
	if err != nil || !ex.Admitted || len(ex.Others) != 1 || len(ex.Subscriptions) != 1 || !strings.HasPrefix(ex.Subscriptions[0].Why, "root at alpha/") ||
		len(ex.Quarantine) != 1 || ex.Quarantine[0].QID != parked.QID {
		t.Errorf("explanation %+v, %v", ex, err)
	}
	ex, err = b.Explain(ctx, "refused", nil)
	if err != nil || ex.Admitted || len(ex.Quarantine) != 1 || ex.Quarantine[0].Reason != string(headgate.CodeTTLExhausted) {
		t.Errorf("explanation of a refusal: %+v, %v", ex, err)
	}
	_, err = b.Explain(ctx, "nobody", nil)
	wantCode(t, err, headgate.CodeNotFound)
}

func draw(t *testing.T, tree *Tree, width int, ascii bool) string {
	t.Helper()
	var buf bytes.Buffer
	if err := tree.WriteText(&buf, width, ascii); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// golden compares with a file of testdata. Record ids rise with time, so they
// are left out.
func golden(t *testing.T, name, got string) {
	t.Helper()
	lines := strings.Split(got, "\n")
	for i, line := range lines {
		if at := strings.Index(line, " ("); at > 0 && strings.Contains(line, "refused, ") {
			lines[i] = line[:at] + " (QID)"
		}
	}
	got = strings.Join(lines, "\n")
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%swant\n%s", name, got, want)
	}
}

// BenchmarkTree draws the tree of a root with many events.
func BenchmarkTree(b *testing.B) {
	const n = 100_000
	bb := newBench(b, nil)
	rows := make([]store.IndexRow, n)
	for i := range rows {
		rows[i] = store.IndexRow{
			ID: fmt.Sprint("e", i), Stream: "alpha", Position: headgate.Position{Offset: uint64(i)}, Type: "t", Root: "e0",
			Causes: fmt.Sprint("e", i/3), Hop: min(i, 15), Recorded: bb.clock.Add(time.Duration(i)),
		}
	}
	err := bb.store.Update(context.Background(), func(ctx context.Context, tx *store.Tx) error { return tx.Index.Put(ctx, rows) })
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := bb.Tree(context.Background(), "e0", 0); err != nil {
			b.Fatal(err)
		}
	}
}
