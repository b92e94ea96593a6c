package topology

// MaxCached is the bound of the cache.
const MaxCached = maxCached

// Cached counts the answers in the cache.
func Cached(t *Table) int {
	n := 0
	t.cache.Range(func(any, any) bool { n++; return true })
	return n
}
