package shard

import (
	"slices"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Bounds of the remembered tentative takes.
const (
	maxTentative = 64 // of one partition; further ones replace the oldest
	scarceShare  = 2  // takes that leave a scarceShare-th of the limit,
	scarceCosts  = 64 // and as many times their cost, are not remembered
)

// tentativeTake is a tentative take that may still be undone. It is undone if another node denies the rest
// of its group, so takes denied because of it may have room sooner than the limit alone says.
type tentativeTake struct {
	key      ring.Key
	at, cost int64
}

// IsScarce reports whether t, which is counted, leaves so little of its limit that others may soon be denied because of
// it. Only such a take is remembered if it is tentative, and is to be confirmed by Keep.
func (t *Take) IsScarce() bool {
	return t.Decision.Remaining < t.Limit.Capacity()/scarceShare || t.Decision.Remaining/scarceCosts < t.Cost
}

// over reports whether the take cannot be undone any more.
func (d tentativeTake) over(now int64) bool { return now-d.at >= int64(undoFor) }

// tentativeLog is those of one partition, in the order of their takes; guarded by the partition's mu.
type tentativeLog []tentativeTake

func (s *Shard) tentativeOf(key ring.Key) *tentativeLog {
	return &s.tentative[key.Partition(uint32(len(s.tentative)))]
}

// recordTentativeLocked records t, which was counted tentatively.
func (s *Shard) recordTentativeLocked(t *Take) {
	all := s.tentativeOf(t.Key)
	now := t.Decision.At
	list := slices.DeleteFunc(*all, func(d tentativeTake) bool { return d.over(now) })
	if len(list) == maxTentative {
		list = slices.Delete(list, 0, 1)
	}
	list = append(list, tentativeTake{t.Key, now, t.Cost})
	*all = list
}

// forgetTentativeLocked removes t, which is undone, or stays.
func (s *Shard) forgetTentativeLocked(t *Take) {
	all := s.tentativeOf(t.Key)
	if i := slices.Index(*all, tentativeTake{t.Key, t.Decision.At, t.Cost}); i >= 0 {
		*all = slices.Delete(*all, i, i+1)
	}
}

// contendedLocked reports whether t, which was denied, has room without the tentative takes of its counter. Their
// undoing also may let it be retried sooner than the counter says: then its RetryAt becomes that. before is
// the counter's state unless the algorithm is long.
func (s *Shard) contendedLocked(p *partition, t *Take, before algorithms.State, now int64) bool {
	all := *s.tentativeOf(t.Key)
	if len(all) == 0 || t.Decision.RetryAt == algorithms.Never {
		return false
	}
	var long *algorithms.Long
	settled := int64(0)
	for _, d := range all {
		if d.key != t.Key || d.over(now) {
			continue
		}
		settled = d.at + int64(undoFor)
		switch {
		case !t.Limit.Algorithm.Long():
			before = algorithms.Return(&t.Limit, before, now, d.at, d.cost)
			continue
		case long == nil:
			long = p.long[t.Key].counter.Clone()
		}
		long.Return(&t.Limit, now, d.at, d.cost)
	}
	if settled == 0 {
		return false
	}
	var without algorithms.Decision
	if long != nil {
		without = long.Step(&t.Limit, now, t.Cost, false)
	} else {
		_, without = algorithms.Step(&t.Limit, before, now, t.Cost)
	}
	if !without.Allowed {
		settled = max(settled, without.RetryAt)
	}
	t.Decision.RetryAt = min(t.Decision.RetryAt, settled)
	return without.Allowed
}
