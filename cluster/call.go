package cluster

import (
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/shard"
)

// call is one caller's wait for the answers to some requests.
type call struct {
	left atomic.Int32  // requests neither answered nor given up, plus 1 while the caller adds more
	done chan struct{} // has room for one; sent to by the goroutine that takes left to 0
	sent time.Time
	due  time.Time // when the requests that are not answered are given up

	again atomic.Int64 // nanoseconds after which unanswered requests should be asked again

	how  role               // as what the peer is asked
	span *trace.SpanContext // of the hop; of what is enqueued next; nil if the check is not traced

	one [1]*shard.Group // what is asked, if it is one
	hot [1]*hotCounter  // likewise
}

// more keeps what an answer to g says in addition to its decisions, if those fit. c may be nil.
func (a *call) more(g *shard.Group, c *hotCounter, h *answerHead, fits bool) {
	raise(&a.again, int64(h.wait))
	if !fits {
		return
	}
	h.deferAnswer(g)
	g.Waits = h.wait > 0 && g.Deferred == 0
	if h.lent > 0 {
		at := g.Takes[0].Decision.At
		g.TokenLease = shard.TokenLease{Tokens: h.lent, At: at, Until: at + h.lentFor}
	}
	if c != nil && g.ForNode {
		c.leased = h.leased
	}
}

// finish takes n requests off the wait.
func (a *call) finish(n int32) {
	if n > 0 && a.left.Add(-n) == 0 {
		a.done <- struct{}{}
	}
}
