package contract

// failedUnions remembers of which unions no branch matched a container. Where
// unions nest, those within are asked for the verdict on what is around them,
// and again for its report, at each level.
type failedUnions struct {
	last []int32 // by value: the last union in list, one further; 0 for none
	list []failedUnion
}

type failedUnion struct {
	u      *union
	before int32 // of the same value, one further; 0 for none
}

// maxFailedAt bounds the unions that are remembered at one value.
const maxFailedAt = 16

// failedBefore reports whether it is known that no branch of a union matches.
func (e *evaluator) failedBefore(u *union, v int32) bool {
	f := &e.failed
	if len(f.list) == 0 || int(v) >= len(f.last) {
		return false
	}
	for i := f.last[v]; i > 0; i = f.list[i-1].before {
		if f.list[i-1].u == u {
			return true
		}
	}
	return false
}

// noteFailed notes that no branch of a union matches. What names become for a
// while is no container; and what applies depends on nothing else, unless the
// way there decides what a reference means.
func (e *evaluator) noteFailed(u *union, v int32) {
	if !e.reports || e.p.dynamic || e.t.values[v].kind < kindArray {
		return
	}
	f := &e.failed
	if len(f.list) == 0 {
		f.last = append(f.last[:0], make([]int32, len(e.t.values))...)
	}
	at := 0
	for i := f.last[v]; i > 0; i = f.list[i-1].before {
		at++
	}
	if at < maxFailedAt {
		f.list = append(f.list, failedUnion{u, f.last[v]})
		f.last[v] = int32(len(f.list))
	}
}

// forget readies the memory for another payload.
func (f *failedUnions) forget() {
	if cap(f.list) > maxPooledFindings {
		*f = failedUnions{}
	}
	f.list = f.list[:0]
}
