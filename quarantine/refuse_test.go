package quarantine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func TestRefusedKeepsEverything(t *testing.T) {
	now := newClock()
	q := open(t, Config{Store: openStore(t), Now: now.Now, Version: "v0.1.0"})
	r := refusal("triage")
	r.Cause, r.Root = "e-0", "root-1"
	r.Ignored = []string{"ttl", "rootid"}
	r.Event.SetExtension(headgate.Extension{Name: "tenant", Value: "acme\x1b[31m", Kind: headgate.ExtensionString})
	r.Event.ExpiryTime = now.Now().Add(time.Hour)
	r.Err = headgate.NewError(headgate.CodeContractViolation, "the payload has 1 fault")
	r.Err.Verdict = &headgate.Verdict{
		Contract:   headgate.ContractRef{Subject: "ticket.opened", Version: 3, Engine: headgate.EngineFallback},
		Violations: []headgate.Violation{{Code: headgate.ViolationWrongType, At: "/count", Fix: "Send a number."}},
	}
	qid := q.Refused(t.Context(), r)
	if qid == "" {
		t.Fatal("not recorded")
	}
	rec, err := q.Show(t.Context(), qid)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Kind != store.KindRefused || rec.Reason != "contract_violation" || rec.State != StateQuarantined ||
		rec.Principal != "triage" || rec.Type != "ticket.opened" || rec.ID != "e-1" || rec.Source != "/test" ||
		rec.Cause != "e-0" || rec.Root != "root-1" || rec.Message != "wrong_type at /count: Send a number." ||
		string(rec.Body) != `{"count":"three"}` || rec.ContentType != "application/json" ||
		!rec.Created.Equal(now.Now()) || !rec.Expires.Equal(now.Now().Add(14*24*time.Hour)) {
		t.Errorf("record = %+v", rec)
	}
	d, err := DetailOf(&rec)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(rec.Body)
	if d.Version != 1 || d.Node != "v0.1.0" || d.Door != "http" || d.Stage != "contract" || d.RequestID != "req-1" ||
		!slices.Equal(d.Ignored, r.Ignored) || d.Verdict == nil || d.Verdict.Violations[0].At != "/count" ||
		d.Error == nil || d.Error.Code != headgate.CodeContractViolation || d.Error.Retry != headgate.RetryAfterFix ||
		d.Body != (Body{Size: len(rec.Body), Kept: len(rec.Body), SHA256: hex.EncodeToString(sum[:])}) {
		t.Errorf("detail = %s", rec.Detail)
	}
	if d.Event == nil || d.Event.ExpiryTime != "2026-11-30T11:15:00Z" || len(d.Event.Extensions) != 1 || d.Event.Extensions[0].Value != `acme\x1b[31m` {
		t.Errorf("envelope = %+v", d.Event)
	}
}

func TestRefusedWithoutEventKeepsRawBytes(t *testing.T) {
	q := open(t, Config{Store: openStore(t)})
	raw := []byte("{\x00\xff not json")
	qid := q.Refused(t.Context(), Refusal{Principal: "p", Raw: raw, ContentType: "application/cloudevents+json", Err: headgate.NewError(headgate.CodeSyntax, "offset 1")})
	clear(raw) // the door uses its buffer again
	rec, err := q.Show(t.Context(), qid)
	if err != nil {
		t.Fatal(err)
	}
	if string(rec.Body) != "{\x00\xff not json" || rec.ContentType != "application/cloudevents+json" {
		t.Errorf("record = %+v", rec)
	}
	v := ViewOf(&rec)
	if v.Body != "" || !bytes.Equal(v.BodyBase64, rec.Body) || v.BodyClipped {
		t.Errorf("view = %+v", v)
	}
}

