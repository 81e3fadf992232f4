package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// feedLag is since when a standby may lack what it was sent.
type feedLag struct {
	mu    sync.Mutex
	since time.Time // when the oldest message was sent that was not acknowledged in whole, zero if there is none; guarded by mu
}

// begin records that a message is sent.
func (l *feedLag) begin(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		l.since = now
	}
}

// end records that the standby has all that it was sent, or is not to have it any more.
func (l *feedLag) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Time{}
}

// at returns how old the oldest message is that was not acknowledged, 0 if there is none.
func (l *feedLag) at(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.since))
}

// measuredReplicas measures what is sent to a standby or learner.
type measuredReplicas struct {
	peerv1.ReplicasClient
	lag      *feedLag
	duration prometheus.Observer
	failures prometheus.Counter
}

// Feed implements peerv1.ReplicasClient.
func (p measuredReplicas) Feed(ctx context.Context, req *peerv1.FeedRequest, opts ...grpc.CallOption) (*peerv1.FeedResponse, error) {
	sent := time.Now()
	p.lag.begin(sent)
	resp, err := p.ReplicasClient.Feed(ctx, req, opts...)
	p.duration.Observe(time.Since(sent).Seconds())
	switch {
	case err != nil:
		p.failures.Inc()
	case !slices.ContainsFunc(resp.GetReceipts(), isMissing):
		p.lag.end()
	}
	return resp, err
}

// isMissing reports whether changes are to be sent again.
func isMissing(r peerv1.FeedReceipt) bool {
	return r == peerv1.FeedReceipt_FEED_RECEIPT_AGAIN || r == peerv1.FeedReceipt_FEED_RECEIPT_LATER
}
