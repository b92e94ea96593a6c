package fencepg_test

import (
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/pgtest"
)

// slot keeps the log from now on.
func (r *rig) slot() {
	r.t.Helper()
	pgtest.Exec(r.t, r.url, "SELECT pg_create_logical_replication_slot(current_database(), 'test_decoding')")
}

var (
	ofTable    = regexp.MustCompile(`^table (?:headgate|public)\.(leases|plain|rows|parted_0|parted_1): (INSERT|UPDATE):`)
	ofEpoch    = regexp.MustCompile(` epoch\[bigint\]:(\d+)`)
	ofResource = regexp.MustCompile(` resource\[(?:bytea|text)\]:'([^']*)'`)
)

// proof is what the database's log says, in the order of commits.
type proof struct{ writes, raises, violations, falls int }

// prove reads the log: each write's epoch must be the one that the last commit
// before it gave the lease.
func (r *rig) prove() proof {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close(r.t.Context())
	var p proof
	current := map[string]int64{}
	rows, err := conn.Query(r.t.Context(), "SELECT data FROM pg_logical_slot_get_changes(current_database(), NULL, NULL, 'include-xids', '0')")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			r.t.Fatal(err)
		}
		table := ofTable.FindStringSubmatch(line)
		if table == nil {
			continue
		}
		if _, after, ok := strings.Cut(line, "new-tuple:"); ok {
			line = after
		}
		epochs, names := ofEpoch.FindStringSubmatch(line), ofResource.FindStringSubmatch(line)
		if epochs == nil || names == nil {
			r.t.Fatalf("cannot read %q", line)
		}
		epoch, _ := strconv.ParseInt(epochs[1], 10, 64) // digits
		name := names[1]
		if raw, ok := strings.CutPrefix(name, `\x`); ok {
			b, err := hex.DecodeString(raw)
			if err != nil {
				r.t.Fatalf("cannot read %q: %v", line, err)
			}
			name = string(b)
		}
		p.apply(current, table[1], name, epoch)
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (p *proof) apply(current map[string]int64, table, name string, epoch int64) {
	switch {
	case table == "leases" && epoch < current[name]:
		p.falls++
	case table == "leases":
		if epoch > current[name] {
			p.raises++
		}
		current[name] = epoch
	default:
		p.writes++
		if epoch != current[name] {
			p.violations++
		}
	}
}

// The operations of a history.
const (
	opGrant = iota
	opRelease
	opWrite
)

// refusedAsStale is the output of a write that was.
const refusedAsStale = -1

type op struct {
	kind  int
	epoch int64
}

type history struct {
	mu    sync.Mutex
	begun time.Time
	ops   map[int][]porcupine.Operation
}

func (h *history) now() int64 {
	if h == nil {
		return 0
	}
	return int64(time.Since(h.begun))
}

func (h *history) add(who, i int, begun int64, in op, out int64) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops[i] = append(h.ops[i], porcupine.Operation{ClientId: who, Input: in, Call: begun, Output: out, Return: h.now()})
}

// held is the state of one resource: the epoch that may write, 0 for none, the
// highest so far, and how often was written.
type held struct{ epoch, highest, n int64 }

var model = porcupine.Model{
	Init: func() any { return held{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(held), input.(op), output.(int64)
		switch in.kind {
		case opGrant:
			return in.epoch > s.highest, held{in.epoch, in.epoch, s.n}
		case opRelease:
			return in.epoch == s.epoch, held{0, s.highest, s.n}
		}
		if out == refusedAsStale {
			return in.epoch != s.epoch, s
		}
		return in.epoch == s.epoch && out == s.n+1, held{s.epoch, s.highest, s.n + 1}
	},
}

// linearizable checks the history of every resource.
func (h *history) linearizable() (result porcupine.CheckResult, ops int) {
	result = porcupine.Ok
	for _, o := range h.ops {
		ops += len(o)
		if got := porcupine.CheckOperationsTimeout(model, o, 30*time.Second); got != porcupine.Ok {
			result = got
		}
	}
	return result, ops
}
