package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var quarantineCases = map[string]func(*testing.T, store.Store){
	"RoundTrip":  quarantineRoundTrip,
	"PutTwice":   quarantinePutTwice,
	"Pages":      quarantinePages,
	"Model":      quarantineModel,
	"Delete":     quarantineDelete,
	"Expire":     quarantineExpire,
	"Overflow":   quarantineOverflow,
	"ListLimits": quarantineLimits,
	"TooLarge":   quarantineTooLarge,
}

func qid(i int) string { return fmt.Sprintf("q%08d", i) }

func putRecord(t testing.TB, s store.Store, r store.QuarantineRecord) (fresh bool) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx *store.Tx) (err error) {
		fresh, err = tx.Quarantine.Put(ctx, r)
		return err
	})
	return fresh
}

func getRecord(t testing.TB, s store.Store, id string) store.QuarantineRecord {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) (store.QuarantineRecord, error) {
		return tx.Quarantine.Get(ctx, id)
	})
}

func listRecords(t testing.TB, s store.Store, f store.QuarantineFilter) []store.QuarantineRecord {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.QuarantineRecord, error) {
		return tx.Quarantine.List(ctx, f)
	})
}

func quarantineRoundTrip(t *testing.T, s store.Store) {
	for i, w := range weird {
		r := store.QuarantineRecord{
			QID: qid(i), Kind: store.KindParked, Reason: w, State: w, Fingerprint: w, Family: w, Source: w, ID: w, Type: w, Root: w, Cause: w,
			Subscription: w, Stream: w, Position: headgate.Position{Partition: 3, Offset: uint64(i)}, Principal: w, Message: w,
			Body: []byte(w), ContentType: w, Detail: []byte(w),
		}
		if i%2 == 0 {
			r.Created, r.Expires = epoch, epoch.Add(14*24*time.Hour)
		}
		if !putRecord(t, s, r) {
			t.Error("a new record is not new")
		}
		equal(t, "record", getRecord(t, s, r.QID), r)
		r.Body, r.Detail = nil, nil
		equal(t, "listed record", listRecords(t, s, store.QuarantineFilter{Limit: 1}), []store.QuarantineRecord{r})
	}
	large := store.QuarantineRecord{QID: "q9", Body: make([]byte, 1<<20), Detail: make([]byte, 1<<20)}
	putRecord(t, s, large)
	equal(t, "large record", getRecord(t, s, "q9"), large)
	err := failing(t, s, func(ctx context.Context, tx *store.Tx) (store.QuarantineRecord, error) {
		return tx.Quarantine.Get(ctx, "q")
	})
	code(t, "absent", err, headgate.CodeNotFound)
}

func quarantinePutTwice(t *testing.T, s store.Store) {
	first := store.QuarantineRecord{QID: "q1", Reason: "a", Body: []byte("1")}
	putRecord(t, s, first)
	if putRecord(t, s, store.QuarantineRecord{QID: "q1", Reason: "b", Body: []byte("2")}) {
		t.Error("a known record is new")
	}
	equal(t, "record", getRecord(t, s, "q1"), first)
}

func quarantineTooLarge(t *testing.T, s store.Store) {
	r := store.QuarantineRecord{QID: qid(1), Kind: store.KindRefused, Created: epoch, Body: make([]byte, store.MaxQuarantineRecord+1)}
	err := s.Update(context.Background(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Quarantine.Put(ctx, r)
		return err
	})
	if headgate.CodeOf(err) != headgate.CodeTooLarge {
		t.Errorf("a record beyond the bound: %v", err)
	}
	r.Body = r.Body[1:]
	if !putRecord(t, s, r) || len(getRecord(t, s, r.QID).Body) != store.MaxQuarantineRecord {
		t.Error("a record at the bound is not kept")
	}
}

