package index

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/store"
)

const (
	defaultNodes = 1000
	maxNodes     = 10_000
	// maxRows bounds the rows that one tree reads to count its events.
	maxRows = 100_000
	// maxRecords bounds the quarantine records that one tree reads.
	maxRecords = 10_000
	page       = 1000
	// countRows is how many rows are read at once beyond the first page: every
	// read skips what came before.
	countRows = 10_000
)

// Node is one event of a tree.
type Node struct {
	store.IndexRow
	// Missing marks a root that is not in the index any more: only its id is
	// known.
	Missing bool
	// Children are in the order of admission. An event with several causes is
	// a child of the first; Causes names all.
	Children []*Node
	// Cuts are refusals of this event's children that a causal limit ended.
	Cuts []Cut
}

// Cut is a set of equal refusals at one event.
type Cut struct {
	Reason, Type, Principal string
	Count                   int
	QID                     string // newest record
}

// Tree is the causal tree of one root.
type Tree struct {
	Root   *Node
	Events int // ever admitted under the root, as far as the index knows
	Depth  int // greatest hop
	Gas    causal.Account
	Lag    uint64 // events that the index has not seen yet
	Shown  int    // nodes in this answer; less than Events when cut short
	Cuts   int    // refusals by causal limits that were recorded
	// More is true when there were more events or refusals than one answer
	// counts.
	More bool
	// Beyond counts refusals like those in Cuts that exceeded a principal's
	// quota of records. They are counted over all roots.
	Beyond []store.QuarantineOverflow
}

// Tree returns the causal tree of a root: its first limit events (default
// 1000, at most 10,000), and where causal limits cut it. Errors: not_found,
// and those of the store, the broker and the quarantine.
func (x *Index) Tree(ctx context.Context, root string, limit int) (*Tree, error) {
	if limit <= 0 {
		limit = defaultNodes
	}
	limit = min(limit, maxNodes)
	first, err := x.lookup(ctx, func(ctx context.Context, tx *store.Tx) ([]store.IndexRow, error) {
		return tx.Index.ByRoot(ctx, root, 0, min(page, limit))
	})
	if err != nil {
		return nil, err
	}
	if len(first) == 0 {
		return nil, x.noTree(ctx, root)
	}
	t := new(Tree)
	rows, err := x.rows(ctx, t, root, first, limit)
	if err != nil {
		return nil, err
	}
	nodes := t.plant(root, rows)
	if err := x.cut(ctx, t, root, nodes); err != nil {
		return nil, err
	}
	if t.Gas, err = x.gas(ctx, root, rows); err != nil {
		return nil, err
	}
	t.Lag, err = x.Lag(ctx)
	return t, err
}

// noTree says why there is no tree, with the root when the id is a child's.
func (x *Index) noTree(ctx context.Context, id string) error {
	var rows []store.IndexRow
	err := x.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		rows, err = tx.Index.ByID(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		e := headgate.NewError(headgate.CodeNotFound, "the event is no root; it belongs to root %s", label(rows[0].Root))
		e.Fix = "Ask for the tree of that root."
		return e
	}
	return x.notFound(ctx, "no root")
}

