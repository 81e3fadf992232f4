package rules

import (
	"github.com/weirlimit/weir/ring"
)

// enforced says whether a denial by the counters that share key denies, for a
// percentage of them: those of the lowest shares, so that a higher percentage only
// adds some. The high half of Lo is even, and known to no caller.
func enforced(key ring.Key, percent int64) bool {
	share := key.Lo >> 32 * 100 >> 32
	return int64(share) < percent
}

// Enforces reports whether a denial of r denies for the counters whose keys have that Lo: see Rule.Enforce.
func (r *Rule) Enforces(lo uint64) bool { return enforced(ring.Key{Lo: lo}, r.Enforce) }
