package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// States of a call.
const (
	waiting   int32 = iota
	answered        // the caller will take the answer
	abandoned       // the caller has gone: the goroutine that would answer it frees it
)

// Why a call was not answered.
var (
	errBroken = errors.New("connection broke")
	errLate   = errors.New("not answered in time")
)

// call is what one caller waits for: a check, or a batch of them. It is used again for
// others.
type call struct {
	bytes     []byte // of a StreamRateLimitsRequest
	checks    int
	batch     bool // so an error says which request is meant
	traced    bool // so no other call is in its message
	givesBack bool // tokens; counted twice it would free tokens that are in use
	begun     time.Time
	due       time.Time
	place     uint64 // among the calls of its conn, from when it is enqueued

	pool  *callPool
	state atomic.Int32
	done  chan struct{} // has room for one; sent to by the goroutine that makes it answered
	timer *time.Timer

	// The answer; set before done is sent to.
	responses []*weirv1.RateLimitResponse
	err       error
	sent      bool // so it may have been counted, even if err is not nil

	message weirv1.StreamRateLimitsRequest // to encode; empty otherwise
}

// callPool holds calls that are not in use.
type callPool struct{ sync.Pool }

func newCallPool() *callPool {
	p := new(callPool)
	p.New = func() any {
		k := &call{pool: p, done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		k.timer.Stop()
		return k
	}
	return p
}

// take returns a call for requests that belong to the span parent, a traceparent, or to none if that is empty. It fails only for what every node would refuse.
func (p *callPool) take(parent string, reqs []*weirv1.RateLimitRequest, batch bool, begun, due time.Time) (*call, error) {
	k := p.Get().(*call)
	k.state.Store(waiting)
	k.checks, k.batch, k.givesBack, k.begun, k.due = len(reqs), batch, false, begun, due
	k.message.Requests = append(k.message.Requests[:0], reqs...)
	k.traced, k.message.Traceparent = parent != "", parent
	var err error
	k.bytes, err = proto.MarshalOptions{}.MarshalAppend(k.bytes[:0], &k.message)
	clear(k.message.Requests)
	k.message.Traceparent = ""
	for _, req := range reqs {
		k.givesBack = k.givesBack || req.GetTokensRequested() < 0
	}
	switch n := len(k.bytes); {
	case err != nil: // a text that is no UTF-8
		err = status.Errorf(codes.InvalidArgument, "requests: %v", err)
	case n > maxFrame:
		err = status.Errorf(codes.InvalidArgument, "requests: %d bytes are more than %d", n, maxFrame)
	default:
		return k, nil
	}
	k.free()
	return nil, err
}

// free returns the call to the pool. No other goroutine must have it.
func (k *call) free() {
	if cap(k.bytes) > keepBytes {
		k.bytes = nil
	}
	k.responses, k.err, k.sent = nil, nil, false
	k.pool.Put(k)
}

// settle answers the call. It belongs to its caller then.
func (k *call) settle(responses []*weirv1.RateLimitResponse, err error, sent bool) {
	if !k.state.CompareAndSwap(waiting, answered) {
		k.free()
		return
	}
	k.responses, k.err, k.sent = responses, err, sent
	k.done <- struct{}{}
}

// wait waits for the answer until then, or until ctx ends, and reports whether it has
// come.
func (k *call) wait(ctx context.Context, until time.Time) bool {
	k.timer.Reset(max(1, time.Until(until)))
	defer k.timer.Stop()
	select {
	case <-k.done:
		return true
	case <-k.timer.C:
	case <-ctx.Done():
	}
	return false
}

// abandon leaves the call to the goroutine that would answer it. It returns false if it is answered
// already.
func (k *call) abandon() bool {
	if k.state.CompareAndSwap(waiting, abandoned) {
		return true
	}
	<-k.done
	return false
}
