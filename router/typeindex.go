package router

import (
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// maxIndexed bounds the types whose members an index remembers.
const maxIndexed = 4096

// typeIndex finds the members of a feed that take a type. Patterns are exact
// types, prefixes that end with a dot, or all types; see [headgate.MatchType].
// It has no lock of its own.
type typeIndex struct {
	exact, prefix map[string][]*member
	all           []*member
	// known are the answers given since the members last changed.
	known map[string][]*member
}

func (x *typeIndex) add(m *member) {
	x.change(m, func(list []*member) []*member { return append(list, m) })
}

func (x *typeIndex) remove(m *member) {
	x.change(m, func(list []*member) []*member {
		return slices.DeleteFunc(list, func(o *member) bool { return o == m })
	})
}

// change applies fn to every list that a member's patterns put it into.
func (x *typeIndex) change(m *member, fn func([]*member) []*member) {
	if x.exact == nil {
		x.exact, x.prefix = map[string][]*member{}, map[string][]*member{}
	}
	set := func(lists map[string][]*member, key string) {
		if list := fn(lists[key]); len(list) > 0 {
			lists[key] = list
		} else {
			delete(lists, key)
		}
	}
	x.known = map[string][]*member{}
	for _, pattern := range slices.Compact(slices.Sorted(slices.Values(m.s.plan.Types))) {
		prefix, wild := strings.CutSuffix(pattern, "*")
		switch {
		case wild && prefix == "":
			x.all = fn(x.all)
		case wild:
			set(x.prefix, prefix)
		default:
			set(x.exact, pattern)
		}
	}
}

// of returns the members that take a type, each once. The caller must not keep
// or change the list.
func (x *typeIndex) of(eventType string) []*member {
	list, ok := x.known[eventType]
	if ok {
		return list
	}
	list = x.find(eventType)
	if x.known == nil || len(x.known) >= maxIndexed {
		x.known = map[string][]*member{}
	}
	x.known[strings.Clone(eventType)] = list // the type's own memory is that of a frame
	return list
}

func (x *typeIndex) find(eventType string) []*member {
	list := slices.Concat(x.all, x.exact[eventType])
	for i := range len(eventType) - 1 {
		if eventType[i] == '.' {
			list = append(list, x.prefix[eventType[:i+1]]...)
		}
	}
	seen := make(map[*member]bool, len(list))
	return slices.DeleteFunc(list, func(m *member) bool {
		had := seen[m]
		seen[m] = true
		return had || !m.s.plan.takes(eventType)
	})
}

// takes reports whether some pattern of the subscription takes the type.
func (p *plan) takes(eventType string) bool {
	return slices.ContainsFunc(p.Types, func(t string) bool { return headgate.MatchType(t, eventType) })
}
