package contract

// hide notes that no report may show a value, nor anything inside it.
func (e *evaluator) hide(v int32) {
	if e.sensitive == nil {
		e.sensitive = map[int32]bool{}
	}
	e.sensitive[v] = true
}

// hidden reports whether a value, or one around it, may not be shown.
func (e *evaluator) hidden(v int32) bool {
	if e.sensitive == nil {
		return false
	}
	for ; v >= 0; v = e.t.values[v].parent {
		if e.sensitive[v] {
			return true
		}
	}
	return false
}

// got describes a value for a report.
func (e *evaluator) got(v int32) string {
	if !e.hidden(v) {
		return e.t.got(v)
	}
	return typeNames[e.t.values[v].kind] + ", which the contract marks as sensitive"
}
