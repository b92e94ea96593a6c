package broker

// DefaultPartitions is the number of partitions of a stream that names none.
const DefaultPartitions = 4

// PartitionOf returns the partition, of n, that a non-empty key belongs to:
// FNV-1a, 32 bits, modulo n. Log drivers use it so that a key stays in its
// partition across restarts and drivers.
func PartitionOf(key string, n int) uint32 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for i := range len(key) {
		h ^= uint32(key[i])
		h *= prime
	}
	return h % uint32(n)
}