func TestCausalRefusalsAreExtinguished(t *testing.T) {
	q := open(t, Config{Store: openStore(t)})
	for _, code := range []headgate.Code{headgate.CodeTTLExhausted, headgate.CodeGasExhausted, headgate.CodeLoop, headgate.CodeBreadthExhausted} {
		r := refusal("p")
		r.Err = headgate.NewError(code, "the end")
		rec, err := q.Show(t.Context(), q.Refused(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		if rec.Kind != store.KindExtinguished || rec.Reason != string(code) {
			t.Errorf("%s: kind %s, reason %s", code, rec.Kind, rec.Reason)
		}
	}
}

func TestBodiesAreClippedAndSaySo(t *testing.T) {
	q := open(t, Config{Store: openStore(t), BodyMax: 100_000, RefusalBytes: 150_000})
	body := bytes.Repeat([]byte("x"), 100_000)
	sum := sha256.Sum256(body)
	for _, tt := range []struct {
		code headgate.Code
		size int
		kept int
	}{
		{headgate.CodeTypeNotAllowed, 100_000, 100_000},     // the largest kept whole
		{headgate.CodeTypeNotAllowed, 100_000, sampledBody}, // the hour's bytes are used up
		{headgate.CodeTypeNotAllowed, 30_000, 30_000},       // … but not for less
	} {
		r := refusal("p")
		r.Event.Data = body[:tt.size]
		r.Err = headgate.NewError(tt.code, "no")
		rec, err := q.Show(t.Context(), q.Refused(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		d, err := DetailOf(&rec)
		if err != nil {
			t.Fatal(err)
		}
		if len(rec.Body) != tt.kept || d.Body.Kept != tt.kept || d.Body.Size != tt.size || d.Body.Clipped() != (tt.kept < tt.size) || ViewOf(&rec).BodyClipped != d.Body.Clipped() {
			t.Errorf("%s of %d: kept %d, body %+v", tt.code, tt.size, len(rec.Body), d.Body)
		}
		if tt.size == len(body) && d.Body.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("sha256 = %s", d.Body.SHA256)
		}
	}
	r := refusal("q")
	r.Event.Data = body
	r.Err = headgate.NewError(headgate.CodeTooLarge, "no")
	rec, err := q.Show(t.Context(), q.Refused(t.Context(), r))
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Body) != clippedBody {
		t.Errorf("kept %d bytes of one refused for its size", len(rec.Body))
	}
}

func TestQuotaCountsAndSamples(t *testing.T) {
	s, now := openStore(t), newClock()
	var log strings.Builder
	q := open(t, Config{Store: s, Now: now.Now, RefusalQuota: 10, Log: textLog(&log)})
	kept := 0
	for range 10 + 250 {
		if q.Refused(t.Context(), refusal("noisy")) != "" {
			kept++
		}
	}
	if kept != 12 { // the quota, and the 100th and 200th beyond it
		t.Errorf("kept %d", kept)
	}
	if got := overflowOf(t, q, "noisy"); got != 248 {
		t.Errorf("counted %d", got)
	}
	if q.Refused(t.Context(), refusal("quiet")) == "" {
		t.Error("one principal's quota cost another's")
	}
	if n := strings.Count(log.String(), "refusal quota is used up"); n != 1 {
		t.Errorf("%d alarms:\n%s", n, log.String())
	}
	now.advance(time.Hour)
	if q.Refused(t.Context(), refusal("noisy")) == "" {
		t.Error("the next hour has no quota of its own")
	}
}

func TestQuotaSurvivesRestart(t *testing.T) {
	s, now := openStore(t), newClock()
	first := open(t, Config{Store: s, Now: now.Now, RefusalQuota: 10})
	for range 7 {
		first.Refused(t.Context(), refusal("p"))
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	now.advance(10 * time.Minute)
	second := open(t, Config{Store: s, Now: now.Now, RefusalQuota: 10})
	kept := 0
	for range 20 {
		if second.Refused(t.Context(), refusal("p")) != "" {
			kept++
		}
	}
	if kept != 3 {
		t.Errorf("kept %d after the restart, want 3", kept)
	}
}

// TestFlood is the promise of bounded memory: many principals refuse as fast
// as they can, each stays within its quota, and nothing goes uncounted.
func TestFlood(t *testing.T) {
	const principals, each, quota = 50, 2000, 10
	s, now := openStore(t), newClock()
	q := open(t, Config{Store: s, Now: now.Now, RefusalQuota: quota})
	body := bytes.Repeat([]byte("y"), 2048)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	var told atomic.Int64
	for p := range principals {
		wg.Go(func() {
			for i := range each {
				r := refusal(fmt.Sprintf("p%02d", p))
				r.Event.Data = body
				r.Event.Type = fmt.Sprintf("type.%d.%d", p, i) // each of them new
				if q.Refused(t.Context(), r) != "" {
					told.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if err := q.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// A queue of records, quotas, and at most 8192 counters.
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 24<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	kept := countKind(t, s, store.KindRefused, "")
	if int64(kept) < told.Load() {
		t.Errorf("%d QIDs were told, %d records are kept", told.Load(), kept)
	}
	rows, err := q.Overflow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counted := uint64(0)
	for _, r := range rows {
		counted += r.Count
	}
	if got := uint64(kept) + counted; got != principals*each {
		t.Errorf("kept %d + counted %d = %d of %d", kept, counted, got, principals*each)
	}
	if len(rows) > 2*maxCounters+64 {
		t.Errorf("%d counters", len(rows))
	}
	perPrincipal := quota + (each-quota)/sampleEvery
	for p := range principals {
		if n := countKind(t, s, store.KindRefused, fmt.Sprintf("p%02d", p)); n > perPrincipal {
			t.Errorf("p%02d: kept %d, allowed %d", p, n, perPrincipal)
		}
	}
}

func TestRefusedNeverWaitsForAStuckStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refusals = 5000 // more than the queue takes
		s := &idle{hold: make(chan struct{})}
		q, err := Open(t.Context(), Config{Store: s, RefusalQuota: 2 * refusals})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		qids := q.RefusedAll(t.Context(), slices.Repeat([]Refusal{refusal("p")}, refusals))
		if took := time.Since(begun); took != DefaultRefusalWait {
			t.Errorf("waited %s", took)
		}
		for _, qid := range qids {
			if qid != "" {
				t.Fatal("a QID was told before its record was durable")
			}
		}
		begun = time.Now()
		q.Refused(t.Context(), refusal("p"))
		if took := time.Since(begun); took != stuckWait {
			t.Errorf("the next one waited %s", took)
		}
		close(s.hold)
		synctest.Wait()
		if q.stuck.Load() {
			t.Error("still stuck after a write")
		}
		if err := q.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.added) != 1 || s.put == 0 || uint64(s.put)+s.added[0].Count != refusals+1 {
			t.Errorf("kept %d, counted %v of %d", s.put, s.added, refusals+1)
		}
	})
}

func TestCancelledCallerDoesNotWait(t *testing.T) {
	s := &flaky{Store: openStore(t)}
	q := open(t, Config{Store: s})
	if q.Refused(t.Context(), refusal("p")) == "" { // the quota is counted by now
		t.Fatal("not recorded")
	}
	hold := make(chan struct{})
	s.set(nil, hold)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan string)
	go func() { answered <- q.Refused(ctx, refusal("p")) }()
	cancel()
	if qid := <-answered; qid != "" {
		t.Errorf("QID %s before its record was durable", qid)
	}
	s.set(nil, nil)
	close(hold)
	if err := q.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept, counted := countKind(t, s, store.KindRefused, ""), overflowOf(t, q, "p"); uint64(kept)+counted != 2 {
		t.Errorf("kept %d, counted %d of 2", kept, counted)
	}
}

func TestBrokenStoreCounts(t *testing.T) {
	s := &flaky{Store: openStore(t)}
	q := open(t, Config{Store: s})
	s.set(errBroken, nil)
	for range 20 {
		if qid := q.Refused(t.Context(), refusal("p")); qid != "" {
			t.Fatalf("QID %s from a broken store", qid)
		}
	}
	if err := q.overflow.flush(t.Context(), s); err == nil {
		t.Fatal("flushed into a broken store")
	}
	if got := overflowOf(t, q, "p"); got != 20 {
		t.Errorf("counted %d after a failed flush, want 20", got)
	}
	s.set(nil, nil)
	if err := q.overflow.flush(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := overflowOf(t, q, "p"); got != 20 {
		t.Errorf("counted %d after the flush, want 20", got)
	}
}

// picky is a store that does not take one record.
type picky struct {
	store.Store
	store.Quarantine
}

func (p picky) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return p.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		mine := *tx
		mine.Quarantine = picky{Quarantine: tx.Quarantine}
		return fn(ctx, &mine)
	})
}

func (p picky) Put(ctx context.Context, r store.QuarantineRecord) (bool, error) {
	if r.ID == "poison" {
		return false, errBroken
	}
	return p.Quarantine.Put(ctx, r)
}

func TestOneRecordCannotCostItsNeighbours(t *testing.T) {
	q := open(t, Config{Store: picky{Store: openStore(t)}})
	rs := slices.Repeat([]Refusal{refusal("p")}, 50)
	poison := *rs[0].Event
	poison.ID = "poison"
	rs[20].Event = &poison
	for i, qid := range q.RefusedAll(t.Context(), rs) {
		if (qid == "") != (i == 20) {
			t.Errorf("refusal %d: QID %q", i, qid)
		}
	}
	if got := overflowOf(t, q, "p"); got != 1 {
		t.Errorf("counted %d", got)
	}
}

func TestTooManyPrincipalsShareAQuota(t *testing.T) {
	now := newClock()
	q := newQuota(5, 1<<20)
	none := func(context.Context, string, time.Time) int { return 0 }
	for i := range maxUsages + 100 {
		q.take(t.Context(), fmt.Sprint("p", i), "loop", 0, now.Now(), none)
	}
	if len(q.usages) > maxUsages+1 {
		t.Errorf("%d quotas", len(q.usages))
	}
	if g := q.take(t.Context(), "another", "loop", 0, now.Now(), none); g.keep {
		t.Error("the shared quota has no bound")
	}
}

func TestOverflowKeysAreBounded(t *testing.T) {
	o := newOverflow()
	now := time.Now()
	total := 0
	for p := range 300 {
		for k := range 100 {
			o.add(fmt.Sprint("p", p), "type_not_allowed", fmt.Sprint("t", k), 1, now)
			total++
		}
	}
	for p := range 3 * maxCounters {
		o.add(fmt.Sprint("other", p), "loop", "", 1, now)
		total++
	}
	rows := o.rows()
	sum := uint64(0)
	for _, r := range rows {
		sum += r.Count
	}
	if len(rows) > 2*maxCounters+2 || sum != uint64(total) {
		t.Errorf("%d rows with a sum of %d, want %d", len(rows), sum, total)
	}
}
