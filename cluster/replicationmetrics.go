package cluster

import (
	"context"
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

// measuredPeer measures what is sent to a standby.
type measuredPeer struct {
	peerv1.PeerClient
	lag      *feedLag
	duration prometheus.Observer
	failures prometheus.Counter
}

// Replicate implements peerv1.PeerClient.
func (p measuredPeer) Replicate(ctx context.Context, req *peerv1.ReplicateRequest, opts ...grpc.CallOption) (*peerv1.ReplicateResponse, error) {
	sent := time.Now()
	p.lag.begin(sent)
	resp, err := p.PeerClient.Replicate(ctx, req, opts...)
	p.duration.Observe(time.Since(sent).Seconds())
	switch {
	case err != nil:
		p.failures.Inc()
	case len(resp.GetAgain()) == 0:
		p.lag.end()
	}
	return resp, err
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
	if err != nil {
		p.failures.Inc()
	} else {
		p.lag.end()
	}
	return resp, err
}

// lags returns by member how late the copies are that it has of what this node holds: 0 of one that is no standby.
func (k *Ownership) lags(now time.Time) map[string]time.Duration {
	standbys := make(map[*otherMember]bool)
	for p := range k.standbys {
		standbys[k.standbys[p].Load()] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	lags := make(map[string]time.Duration, len(k.peers))
	for id, c := range k.peers {
		lags[id] = 0
		if standbys[c] {
			lags[id] = c.lag.at(now)
		}
	}
	return lags
}
