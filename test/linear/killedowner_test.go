package linear

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// replicated is how old a standby's copy may be.
const replicated = 100 * time.Millisecond

// drained is in what time a node's callers have their answers, once they ask others.
const drained = 300 * time.Millisecond

// A history is linearizable across the death of an owner, if what the owner granted last may be lost, once, and only before
// its standby answers: also while standbys decide from their copies, and when they become owners.
func TestKilledOwner(t *testing.T) {
	testform.NotWhileRacing(t)
	form.FullOnly(t)
	all := slices.DeleteFunc(kinds(), func(k *kind) bool { return k.shared }) // their counters lose tokens on several nodes
	s := newStage(t, all, nil)
	l := newLoad("kill", all, s.deciders()...)
	l.moving, l.refunds = true, false
	l.start(t)
	wait(calm())
	victim := s.nodes[1]
	l.without(victim.Client)
	wait(drained)

	from := l.now()
	victim.Kill()
	to := l.now()
	s.drop(victim)
	process.AwaitMembers(t, settledWithin, s.nodes...)
	s.settle()
	t.Logf("its successors decide after %v", (l.now() - from).Round(time.Millisecond))
	wait(calm())
	l.stop()
	if n := l.sources[weirv1.Source_SOURCE_PROVISIONAL]; n == 0 {
		t.Error("no standby has decided while the owner was dead")
	}
	if len(l.unknown) > 0 {
		t.Errorf("%d checks without a decision, such as %q", len(l.unknown), l.unknown[:min(5, len(l.unknown))])
	}
	l.lose(from, to, func(h *history) int64 { return l.bound(h, from, to) })
	l.verify(t)
	l.reportLoss(t)
}

// bound is how many tokens of a history a kill may lose: what was granted in the last 100 ms, and for as long as the slowest call
// of the last second took, because then the copies are late as well. It is a tenth of the limit at least, as in test/chaos.
func (l *load) bound(h *history, from, to time.Duration) int64 {
	slowest := time.Duration(0)
	for _, c := range l.calls {
		if c.ended >= from-time.Second && c.ended <= to {
			slowest = max(slowest, c.lasted)
		}
	}
	return max(h.kind.limits[0].Capacity()/10, h.grantedWithin(from-replicated-slowest, to))
}

// reportLoss logs how many tokens the kill must have lost at least.
func (l *load) reportLoss(t *testing.T) {
	t.Helper()
	keys, touched, sum, most := 0, 0, int64(0), int64(0)
	for _, h := range l.histories {
		i := slices.IndexFunc(h.ops, func(o porcupine.Operation) bool { _, is := o.Input.(loss); return is })
		if i < 0 {
			continue
		}
		touched++
		bound := h.ops[i].Input.(loss).tokens
		for h.ops[i].Input = (loss{}); h.ops[i].Input.(loss).tokens < bound && h.search() != porcupine.Ok; {
			h.ops[i].Input = loss{h.ops[i].Input.(loss).tokens + 1}
		}
		if lost := h.ops[i].Input.(loss).tokens; lost > 0 {
			keys, sum, most = keys+1, sum+lost, max(most, lost)
		}
	}
	t.Logf("lost: %d tokens of %d of the %d keys of that time, at most %d of one", sum, keys, touched, most)
}
