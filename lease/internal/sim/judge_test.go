package sim

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/store"
)

// judge knows what may not happen. It looks at the database itself, never at
// what the service believes.
type judge struct {
	w      *world
	faults []string
	counts map[string]int

	answered map[string]int64  // highest epoch that was answered, by resource
	given    map[string]string // nonce by resource@epoch
	fresh    map[string]bool   // resource@epoch that were answered as new
	nonces   map[string]bool   // that were ever committed
	shut     map[string]int64  // epoch whose gate was asked to be closed
	sealed   map[string]int64  // epoch that was answered as sealed
	requests map[string]int64  // epoch by principal, request id and resource
	events   map[string]bool   // that were answered
}

func newJudge(w *world) *judge {
	return &judge{
		w: w, counts: map[string]int{}, answered: map[string]int64{}, given: map[string]string{}, fresh: map[string]bool{},
		nonces: map[string]bool{},
		shut:   map[string]int64{}, sealed: map[string]int64{}, requests: map[string]int64{}, events: map[string]bool{},
	}
}

func (j *judge) fault(a *actor, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	a.say("FAULT: %s", text)
	j.faults = append(j.faults, text)
}

func at(resource string, epoch int64) string { return resource + "@" + strconv.FormatInt(epoch, 10) }

// eventOf is what is published under a fence.
func eventOf(kind string, f *lease.Fence, id string) string {
	return strings.Join([]string{kind, f.Resource, strconv.FormatInt(f.Epoch, 10), hex.EncodeToString(f.Nonce), id}, "|")
}

// commits judges a transaction against the state that it is committed on.
func (j *judge) commits(a *actor, d *database, tx *transaction) {
	now := d.clock.now()
	for _, e := range tx.log.events {
		j.event(a, strings.Split(e, "|"), d, now)
	}
	for i := range tx.shut {
		j.shut[tx.shut[i].Resource] = tx.shut[i].Epoch
	}
	seen := map[string]store.Lease{}
	for i := range tx.log.leases {
		l := &tx.log.leases[i]
		old, ok := seen[l.Resource]
		if !ok {
			old = d.state.leases[l.Resource]
		}
		j.row(a, &old, l)
		seen[l.Resource] = *l
	}
}

func (j *judge) event(a *actor, e []string, d *database, now time.Time) {
	l := d.state.leases[e[1]]
	j.counts["committed writes"]++
	switch epoch := at(e[1], l.Epoch); {
	case e[2] != strconv.FormatInt(l.Epoch, 10) || e[3] != hex.EncodeToString(l.Nonce):
		j.fault(a, "a write of %s@%s is committed under %s", e[1], e[2], epoch)
	case e[0] == "publish" && (l.Closing || j.shut[e[1]] == l.Epoch):
		j.fault(a, "a write is committed through the closed gate of %s", epoch)
	case !l.Expires.After(now):
		j.fault(a, "a write is committed %s after the end of %s", now.Sub(l.Expires), epoch)
	}
}

func (j *judge) row(a *actor, old, l *store.Lease) {
	same := l.Epoch == old.Epoch
	switch {
	case l.Epoch < old.Epoch, !same && l.Epoch <= j.answered[l.Resource]:
		j.fault(a, "the epoch of %s goes from %d to %d, %d was answered", l.Resource, old.Epoch, l.Epoch, j.answered[l.Resource])
	case same && !bytes.Equal(l.Nonce, old.Nonce):
		j.fault(a, "%s is given twice", at(l.Resource, l.Epoch))
	case !same && l.Nonce != nil && j.nonces[string(l.Nonce)]:
		j.fault(a, "the nonce of %s was used before", at(l.Resource, l.Epoch))
	case !same && l.Holder != "" && l.Request != "" && l.Request == old.Request:
		j.fault(a, "one request is granted %s and %s", at(l.Resource, old.Epoch), at(l.Resource, l.Epoch))
	}
	if l.Nonce != nil {
		j.nonces[string(l.Nonce)] = true
	}
	if !same {
		j.counts["epochs raised"]++
	}
}

// recovered: what was answered is there.
func (j *judge) recovered(a *actor, s *state) {
	for _, r := range resources {
		if s.leases[r].Epoch < j.answered[r] {
			j.fault(a, "%s was answered and is lost: the database has %d", at(r, j.answered[r]), s.leases[r].Epoch)
		}
		if !s.leases[r].Closing {
			delete(j.shut, r) // what closed the gate was not synced
		}
	}
	there := map[string]bool{}
	for _, e := range s.events {
		there[e] = true
	}
	lost := 0
	for e := range j.events {
		if !there[e] {
			lost++
		}
	}
	if lost > 0 {
		j.fault(a, "%d events were answered and are lost", lost)
	}
}

