package relay

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
)

// What one submission takes at most, and how far a worker looks for rows that
// may go with the first.
const (
	groupRows  = 256
	groupBytes = 1 << 20
	lookAhead  = 1024
)

// lane is a queue of rows whose keys share it. At most one worker serves it.
type lane struct {
	mu    sync.Mutex
	queue []item
	busy  bool
	holds map[class]hold
	woken chan struct{} // something was added that no hold keeps back
	loads *loads
	// spills counts how often rows of it were set aside.
	spills uint64
}

// item is one row on its way.
type item struct {
	row   *Row
	key   string
	entry uint64
	size  int
	read  time.Time
	// unsure is set once the broker may have stored the row without saying so.
	unsure bool
	from   *group // of which it was read again; nil: it came from the log
	busy   bool   // it is being submitted
	// until holds the row and its key alone: the quarantine cannot keep it.
	until time.Time
}

// dispatch puts a row into its lane. Rows without a key have no order: they go
// by their id.
func (n *run) dispatch(ctx context.Context, it item) {
	l := &n.lanes[n.laneOf(it.key)]
	l.mu.Lock()
	n.enqueue(ctx, l, it)
}

func (n *run) laneOf(key string) uint64 {
	return maphash.String(n.seed, key) % uint64(len(n.lanes))
}

// enqueue adds a row to a lane, of which the caller holds the lock, and gives
// the lock back.
func (n *run) enqueue(ctx context.Context, l *lane, it item) {
	class := classOf(it.row)
	n.loads.add(class, 1, it.size, 0)
	l.queue = append(l.queue, it)
	start := !l.busy
	l.busy = true
	if _, held := l.holds[class]; !held {
		select {
		case l.woken <- struct{}{}:
		default:
		}
	}
	l.mu.Unlock()
	if start {
		n.work.Go(func() { n.serve(ctx, l) })
	}
}

func (n *run) keyOf(row *Row) string {
	e := row.Event
	switch {
	case e == nil:
		return ""
	case e.Key != "":
		return e.Key
	}
	if n.r.cfg.KeyOf != nil {
		if key := n.r.cfg.KeyOf(e); key != "" {
			return key
		}
	}
	return e.ID
}

// serve submits what waits in a lane until nothing does.
func (n *run) serve(ctx context.Context, l *lane) {
	for {
		group, wait := l.head(time.Now())
		switch {
		case ctx.Err() != nil:
			return
		case len(group) > 0:
			left, wait, why := n.submit(ctx, group)
			l.drop(group, left)
			l.hold(group, left, wait, why)
			if why != nil {
				n.tellWait(ctx, group[0].row, why)
			}
		case wait == 0:
			return
		case !l.pause(ctx, wait):
			return
		}
	}
}

// head returns the rows that one submission may hold: of one role and one
// cause, in their order. The perimeter admits none behind one of the same key
// that has to wait. Rows of a class that is held are passed over, with those
// behind them of the same keys; of one that was, no more are taken than are
// likely to go. Without any row, wait is how long the first hold lasts; 0 when
// the lane is empty and the worker's turn is over.
func (l *lane) head(now time.Time) (group []item, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.release()
		l.queue, l.busy = nil, false
		return nil, 0
	}
	var first *Row
	bytes, looked, most := 0, 0, groupRows
	var passed map[string]struct{} // keys of which one stays behind
	pass := func(key string) {
		if passed == nil {
			passed = map[string]struct{}{}
		}
		passed[key] = struct{}{}
	}
	for i := range l.queue {
		it := &l.queue[i]
		until := it.until
		if len(l.holds) > 0 {
			if h := l.holds[classOf(it.row)]; h.until.After(until) {
				until = h.until
			}
		}
		if now.Before(until) {
			pass(it.key)
			wait = shorter(wait, until.Sub(now))
			continue
		}
		if looked++; looked > lookAhead {
			break
		}
		if _, waits := passed[it.key]; waits {
			continue
		}
		if first == nil {
			first = it.row
			if h, held := l.holds[classOf(first)]; held {
				most = min(most, h.most)
			}
		}
		if !together(first, it.row) {
			pass(it.key)
			continue
		}
		bytes += it.size
		if len(group) > 0 && (len(group) == most || bytes > groupBytes) {
			break
		}
		it.busy = true
		group = append(group, *it)
		group[len(group)-1].until = time.Time{}
	}
	return group, wait
}