// rows reads the rows of the tree after the first page, keeps limit of them and
// counts all.
func (x *Index) rows(ctx context.Context, t *Tree, root string, first []store.IndexRow, limit int) ([]store.IndexRow, error) {
	var kept []store.IndexRow
	for batch := first; len(batch) > 0; {
		for i := range batch {
			t.Depth = max(t.Depth, batch[i].Hop)
		}
		t.Events += len(batch)
		kept = append(kept, batch[:min(len(batch), limit-len(kept))]...)
		if t.Events >= maxRows {
			t.More = true
			break
		}
		err := x.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			batch, err = tx.Index.ByRoot(ctx, root, t.Events, countRows)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	t.Shown = len(kept)
	return kept, nil
}

// nodeSet finds the nodes of an event id. Ids are unique only with their
// source, so there may be several.
type nodeSet map[string][]*Node

// parent returns the node with the id above the hop, or nil. The nearest above
// is taken, which is the very cause unless sources share ids; that it is above
// keeps the tree free of cycles whatever the ids say.
func (s nodeSet) parent(id string, hop int) *Node {
	var best *Node
	for _, n := range s[id] {
		if n.Hop < hop && (best == nil || n.Hop > best.Hop) {
			best = n
		}
	}
	return best
}

// plant links the rows to a tree and returns its nodes by id.
func (t *Tree) plant(root string, rows []store.IndexRow) nodeSet {
	nodes := make(nodeSet, len(rows))
	all := make([]*Node, len(rows))
	for i := range rows {
		n := &Node{IndexRow: rows[i]}
		all[i] = n
		nodes[n.ID] = append(nodes[n.ID], n)
		if t.Root == nil && n.Hop == 0 && n.ID == root {
			t.Root = n
		}
	}
	if t.Root == nil {
		t.Root = &Node{IndexRow: store.IndexRow{ID: root, Root: root}, Missing: true}
		nodes[root] = append(nodes[root], t.Root)
	}
	for _, n := range all {
		if n == t.Root {
			continue
		}
		parent := t.Root
		for _, cause := range headgate.SplitCauses(n.Causes) {
			if p := nodes.parent(cause, n.Hop); p != nil {
				parent = p
				break
			}
		}
		parent.Children = append(parent.Children, n)
	}
	return nodes
}

// cutKey groups equal refusals at one node.
type cutKey struct {
	at                           *Node
	reason, eventType, principal string
}

// cut hangs the refusals by causal limits on the events that they would have
// been children of.
func (x *Index) cut(ctx context.Context, t *Tree, root string, nodes nodeSet) error {
	if x.cfg.Quarantine == nil {
		return nil
	}
	groups := map[cutKey]int{} // index into Cuts of the node
	filter := store.QuarantineFilter{Kind: store.KindExtinguished, Root: root, Limit: page}
	for {
		records, err := x.cfg.Quarantine.List(ctx, filter)
		if err != nil {
			return err
		}
		for i := range records {
			t.hang(&records[i], nodes, groups)
		}
		if len(records) < page {
			break
		}
		if t.Cuts >= maxRecords {
			t.More = true
			break
		}
		filter.After = records[len(records)-1].QID
	}
	if t.Cuts == 0 {
		return nil
	}
	overflow, err := x.cfg.Quarantine.Overflow(ctx)
	if err != nil {
		return err
	}
	for _, o := range overflow {
		for k := range groups {
			if k.reason == o.Reason && k.eventType == o.Type && k.principal == o.Principal {
				t.Beyond = append(t.Beyond, o)
				break
			}
		}
	}
	return nil
}

// hang adds one record, newest first, to the cuts of its node. A refused child
// hangs on its cause; a delivery that the router ended hangs on its own event.
func (t *Tree) hang(r *store.QuarantineRecord, nodes nodeSet, groups map[cutKey]int) {
	t.Cuts++
	id := r.Cause
	if r.Subscription != "" {
		id = r.ID
	}
	at := t.Root
	if candidates := nodes[id]; len(candidates) > 0 {
		at = candidates[0]
	}
	k := cutKey{at, r.Reason, r.Type, r.Principal}
	i, ok := groups[k]
	if !ok {
		i = len(at.Cuts)
		groups[k] = i
		at.Cuts = append(at.Cuts, Cut{Reason: r.Reason, Type: r.Type, Principal: r.Principal, QID: r.QID})
	}
	at.Cuts[i].Count++
}

// gas reads the root's account through any event of the tree that is left: the
// first, usually the root, else the last, which retention takes last.
func (x *Index) gas(ctx context.Context, root string, rows []store.IndexRow) (causal.Account, error) {
	unknown := causal.Account{Root: root}
	if x.cfg.Causal == nil {
		return unknown, nil
	}
	newest := slices.MaxFunc(rows, func(a, b store.IndexRow) int { return a.Recorded.Compare(b.Recorded) })
	for _, r := range []*store.IndexRow{&rows[0], &newest} {
		e, err := x.browse(ctx, r)
		if err != nil {
			return unknown, err
		}
		if e == nil {
			continue
		}
		a, err := x.cfg.Causal.Gas(ctx, e)
		if headgate.CodeOf(err) == headgate.CodeInvalidArgument {
			continue // not stamped by this version
		}
		return a, err
	}
	return unknown, nil
}
