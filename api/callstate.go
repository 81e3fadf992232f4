package api

import (
	"context"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// work holds what it takes to answer some requests; it is used again for others.
type work struct {
	check.Work
	list    wire.List               // what is still to be decoded
	decoded weirv1.RateLimitRequest // one after the other
	reply   answer                  // likewise
	out     []byte
}

func (l *Limiter) newWork(ctx context.Context) *work {
	w := l.works.Get().(*work)
	w.Decoder = (*decodedAgain)(w)
	l.checks.Begin(ctx, &w.Work)
	w.list.Reset()
	return w
}

// lease asks for a token lease of lend tokens for the last group, of whose tokens the caller has some already. Soft and
// elastic limits lend nothing: a caller that decides by itself could not tell which tokens are above the limit.
func (w *work) lease(lend, tokens int64) {
	begin := 0
	if n := len(w.Ends); n > 1 {
		begin = w.Ends[n-2]
	}
	for i := begin; i < len(w.Matches); i++ {
		if w.Matches[i].Above > 0 {
			return
		}
	}
	g := &w.Groups[len(w.Groups)-1]
	g.Lend, g.Tokens = lend, tokens
}

// endGroup makes one group of the takes since the last one.
func (w *work) endGroup(peek bool) error {
	begin := 0
	if n := len(w.Ends); n > 0 {
		begin = w.Ends[n-1]
	}
	if n := len(w.Takes) - begin; n > maxLimits {
		return wire.Invalid("rules", "%d limits apply to the request, more than %d", n, maxLimits)
	}
	if n := len(w.Takes); n > maxBatchLimits {
		return wire.Invalid("rules", "%d limits apply up to here, more than %d for a batch", n, maxBatchLimits)
	}
	w.AddGroup(peek)
	return nil
}
