package contract

import (
	"slices"
	"strconv"
)

// hideSet is a set of schemas that may apply to one value. Values of a payload
// share their sets, and what a set comes to is found once: a payload repeats
// itself, and unions bring many schemas together.
type hideSet struct {
	nodes             []*node
	marked            bool // the value is
	inObject, inArray bool // what the schemas want in an object or an array is
	members           map[string]hideMember
	items             map[int]*hideSet
	prefix            int // the longest row of schemas for items
	// Of the schemas that speak about objects:
	split   bool
	objects []*node
	names   map[string][]*node // those that declare a name; nil for few schemas
	patterned,
	likely []*node // those with patterns, and with marks among members
	rest   []*node // the different schemas for members without a name
	restOf map[*node]int
}

// hideMember is what a set comes to for a member of an object.
type hideMember struct {
	set *hideSet
	// exact and declared say whether some schema declares the member by name, or
	// at all.
	exact, declared bool
}

// hideIndexed is from how many schemas on the names that they declare are
// gathered.
const hideIndexed = 16

// spread returns the set of all that schemas apply to the same value.
func (h *hiding) spread(list []*node) *hideSet {
	h.spend(len(list) / 8)
	h.key = h.key[:0]
	for _, n := range list {
		h.key = append(strconv.AppendInt(h.key, int64(n.id), 36), ' ')
	}
	s, ok := h.known[string(h.key)]
	if ok {
		return s
	}
	s = &hideSet{nodes: spread(list)}
	h.known[string(h.key)] = s
	h.spend(len(s.nodes) + len(list))
	for _, n := range s.nodes {
		s.marked = s.marked || n.sensitive
		s.inObject, s.inArray = s.inObject || n.secretMembers, s.inArray || n.secretItems
		if n.array != nil {
			s.prefix = max(s.prefix, len(n.array.prefix))
		}
	}
	return s
}

// divide sorts the schemas of a set by what they say about objects.
func (h *hiding) divide(s *hideSet) {
	if s.split {
		return
	}
	s.split, s.members, s.restOf = true, map[string]hideMember{}, map[*node]int{}
	h.spend(len(s.nodes))
	for _, n := range s.nodes {
		if n.object != nil {
			s.objects = append(s.objects, n)
		}
		if n.object != nil && len(n.object.patterns) > 0 {
			s.patterned = append(s.patterned, n)
		}
		if n.object != nil && n.secretMembers {
			s.likely = append(s.likely, n)
		}
		if r := n.forOthers(); r != nil {
			if s.restOf[r] == 0 {
				s.rest = append(s.rest, r)
			}
			s.restOf[r]++
		}
	}
	if len(s.objects) <= hideIndexed {
		return
	}
	s.names = map[string][]*node{}
	for _, n := range s.objects {
		h.spend(len(n.object.names) / 2)
		if h.all {
			return
		}
		for _, name := range n.object.names {
			s.names[name] = append(s.names[name], n)
		}
	}
}

// forOthers returns what a schema asks of members that it does not declare, nil
// when that says nothing.
func (n *node) forOthers() *node {
	if n.object == nil || !n.object.hasAdditional || n.object.additional.always != 0 {
		return nil
	}
	return n.object.additional
}

// declaring lists the schemas of a set that declare a member by name.
func (h *hiding) declaring(s *hideSet, name []byte) []*node {
	if s.names != nil {
		return s.names[string(name)]
	}
	var out []*node
	for _, n := range s.objects {
		if _, ok := n.object.props[string(name)]; ok {
			out = append(out, n)
		}
	}
	h.spend(len(s.objects) / 2)
	return out
}

// member returns what may apply to a member of an object. A name that is
// declared by a pattern alone may also be an alias of a sensitive property, or
// mean one.
func (h *hiding) member(s *hideSet, name []byte) hideMember {
	h.spend(0)
	h.divide(s)
	if m, ok := s.members[string(name)]; ok {
		return m
	}
	var list []*node
	covered := h.declaring(s, name)
	m := hideMember{exact: len(covered) > 0, declared: len(covered) > 0}
	for _, n := range covered {
		list = append(list, n.object.props[string(name)])
	}
	covered = covered[:len(covered):len(covered)]
	for _, n := range s.patterned {
		h.spend(n.object.patternWork(len(name)))
		if h.all {
			return hideMember{set: h.spread(nil)}
		}
		found := n.object.appendMatching(nil, name)
		for _, i := range found {
			list = append(list, n.object.patterns[i].node)
		}
		if len(found) > 0 {
			m.declared = true
			if _, byName := n.object.props[string(name)]; !byName {
				covered = append(covered, n)
			}
		}
	}
	list = append(list, s.others(covered)...)
	if m.declared && !m.exact {
		for _, n := range s.likely {
			list = append(list, h.meant(n.object, string(name))...)
		}
	}
	h.spend(len(list) + len(s.rest)/4)
	m.set = h.spread(list)
	s.members[string(name)] = m
	return m
}

// others lists what a set asks of a member besides what the schemas do that
// declare it.
func (s *hideSet) others(declaring []*node) []*node {
	left := s.restOf
	if len(declaring) > 0 {
		left = make(map[*node]int, len(declaring))
		for _, n := range declaring {
			if r := n.forOthers(); r != nil {
				left[r]--
			}
		}
		for r := range left {
			left[r] += s.restOf[r]
		}
	}
	var out []*node
	for _, r := range s.rest {
		if n, declared := left[r]; n > 0 || !declared {
			out = append(out, r)
		}
	}
	for _, n := range s.nodes {
		if n.unevalProps != nil {
			out = append(out, n.unevalProps)
		}
	}
	return out
}

// item returns what may apply to an item of an array. Items may be one off.
func (h *hiding) item(s *hideSet, i int) *hideSet {
	h.spend(0)
	i = min(i, s.prefix)
	if known, ok := s.items[i]; ok {
		return known
	}
	h.spend(len(s.nodes))
	var list []*node
	for _, n := range s.nodes {
		if n.unevalItems != nil {
			list = append(list, n.unevalItems)
		}
		a := n.array
		if a == nil {
			continue
		}
		for k, sub := range a.prefix {
			if k == i || sub.secretBelow {
				list = append(list, sub)
			}
		}
		h.spend(len(a.prefix))
		if a.rest != nil && (i >= len(a.prefix) || a.rest.secretBelow) {
			list = append(list, a.rest)
		}
		if a.contains != nil {
			list = append(list, a.contains)
		}
	}
	if len(list) == 0 { // an item stands for the array
		list = s.nodes
	}
	if s.items == nil {
		s.items = map[int]*hideSet{}
	}
	s.items[i] = h.spread(slices.Compact(list))
	return s.items[i]
}