func quarantinePages(t *testing.T, s store.Store) {
	const n = 57
	update(t, s, func(ctx context.Context, tx *store.Tx) error {
		for i := range n {
			if _, err := tx.Quarantine.Put(ctx, store.QuarantineRecord{QID: qid((i * 31) % n), Type: fmt.Sprint(i % 2)}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, limit := range []int{1, 10, n, 100} {
		got, after := []string{}, ""
		for {
			page := listRecords(t, s, store.QuarantineFilter{After: after, Limit: limit})
			if len(page) > limit {
				t.Fatalf("a page of %d for limit %d", len(page), limit)
			}
			for _, r := range page {
				got = append(got, r.QID)
			}
			if len(page) < limit || len(got) > n {
				break
			}
			after = got[len(got)-1]
		}
		if len(got) != n || !slices.IsSortedFunc(got, func(a, b string) int { return cmp.Compare(b, a) }) {
			t.Errorf("pages of %d gave %v", limit, got)
		}
	}
	// A record that is gone still marks a place.
	equal(t, "behind a record that is not there", listRecords(t, s, store.QuarantineFilter{After: qid(5) + "x", Limit: 1})[0].QID, qid(5))
}

func quarantineLimits(t *testing.T, s store.Store) {
	update(t, s, func(ctx context.Context, tx *store.Tx) error {
		for i := range 1100 {
			if _, err := tx.Quarantine.Put(ctx, store.QuarantineRecord{QID: qid(i), Fingerprint: fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	})
	for limit, want := range map[int]int{0: 100, -1: 100, 1: 1, 999: 999, 1000: 1000, 5000: 1000} {
		f := store.QuarantineFilter{Limit: limit}
		equal(t, fmt.Sprintf("records within limit %d", limit), len(listRecords(t, s, f)), want)
		groups := read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.QuarantineGroup, error) {
			return tx.Quarantine.Groups(ctx, f)
		})
		equal(t, fmt.Sprintf("groups within limit %d", limit), len(groups), want)
	}
}

// quarantineModel compares List, Groups and Count with their definitions over
// random records and filters.
func quarantineModel(t *testing.T, s store.Store) {
	var all []store.QuarantineRecord
	few := rapid.SampledFrom([]string{"", "a", "b"})
	kinds := rapid.SampledFrom([]store.QuarantineKind{store.KindRefused, store.KindExtinguished, store.KindParked, store.KindExpired})
	rapid.Check(t, func(rt *rapid.T) {
		var fresh []store.QuarantineRecord
		for range rapid.IntRange(0, 8).Draw(rt, "new") {
			r := store.QuarantineRecord{
				QID: qid(len(all)), Kind: kinds.Draw(rt, "kind"), Reason: few.Draw(rt, "reason"), Type: few.Draw(rt, "type"),
				Subscription: few.Draw(rt, "subscription"), Principal: few.Draw(rt, "principal"), Root: few.Draw(rt, "root"),
				ID: few.Draw(rt, "id"), Fingerprint: few.Draw(rt, "fingerprint"), Message: fmt.Sprint(len(all)),
				Created: epoch.Add(time.Duration(rapid.IntRange(0, 50).Draw(rt, "created")) * time.Second),
			}
			fresh = append(fresh, r)
			all = append(all, r)
		}
		update(t, s, func(ctx context.Context, tx *store.Tx) error {
			for _, r := range fresh {
				if _, err := tx.Quarantine.Put(ctx, r); err != nil {
					return err
				}
			}
			return nil
		})
		f := store.QuarantineFilter{Limit: rapid.SampledFrom([]int{0, 1, 7, 1000}).Draw(rt, "limit")}
		// Most filters name one or two fields.
		for _, field := range []*string{&f.Reason, &f.Type, &f.Subscription, &f.Principal, &f.Root, &f.ID, &f.Fingerprint} {
			if rapid.IntRange(0, 4).Draw(rt, "named") == 0 {
				*field = few.Draw(rt, "value")
			}
		}
		if rapid.IntRange(0, 4).Draw(rt, "named") == 0 {
			f.Kind = kinds.Draw(rt, "value")
		}
		if len(all) > 0 && rapid.Bool().Draw(rt, "paged") {
			f.After = all[rapid.IntRange(0, len(all)-1).Draw(rt, "after")].QID
		}
		checkList(rt, t, s, f, all)
		checkGroups(rt, t, s, f, all)
		checkCount(rt, t, s, all)
	})
}

func selected(f store.QuarantineFilter, all []store.QuarantineRecord) (some []store.QuarantineRecord) {
	is := func(want, have string) bool { return want == "" || want == have }
	for _, r := range slices.Backward(all) {
		if is(string(f.Kind), string(r.Kind)) && is(f.Reason, r.Reason) && is(f.Type, r.Type) && is(f.Subscription, r.Subscription) &&
			is(f.Principal, r.Principal) && is(f.Root, r.Root) && is(f.ID, r.ID) && is(f.Fingerprint, r.Fingerprint) &&
			(f.After == "" || r.QID < f.After) {
			some = append(some, r)
		}
	}
	return some
}

func firstOf[T any](rows []T, limit int) []T {
	if limit <= 0 {
		limit = 100
	}
	return rows[:min(len(rows), limit)]
}

func checkList(rt *rapid.T, t *testing.T, s store.Store, f store.QuarantineFilter, all []store.QuarantineRecord) {
	got, want := listRecords(t, s, f), firstOf(selected(f, all), f.Limit)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		rt.Errorf("List %+v:\n got %v\nwant %v", f, got, want)
	}
}

func checkGroups(rt *rapid.T, t *testing.T, s store.Store, f store.QuarantineFilter, all []store.QuarantineRecord) {
	by := map[string]*store.QuarantineGroup{}
	for _, r := range selected(f, all) { // newest first
		g := by[r.Fingerprint]
		if g == nil {
			g = &store.QuarantineGroup{
				Fingerprint: r.Fingerprint, Family: r.Family, Kind: r.Kind, Reason: r.Reason, Type: r.Type,
				Subscription: r.Subscription, Message: r.Message, First: r.Created, Last: r.Created, Sample: r.QID,
			}
			by[r.Fingerprint] = g
		}
		g.Count++
		if r.Created.Before(g.First) {
			g.First = r.Created
		}
		if r.Created.After(g.Last) {
			g.Last = r.Created
		}
	}
	var want []store.QuarantineGroup
	for _, g := range by {
		want = append(want, *g)
	}
	slices.SortFunc(want, func(a, b store.QuarantineGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Sample, a.Sample))
	})
	got := read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.QuarantineGroup, error) {
		return tx.Quarantine.Groups(ctx, f)
	})
	if fmt.Sprint(got) != fmt.Sprint(firstOf(want, f.Limit)) {
		rt.Errorf("Groups %+v:\n got %v\nwant %v", f, got, want)
	}
}

