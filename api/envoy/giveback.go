package envoy

import (
	"context"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/shard"
)

// takeBack gives back what a request has taken that is denied by descriptors which do
// not deny alone: the node that counts could not know.
func (s *Service) takeBack(ctx context.Context, w *work) {
	if !w.Groups[0].Allowed || s.config.CountDenied || s.config.Shadow {
		return
	}
	back := []shard.Group{{}}
	var of []int
	for i := range w.Takes {
		if t := w.Takes[i]; check.Answered(&t) && t.Decision.Allowed && t.Cost > 0 {
			t.Cost = -t.Cost
			back[0].Takes, of = append(back[0].Takes, t), append(of, i)
		}
	}
	if len(of) == 0 {
		return
	}
	w.returned = true
	s.checks.Decider.Decide(ctx, back)
	for j, i := range of {
		if t := &back[0].Takes[j]; check.Answered(t) {
			w.Takes[i].Decision.Remaining = t.Decision.Remaining
		}
	}
	for i := range w.asked {
		if a, st := &w.asked[i], &w.statuses[i]; a.kind == byDescriptor && st.limited && !st.over {
			_, takes := w.Item(i)
			st.remaining = uint32(max(0, takes[0].Decision.Remaining+int64(a.requests)-a.limit.Limit))
		}
	}
}
