package shard

import (
	"slices"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Bounds of the remembered tentative takes.
const (
	maxTentative = 64 // of one partition; further ones replace the oldest
	scarceShare  = 2  // a take that leaves a scarceShare-th of the limit,
	scarceCosts  = 64 // and as many times its cost, leaves plenty
)

// tentativeTake is a tentative take that may still be undone. It is undone if another node denies the rest
// of its group, so takes denied because of it may have room sooner than the limit alone says.
type tentativeTake struct {
	key      ring.Key
	at, cost int64
	scarce   bool
}

// over reports whether the take cannot be undone any more. The zero value is over.
func (d *tentativeTake) over(now int64) bool { return now-d.at >= int64(undoFor) }

// denies reports whether t may be denied because of d. What leaves plenty denies only what asks for more than that.
func (d *tentativeTake) denies(t *Take) bool {
	return d.key == t.Key && (d.scarce || t.Cost > t.Limit.Capacity()/scarceShare)
}

// IsScarce reports whether t, which is counted, leaves so little of its limit that takes of usual costs may soon be denied because
// of it. Only such a take is to be confirmed by Keep if it is tentative.
func (t *Take) IsScarce() bool {
	return t.Decision.Remaining < t.Limit.Capacity()/scarceShare || t.Decision.Remaining/scarceCosts < t.Cost
}

// tentativeLog is the last ones of one partition; guarded by the partition's mu.
type tentativeLog struct {
	takes  []tentativeTake // a ring: in the order of their takes from oldest on, and once round
	oldest int             // index
}

// add adds d, in the place of the oldest one if there are too many.
func (l *tentativeLog) add(d tentativeTake) {
	if len(l.takes) < maxTentative {
		l.takes = append(l.takes, d)
		return
	}
	l.takes[l.oldest] = d
	l.oldest = (l.oldest + 1) % maxTentative
}

// each calls f for each take, in their order.
func (l *tentativeLog) each(f func(d *tentativeTake)) {
	for i := range l.takes {
		f(&l.takes[(l.oldest+i)%len(l.takes)])
	}
}

func (s *Shard) tentativeOf(key ring.Key) *tentativeLog {
	return &s.tentative[key.Partition(uint32(len(s.tentative)))]
}

// recordTentativeLocked records t, which was counted tentatively.
func (s *Shard) recordTentativeLocked(t *Take) {
	s.tentativeOf(t.Key).add(tentativeTake{t.Key, t.Decision.At, t.Cost, t.IsScarce()})
}

// forgetTentativeLocked forgets t, which is undone, or stays.
func (s *Shard) forgetTentativeLocked(t *Take) {
	all := s.tentativeOf(t.Key).takes
	i := slices.IndexFunc(all, func(d tentativeTake) bool { return d.key == t.Key && d.at == t.Decision.At && d.cost == t.Cost })
	if i >= 0 {
		all[i] = tentativeTake{}
	}
}

// contendedLocked reports whether t, which was denied, has room without the tentative takes of its counter. Their
// undoing also may let it be retried sooner than the counter says: then its RetryAt becomes that. before is
// the counter's state unless the algorithm is long.
func (s *Shard) contendedLocked(p *partition, t *Take, before algorithms.State, now int64) bool {
	all := s.tentativeOf(t.Key)
	if len(all.takes) == 0 || t.Decision.RetryAt == algorithms.Never {
		return false
	}
	var long *algorithms.Long
	settled := int64(0)
	all.each(func(d *tentativeTake) {
		if d.over(now) || !d.denies(t) {
			return
		}
		settled = d.at + int64(undoFor)
		switch {
		case !t.Limit.Algorithm.Long():
			before = algorithms.Return(&t.Limit, before, now, d.at, d.cost)
			return
		case long == nil:
			long = p.long[t.Key].counter.Clone()
		}
		long.Return(&t.Limit, now, d.at, d.cost)
	})
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