func checkCount(rt *rapid.T, t *testing.T, s store.Store, all []store.QuarantineRecord) {
	kind := rapid.SampledFrom([]store.QuarantineKind{"", store.KindRefused, store.KindParked}).Draw(rt, "counted kind")
	principal := rapid.SampledFrom([]string{"", "a", "nobody"}).Draw(rt, "counted principal")
	since := rapid.SampledFrom([]time.Time{{}, epoch, epoch.Add(25 * time.Second), epoch.Add(time.Hour)}).Draw(rt, "since")
	want := 0
	for _, r := range selected(store.QuarantineFilter{Kind: kind, Principal: principal}, all) {
		if !r.Created.Before(since) {
			want++
		}
	}
	got := read(t, s, func(ctx context.Context, tx *store.Tx) (int, error) {
		return tx.Quarantine.Count(ctx, kind, principal, since)
	})
	if got != want {
		rt.Errorf("Count(%q, %q, %v) = %d, want %d", kind, principal, since, got, want)
	}
}

func quarantineDelete(t *testing.T, s store.Store) {
	for i := range 5 {
		kind := store.KindMended
		if i == 3 {
			kind = store.KindRefused
		}
		putRecord(t, s, store.QuarantineRecord{QID: qid(i), Kind: kind})
	}
	remove := func(qids ...string) (n int) {
		t.Helper()
		update(t, s, func(ctx context.Context, tx *store.Tx) (err error) {
			n, err = tx.Quarantine.Delete(ctx, store.KindMended, qids)
			return err
		})
		return n
	}
	equal(t, "deleted of none", remove(), 0)
	equal(t, "deleted", remove(qid(1), qid(4), qid(3), "absent"), 2) // one is of another kind
	equal(t, "deleted again", remove(qid(1), qid(4)), 0)
	equal(t, "records left", len(listRecords(t, s, store.QuarantineFilter{})), 3)
}

func quarantineExpire(t *testing.T, s store.Store) {
	for i := range 10 {
		putRecord(t, s, store.QuarantineRecord{QID: qid(i), Expires: epoch.Add(time.Duration(i))})
	}
	putRecord(t, s, store.QuarantineRecord{QID: "kept"}) // without an end
	expire := func(now time.Time, limit int) (n int) {
		t.Helper()
		update(t, s, func(ctx context.Context, tx *store.Tx) (err error) {
			n, err = tx.Quarantine.Expire(ctx, now, limit)
			return err
		})
		return n
	}
	equal(t, "expired before any end", expire(epoch, 100), 0)
	equal(t, "expired within limit 0", expire(epoch.Add(time.Hour), 0), 0)
	equal(t, "expired", expire(epoch.Add(5), 3), 3)
	equal(t, "expired", expire(epoch.Add(5), 3), 2)
	equal(t, "expired", expire(epoch.Add(5), 3), 0)
	equal(t, "records left", len(listRecords(t, s, store.QuarantineFilter{})), 6)
	equal(t, "expired", expire(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 100), 5)
	equal(t, "records left", len(listRecords(t, s, store.QuarantineFilter{})), 1)
}

func quarantineOverflow(t *testing.T, s store.Store) {
	add := func(rows ...store.QuarantineOverflow) {
		t.Helper()
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Quarantine.AddOverflow(ctx, rows) })
	}
	a := store.QuarantineOverflow{Principal: "b", Reason: "r", Type: "t", Count: 2, Last: epoch.Add(time.Hour)}
	b := store.QuarantineOverflow{Principal: "a", Reason: "\x00é", Type: "", Count: 1, Last: epoch}
	add(a, b)
	add(store.QuarantineOverflow{Principal: "b", Reason: "r", Type: "t", Count: 3, Last: epoch})
	add(store.QuarantineOverflow{Principal: "a", Reason: "\x00é", Count: 1, Last: epoch.Add(time.Second)})
	add()
	a.Count, b.Count, b.Last = 5, 2, epoch.Add(time.Second)
	got := read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.QuarantineOverflow, error) {
		return tx.Quarantine.Overflow(ctx)
	})
	equal(t, "overflow", got, []store.QuarantineOverflow{b, a})
}
