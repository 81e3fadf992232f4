package shard

import "fmt"

// Survey returns how many counters are in records of partition p of n, as Save returns them, and how many of those
// have expired at now, in Unix nanoseconds. It fails where Apply would.
func Survey(p, n uint32, records []byte, now int64) (counters, expired int, err error) {
	last := over(now)
	add := func(expires uint32) {
		counters++
		if expires <= last {
			expired++
		}
	}
	for rest := records; len(rest) > 0; {
		r, behind, err := nextRecord(rest)
		if err == nil {
			err = r.check(p, n)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("records of partition %d, at byte %d of %d: %w", p, len(records)-len(rest), len(records), err)
		}
		for i := range r.len() {
			add(r.slot(i).expires)
		}
		if r.tag == tagLong {
			add(r.usage.expires)
		}
		rest = behind
	}
	return counters, expired, nil
}
