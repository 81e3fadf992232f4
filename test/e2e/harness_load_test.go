package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

// tally counts what the callers of a load got to see.
type tally struct {
	owner, provisional, failOpen, denied, errs atomic.Int64
	firstErr                                   atomic.Pointer[error]
}

func (c *tally) add(resp *weirv1.RateLimitResponse, err error) {
	switch {
	case err != nil:
		c.errs.Add(1)
		c.firstErr.CompareAndSwap(nil, &err)
		return
	case resp.GetSource() == weirv1.Source_SOURCE_OWNER, resp.GetSource() == weirv1.Source_SOURCE_LENT,
		resp.GetSource() == weirv1.Source_SOURCE_RELAYED:
		c.owner.Add(1)
	case resp.GetSource() == weirv1.Source_SOURCE_PROVISIONAL:
		c.provisional.Add(1)
	case resp.GetSource() == weirv1.Source_SOURCE_FAIL_OPEN:
		c.failOpen.Add(1)
	default:
		c.errs.Add(1)
		err = fmt.Errorf("source %v", resp.GetSource())
		c.firstErr.CompareAndSwap(nil, &err)
	}
	if !resp.GetAllowed() {
		c.denied.Add(1)
	}
}

// decided fails the test unless owners have decided all but a few checks. On a
// machine that is busy with something else, a process may now and then get no
// processor for longer than a check may wait; a dead owner would be a third.
func (c *tally) decided(t *testing.T) {
	t.Helper()
	owner, failOpen := c.owner.Load(), c.failOpen.Load()
	if failOpen*100 > owner || owner == 0 {
		t.Errorf("%d checks decided by owners, %d provisionally, %d allowed undecided", owner, c.provisional.Load(), failOpen)
	}
}

// noErrors fails the test if a caller got an error.
func (c *tally) noErrors(t *testing.T) {
	t.Helper()
	if n := c.errs.Load(); n > 0 {
		t.Errorf("%d errors, the first: %v", n, *c.firstErr.Load())
	}
}

// load asks the nodes about a few hundred users, over and over, until the returned
// function is called. Its patience is far beyond what a check may take, on a busy machine too,
// and yet there is an error after it.
func load(nodes []*process.Node, into *atomic.Pointer[tally]) (stop func()) {
	const callersPerNode, users, loadPatience = 2, 300, 10 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i, n := range nodes {
		for j := range callersPerNode {
			wg.Go(func() {
				pace := time.NewTicker(2 * time.Millisecond)
				defer pace.Stop()
				for k := i + j; ctx.Err() == nil; k++ {
					call, done := context.WithTimeout(ctx, loadPatience)
					resp, err := n.Client.Check(call, user(fmt.Sprint("user-", k%users)))
					done()
					if ctx.Err() != nil && err != nil {
						return // broken off by the end of the load
					}
					into.Load().add(resp, err)
					<-pace.C
				}
			})
		}
	}
	return func() { cancel(); wg.Wait() }
}

// newTally makes the load count from zero, and returns what it has counted.
func newTally(into *atomic.Pointer[tally]) *tally {
	old := into.Swap(new(tally))
	return old
}

// pause waits, and only the test's deadline ends it early.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatal(ctx.Err())
	}
}
