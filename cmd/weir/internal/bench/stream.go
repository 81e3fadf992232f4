package bench

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func wrongNumber(answers, checks int) error {
	return status.Errorf(codes.Internal, "%d answers to %d checks", answers, checks)
}

// streamConn keeps one stream, and opens another when that has ended. As many messages
// are under way on it as callers share it.
type streamConn struct {
	limiter  weirv1.RateLimiterClient
	requests *Requests

	mu   sync.Mutex
	pipe *pipe // guarded by mu; the last one, nil before the first
}

// Ask implements Conn: it sends a message, and waits for the answer of its id.
func (c *streamConn) Ask(ctx context.Context, keys []uint64) (Answers, error) {
	p, err := c.open()
	if err != nil {
		return Answers{}, err
	}
	return p.ask(ctx, c.requests.natives(keys))
}

// open returns the stream. It ends with its connection, or when a message cannot be sent
// in time.
func (c *streamConn) open() (*pipe, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pipe != nil && !c.pipe.ended() {
		return c.pipe, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := c.limiter.StreamRateLimits(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	c.pipe = &pipe{stream: stream, cancel: cancel, turn: make(chan struct{}, 1), waiting: make(map[uint64]*message)}
	go c.pipe.receive()
	return c.pipe, nil
}

// pipe is one stream.
type pipe struct {
	stream weirv1.RateLimiter_StreamRateLimitsClient
	cancel context.CancelFunc
	turn   chan struct{} // holds one entry while a goroutine sends

	mu      sync.Mutex
	last    uint64              // guarded by mu; the id given out last
	waiting map[uint64]*message // guarded by mu; by id
	err     error               // guarded by mu; why the stream has ended
}

// message is one that was sent and waits for its answer.
type message struct {
	checks  int
	done    chan struct{} // closed when the rest is there
	answers Answers
	err     error
}

func (p *pipe) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil
}

func (p *pipe) ask(ctx context.Context, requests []*weirv1.RateLimitRequest) (Answers, error) {
	w := &message{checks: len(requests), done: make(chan struct{})}
	id, err := p.register(w)
	if err != nil {
		return Answers{}, err
	}
	if err := p.send(ctx, &weirv1.StreamRateLimitsRequest{Id: id, Requests: requests}); err != nil {
		p.forget(id)
		return Answers{}, err
	}
	select {
	case <-w.done:
		return w.answers, w.err
	case <-ctx.Done():
		p.forget(id)
		return Answers{}, status.FromContextError(ctx.Err()).Err()
	}
}

func (p *pipe) register(w *message) (id uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	p.last++
	p.waiting[p.last] = w
	return p.last, nil
}

func (p *pipe) forget(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

// send waits for its turn, and for room in the stream. If there is none in time, the
// stream is given up: a message that was half sent cannot be taken back.
func (p *pipe) send(ctx context.Context, m *weirv1.StreamRateLimitsRequest) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	defer func() { <-p.turn }()
	defer context.AfterFunc(ctx, p.cancel)()
	if err := p.stream.Send(m); err != nil {
		// It only says that the stream has ended; receive finds out why.
		return status.Error(codes.Unavailable, "the stream has ended")
	}
	return nil
}

// receive hands out answers until the stream ends.
func (p *pipe) receive() {
	defer p.cancel()
	for {
		m, err := p.stream.Recv()
		if err != nil {
			p.end(err)
			return
		}
		p.mu.Lock()
		w := p.waiting[m.GetId()]
		delete(p.waiting, m.GetId())
		p.mu.Unlock()
		if w == nil {
			continue // no caller waits any more
		}
		if e := m.GetError(); e != nil {
			w.err = status.Error(codes.Code(e.GetCode()), e.GetMessage())
		} else {
			w.answers, w.err = countAll(m.GetResponses(), w.checks)
		}
		close(w.done)
	}
}

// end tells all readers that no more answers come.
func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	for id, w := range p.waiting {
		w.err = err
		close(w.done)
		delete(p.waiting, id)
	}
}
