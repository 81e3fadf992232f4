package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// scriptedReplicas answers each Feed by the next answer, after 10 ms.
type scriptedReplicas struct {
	peerv1.ReplicasClient
	answers []func() (*peerv1.FeedResponse, error)
}

func (p *scriptedReplicas) Feed(context.Context, *peerv1.FeedRequest, ...grpc.CallOption) (*peerv1.FeedResponse, error) {
	time.Sleep(10 * time.Millisecond)
	next := p.answers[0]
	p.answers = p.answers[1:]
	return next()
}

// A standby is late from the first message that it did not acknowledge in whole until it has acknowledged one.
func TestStandbyLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lag feedLag
		failures := prometheus.NewCounter(prometheus.CounterOpts{Name: "failures"})
		duration := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "duration"})
		done := func() (*peerv1.FeedResponse, error) { return &peerv1.FeedResponse{}, nil }
		again := func() (*peerv1.FeedResponse, error) {
			return &peerv1.FeedResponse{Receipts: []peerv1.FeedReceipt{peerv1.FeedReceipt_FEED_RECEIPT_TAKEN, peerv1.FeedReceipt_FEED_RECEIPT_AGAIN}}, nil
		}
		failed := func() (*peerv1.FeedResponse, error) { return nil, errors.New("cut") }
		p := measuredReplicas{&scriptedReplicas{answers: []func() (*peerv1.FeedResponse, error){done, failed, again, done}}, &lag, duration, failures}
		for i, want := range []time.Duration{0, 110 * time.Millisecond, 220 * time.Millisecond, 0} {
			_, err := p.Feed(t.Context(), &peerv1.FeedRequest{})
			time.Sleep(100 * time.Millisecond)
			if got := lag.at(time.Now()); got != want || (err != nil) != (i == 1) {
				t.Errorf("message %d: %v late, want %v; %v", i, got, want, err)
			}
		}
		lag.begin(time.Now())
		time.Sleep(time.Second)
		if got := lag.at(time.Now()); got != time.Second {
			t.Errorf("under way for %v, want 1s", got)
		}
		lag.end()
		if got := lag.at(time.Now()); got != 0 {
			t.Errorf("%v late after the end", got)
		}
		if n := testutil.ToFloat64(failures); n != 1 {
			t.Errorf("%v failures, want 1", n)
		}
		if n := testutil.CollectAndCount(duration); n != 1 {
			t.Errorf("%d histograms", n)
		}
	})
}