// together reports whether two rows may be one submission.
func together(a, b *Row) bool {
	return a.Role == b.Role && a.Cause == b.Cause && a.Origin == b.Origin && (a.Cause == "" || a.Committed.Equal(b.Committed))
}

// drop removes what is done of a group: all of it but what is left.
func (l *lane) drop(group, left []item) {
	done := make(map[*Row]*item, len(group))
	for i := range group {
		done[group[i].row] = nil
	}
	for i := range left {
		done[left[i].row] = &left[i]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.queue[:0]
	for i := range l.queue {
		again, ours := done[l.queue[i].row]
		switch {
		case !ours:
			kept = append(kept, l.queue[i])
		case again != nil:
			it := *again
			it.busy = false
			kept = append(kept, it)
		}
	}
	clear(l.queue[len(kept):])
	l.queue = kept
}

// submit hands a group to the perimeter and settles what came of it. It returns
// the rows that have to be repeated, how long to wait at least, and for what.
func (n *run) submit(ctx context.Context, group []item) (left []item, wait time.Duration, why error) {
	if err := n.src.Lead(); err != nil {
		n.fail(err)
		return group, 0, err
	}
	who, err := n.r.cfg.Principal(group[0].row.Role)
	if err != nil {
		return n.refuseAll(ctx, group, err)
	}
	n.r.cfg.Fault("before publish")
	results, err := n.admit(ctx, who, group)
	if err != nil {
		return group, 0, err
	}
	n.r.cfg.Fault("after publish")
	var done, refused []int
	again := uint64(0)
	for i := range results {
		switch e := results[i].Err; {
		case e == nil && results[i].Duplicate && reused(&results[i], group[i].row):
			results[i].Err = headgate.NewError(headgate.CodeConflict, "another event with this source and id was admitted before")
			results[i].Stage = perimeter.StageStamp
			refused = append(refused, i)
		case e == nil:
			done = append(done, i)
		case e.Info().Retry == headgate.RetryLater:
			it := group[i]
			it.unsure = it.unsure || e.Info().Outcome == headgate.Unknown
			left = append(left, it)
			if e.Code == headgate.CodeHeldBack {
				continue // it is what it stands behind that waits for something
			}
			again++
			if wait == 0 {
				wait = e.RetryAfter
			}
			if why == nil {
				why = e
			}
		default:
			refused = append(refused, i)
		}
	}
	if len(refused) > 0 {
		kept, unkept, err := n.keepAll(ctx, who.Name, group, results, refused)
		if err != nil {
			why = err
		}
		left = append(left, unkept...)
		again += uint64(len(unkept))
		refused = kept
	}
	if again > 0 {
		n.r.note(func(s *Status) { s.Retried += again })
	}
	n.settle(group, results, done, refused)
	return left, wait, why
}

// admit submits a group, but for what the streams hold already.
func (n *run) admit(ctx context.Context, who *headgate.Principal, group []item) ([]perimeter.Result, error) {
	found, err := n.past.find(ctx, who.Name, group)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return n.r.cfg.Admit.Admit(ctx, submission(who, group)), nil
	}
	results := make([]perimeter.Result, len(group))
	var open []item
	var index []int
	for i := range group {
		if found[i] != nil {
			results[i] = *found[i]
			continue
		}
		open, index = append(open, group[i]), append(index, i)
	}
	if len(open) > 0 {
		for k, res := range n.r.cfg.Admit.Admit(ctx, submission(who, open)) {
			results[index[k]] = res
		}
	}
	return results, nil
}

func submission(who *headgate.Principal, group []item) perimeter.Submission {
	first := group[0].row
	s := perimeter.Submission{
		Principal: who, Door: Door, Origin: first.Origin, AsOf: first.Committed, InOrder: true, Unrecorded: true,
		Items: make([]perimeter.Item, len(group)),
	}
	if first.Cause != "" {
		s.Tokens = []string{first.Cause}
	}
	for i := range group {
		row := group[i].row
		s.Items[i] = perimeter.Item{Err: row.Err, Raw: row.Raw, RawType: "application/octet-stream"}
		if row.Event != nil {
			e := *row.Event // the perimeter fills it in
			e.Extensions = slices.Clone(e.Extensions)
			s.Items[i].Event, s.Items[i].Raw = &e, nil
		}
	}
	return s
}

// reused reports whether the event admitted before under the id is another one.
func reused(res *perimeter.Result, row *Row) bool {
	e := res.Event
	return e != nil && e.Header.RootID != "" && row.Event != nil &&
		(e.Type != row.Event.Type || string(e.Data) != string(row.Event.Data))
}

