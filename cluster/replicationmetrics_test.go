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

// scriptedPeer answers each Replicate by the next answer, after 10 ms.
type scriptedPeer struct {
	peerv1.PeerClient
	answers []func() (*peerv1.ReplicateResponse, error)
}

func (p *scriptedPeer) Replicate(context.Context, *peerv1.ReplicateRequest, ...grpc.CallOption) (*peerv1.ReplicateResponse, error) {
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
		done := func() (*peerv1.ReplicateResponse, error) { return &peerv1.ReplicateResponse{}, nil }
		again := func() (*peerv1.ReplicateResponse, error) { return &peerv1.ReplicateResponse{Again: []uint32{3}}, nil }
		failed := func() (*peerv1.ReplicateResponse, error) { return nil, errors.New("cut") }
		p := measuredPeer{&scriptedPeer{answers: []func() (*peerv1.ReplicateResponse, error){done, failed, again, done}}, &lag, duration, failures}
		for i, want := range []time.Duration{0, 110 * time.Millisecond, 220 * time.Millisecond, 0} {
			_, err := p.Replicate(t.Context(), &peerv1.ReplicateRequest{})
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