// presented is the state of a lease when a call began.
type presented struct {
	f     fence.Fence
	epoch int64
	live  bool // the token's grant was current
}

func (j *judge) begins(token string) presented {
	defer j.w.beat.Add(1)
	f, err := fence.Parse(token)
	if err != nil {
		panic(err)
	}
	l := j.w.db.state.leases[f.Resource]
	return presented{f, l.Epoch, l.Epoch == f.Epoch && bytes.Equal(l.Nonce, f.Nonce)}
}

// ends judges the answer to a call with a token: what was superseded before it
// began cannot pass, what is current throughout cannot be superseded.
func (j *judge) ends(a *actor, p presented, err error) {
	code := headgate.CodeOf(err)
	j.counts[a.op+" "+string(code)]++
	a.say("under %s: %s", p.f, code)
	l := j.w.db.state.leases[p.f.Resource]
	live := p.live && l.Epoch == p.f.Epoch
	switch {
	case err == nil && p.epoch > p.f.Epoch:
		j.fault(a, "%s passes although %d was current before", p.f, p.epoch)
	case live && (code == headgate.CodeStaleFence || code == headgate.CodeLeaseLost || code == headgate.CodeFenceConflict):
		j.fault(a, "%s is current and answered %s", p.f, code)
	}
}

// epoch is the one that is stored.
func (j *judge) epoch(resource string) int64 {
	defer j.w.beat.Add(1)
	return j.w.db.state.leases[resource].Epoch
}

// ended: after a release the epoch is above the token's.
func (j *judge) ended(a *actor, resource string, epoch int64) {
	if now := j.epoch(resource); now <= epoch {
		j.fault(a, "%s was ended, and %d is current", at(resource, epoch), now)
	}
	j.answered[resource] = max(j.answered[resource], epoch)
}

// holds reports whether every resource's row is of the request.
func (j *judge) holds(p string, r *lease.Request) bool {
	defer j.w.beat.Add(1)
	return r.RequestID != "" && !slices.ContainsFunc(r.Resources, func(resource string) bool {
		l := j.w.db.state.leases[resource]
		return l.Holder == "" || !strings.HasPrefix(l.Request, p+" "+r.RequestID+" ")
	})
}

// granted judges the answer to an acquisition.
func (j *judge) granted(a *actor, life *life, p string, r *lease.Request, before bool, grants []lease.Grant, err error) {
	code := headgate.CodeOf(err)
	j.counts["acquire "+string(code)]++
	text := ""
	for i := range grants {
		text += fmt.Sprintf(" %s again=%v", at(grants[i].Resource, grants[i].Epoch), grants[i].Again)
	}
	a.say("%s asks as %q for %v of node %d: %s%s", p, r.RequestID, r.Resources, life.node.host, code, text)
	if before && code == headgate.CodeLeaseHeld && j.holds(p, r) {
		j.fault(a, "request %s of %s holds %v and is told that they are held", r.RequestID, p, r.Resources)
	}
	for i := range grants {
		g := &grants[i]
		f, err := fence.Parse(g.Token)
		if err != nil || f.Epoch != g.Epoch || f.Resource != g.Resource {
			j.fault(a, "the token of %s says %s", at(g.Resource, g.Epoch), f)
			continue
		}
		key := at(g.Resource, g.Epoch)
		nonce, known := j.given[key]
		if known && nonce != f.NonceText() || !g.Again && j.fresh[key] {
			j.fault(a, "%s is given twice", key)
		}
		if g.Again {
			j.counts["repeated"]++
		} else {
			j.fresh[key] = true
		}
		j.given[key] = f.NonceText()
		j.answered[g.Resource] = max(j.answered[g.Resource], g.Epoch)
		if len(r.Seal) > 0 {
			j.sealed[g.Resource] = max(j.sealed[g.Resource], g.Epoch)
		}
		if r.RequestID == "" {
			continue
		}
		id := p + " " + r.RequestID + " " + g.Resource
		if was, known := j.requests[id]; known && was != g.Epoch {
			j.fault(a, "request %s of %s is granted %d and %d", r.RequestID, p, was, g.Epoch)
		}
		j.requests[id] = g.Epoch
	}
}

// usersWrite judges a write that the users' database commits.
func (j *judge) usersWrite(a *actor, f *lease.Fence, before []int64) {
	j.counts["users' writes"]++
	if n := len(before); n > 0 && before[n-1] > f.Epoch {
		j.fault(a, "a users' write of %s is committed behind one of %d", f.String(), before[n-1])
	}
	if f.Epoch < j.sealed[f.Resource] {
		j.fault(a, "a users' write of %s is committed after %d was sealed", f.String(), j.sealed[f.Resource])
	}
}