// refuseAll handles a role that stands for nobody.
func (n *run) refuseAll(ctx context.Context, group []item, err error) ([]item, time.Duration, error) {
	e := headgate.AsError(err)
	if e == nil || e.Info().Retry == headgate.RetryLater {
		return group, 0, err
	}
	results := make([]perimeter.Result, len(group))
	all := make([]int, len(group))
	for i := range group {
		results[i] = perimeter.Result{Event: group[i].row.Event, Err: e, Stage: perimeter.StagePrincipal}
		all[i] = i
	}
	kept, left, err := n.keepAll(ctx, group[0].row.Role, group, results, all)
	n.settle(group, results, nil, kept)
	return left, 0, err
}

// keepAll keeps what is refused. A row that the quarantine cannot keep for its
// size waits by itself, until what may be kept is raised. The error is what
// others of left wait for.
func (n *run) keepAll(ctx context.Context, who string, group []item, results []perimeter.Result, refused []int) (kept []int, left []item, err error) {
	err = n.keep(ctx, who, group, results, refused)
	if err == nil {
		return refused, nil, nil
	}
	whole := headgate.CodeOf(err) != headgate.CodeTooLarge
	for k, i := range refused {
		if !whole {
			err = n.keep(ctx, who, group, results, refused[k:k+1])
		}
		switch {
		case whole || err != nil && headgate.CodeOf(err) != headgate.CodeTooLarge:
			for _, i := range refused[k:] {
				left = append(left, group[i])
			}
			return kept, left, err
		case err == nil:
			kept = append(kept, i)
		default:
			it := group[i]
			it.until = time.Now().Add(askAgain)
			left = append(left, it)
			n.tellWait(ctx, it.row, err)
		}
	}
	return kept, left, nil
}

// keep puts refused rows into quarantine, whole, and notes their records.
func (n *run) keep(ctx context.Context, who string, group []item, results []perimeter.Result, which []int) error {
	rs := make([]quarantine.Refusal, len(which))
	at := make([]time.Time, len(which))
	keys := make([]string, len(which))
	for k, i := range which {
		row := group[i].row
		rs[k] = quarantine.Refusal{
			Principal: who, Door: Door, Stage: results[i].Stage, Event: row.Event, Raw: row.Raw,
			ContentType: "application/octet-stream", Err: results[i].Err,
			RequestID: fmt.Sprintf("%s/%d", n.r.cfg.Name, row.Seq),
		}
		at[k] = row.Written
		id := ""
		if row.Event != nil {
			id = row.Event.Source + "\x00" + row.Event.ID
		}
		keys[k] = fmt.Sprintf("%s\x00%d\x00%s", n.r.cfg.Name, row.Seq, id)
	}
	qids, err := n.r.cfg.Keep.Keep(ctx, rs, at, keys)
	if err != nil {
		return err
	}
	for k, i := range which {
		results[i].QID = qids[k]
	}
	return nil
}

// settle tells the tracker what is done.
func (n *run) settle(group []item, results []perimeter.Result, done, refused []int) {
	now := n.r.cfg.Now()
	if len(done)+len(refused) == 0 {
		return
	}
	rows, bytes := 0, 0
	n.mu.Lock()
	for _, set := range [...][]int{done, refused} {
		for _, i := range set {
			if it := &group[i]; it.from == nil {
				n.tracker.finish(it.entry, 1, now)
				rows++
				bytes += it.size
			}
		}
	}
	n.mu.Unlock()
	n.budget.give(rows, bytes)
	ended := 0
	for _, set := range [...][]int{done, refused} {
		for _, i := range set {
			it := &group[i]
			ended += it.size
			if it.from != nil {
				n.outRows.Add(-1)
				n.outBytes.Add(-int64(it.size))
				n.shelf.done(it, now)
			}
		}
	}
	n.loads.add(classOf(group[0].row), -len(done)-len(refused), -ended, 0) // they are of one class
	n.signal()
	n.r.note(func(s *Status) {
		for _, i := range done {
			if results[i].Duplicate {
				s.Duplicate++
			} else {
				s.Stored++
			}
		}
		s.Parked += uint64(len(refused))
		s.LastDone = now
	})
	if tell := n.r.cfg.Done; tell != nil {
		for _, set := range [...][]int{done, refused} {
			for _, i := range set {
				tell(Done{Row: group[i].row, Result: results[i], QID: results[i].QID, At: now})
			}
		}
	}
}
