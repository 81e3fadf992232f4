package client_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"

	"github.com/weirlimit/weir/internal/inmemory"
)

const lentWindow = 500 * time.Millisecond

// lender is a node, at "l:1", that counts every user in one fixed window, and lends as many tokens as it
// can: half of those left, until the end of the window. Its answers say in reset_time in which window they
// were counted.
type lender struct {
	weirv1.UnimplementedRateLimiterServer
	weirv1.UnimplementedRateLimiterHealthServer
	limit int64
	delay func() time.Duration // before a message is decided, and before it is answered

	mu      sync.Mutex
	spoil   func(*weirv1.StreamRateLimitsResponse) // does something to an answer, unless nil; guarded by mu
	counted map[int64]int64                        // by window; guarded by mu
	lent    int64                                  // guarded by mu
	asked   int64                                  // guarded by mu
	server  *grpc.Server                           // guarded by mu
}

func window(t time.Time) int64 { return t.UnixNano() / int64(lentWindow) }

// serve starts the lender, again after stop.
func (l *lender) serve(n *network) {
	listener := inmemory.NewListener()
	server := grpc.NewServer(grpc.WaitForHandlers(true)) // they sleep
	weirv1.RegisterRateLimiterServer(server, l)
	weirv1.RegisterRateLimiterHealthServer(server, l)
	go func() { _ = server.Serve(listener) }()
	n.mu.Lock()
	n.nodes["l:1"] = &fakeNode{listener: listener}
	n.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = server
}

// setSpoil has something done to answers, or with nil nothing.
func (l *lender) setSpoil(spoil func(*weirv1.StreamRateLimitsResponse)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spoil = spoil
}

func (l *lender) stop() {
	l.mu.Lock()
	server := l.server
	l.mu.Unlock()
	server.Stop()
}

func startLender(n *network, limit int64) *lender {
	l := &lender{limit: limit, delay: func() time.Duration { return 0 }, counted: make(map[int64]int64)}
	l.serve(n)
	n.t.Cleanup(l.stop)
	return l
}

func (l *lender) GetHealthStatus(context.Context, *weirv1.GetHealthStatusRequest) (*weirv1.GetHealthStatusResponse, error) {
	return &weirv1.GetHealthStatusResponse{NodeId: "l"}, nil
}

func (l *lender) StreamRateLimits(stream weirv1.RateLimiter_StreamRateLimitsServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		pause(l.delay())
		answer := &weirv1.StreamRateLimitsResponse{Id: m.GetId()}
		if n := len(m.GetRequests()); n > 1000 {
			answer.Error = &weirv1.CheckError{Code: 3, Message: "requests: too many"}
			m.Requests = nil
		}
		if slices.ContainsFunc(m.GetRequests(), func(r *weirv1.RateLimitRequest) bool { return r.GetTokensRequested() > 1<<31 }) {
			l.refuse(m.GetRequests())
			answer.Error = &weirv1.CheckError{Code: 3, Message: "requests[0].tokens_requested: too many"}
			m.Requests = nil
		}
		for _, r := range m.GetRequests() {
			answer.Responses = append(answer.Responses, l.decide(r))
		}
		l.mu.Lock()
		spoil := l.spoil
		l.mu.Unlock()
		if spoil != nil {
			spoil(answer)
		}
		pause(l.delay())
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func pause(d time.Duration) {
	if d > 0 {
		<-time.After(d) // in a bubble
	}
}

// refuse counts what is asked for too much.
func (l *lender) refuse(reqs []*weirv1.RateLimitRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked += int64(len(reqs))
}

func (l *lender) decide(r *weirv1.RateLimitRequest) *weirv1.RateLimitResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	now := time.Now()
	w, cost := window(now), r.GetTokensRequested()
	answer := &weirv1.RateLimitResponse{ResetTime: w, Source: weirv1.Source_SOURCE_OWNER, RuleId: "per-user"}
	if cost < 0 {
		answer.Allowed = true
		if r.GetDebitedAt() != 0 && window(time.Unix(0, r.GetDebitedAt())) == w {
			l.counted[w] += cost
		}
		return answer
	}
	cost = max(1, cost)
	if l.counted[w]+cost > l.limit {
		return answer
	}
	l.counted[w] += cost
	answer.Allowed = true
	if lent := min(r.GetLease(), (l.limit-l.counted[w])/2); lent > 0 {
		l.counted[w] += lent
		l.lent += lent
		end := time.Unix(0, (w+1)*int64(lentWindow))
		answer.Lease = &weirv1.Lease{Tokens: lent, DebitedAt: now.UnixNano(), ValidFor: durationpb.New(end.Sub(now))}
	}
	return answer
}

// upTo returns random durations below most.
func upTo(r *rand.Rand, most time.Duration) func() time.Duration {
	var mu sync.Mutex
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(r.Int64N(int64(most)))
	}
}
