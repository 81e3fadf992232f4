package dev

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

// Load asks a cluster at a rate, through one client, until Stop. Each second it tells what the answers were.
type Load struct {
	client  *client.Client
	request *weirv1.RateLimitRequest
	rate    int
	tell    func(string)
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	slots   chan struct{} // one for each check that waits for its answer

	allowed, denied, undecided, failed, unsent atomic.Int64 // since the last line
}

const loadStep = 10 * time.Millisecond // how often checks are sent

// ParseRate reads a rate, as 200/s or 200.
func ParseRate(text string) (int, error) {
	rate, err := strconv.Atoi(strings.TrimSuffix(text, "/s"))
	if err != nil || rate < 1 || rate > MaxRate {
		return 0, fmt.Errorf("%q is no rate between 1/s and %d/s", text, MaxRate)
	}
	return rate, nil
}

// StartLoad begins a load of checks per second. Each counts the request.
func StartLoad(c *Cluster, rate int, request *weirv1.RateLimitRequest) (*Load, error) {
	asking, err := client.New(c.nodes[0].address, client.WithSeeds(c.addresses()...))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{client: asking, request: request, rate: rate, tell: c.cfg.Tell, cancel: cancel, slots: make(chan struct{}, maxInFlight)}
	l.wait.Go(func() { l.send(ctx) })
	return l, nil
}

// Stop ends the load, and waits for the answers that are missing.
func (l *Load) Stop() error {
	l.cancel()
	l.wait.Wait()
	return l.client.Close()
}

// send sends by the clock, and leaves out what is above the bound of checks under way.
func (l *Load) send(ctx context.Context) {
	step := time.NewTicker(loadStep)
	defer step.Stop()
	begun, sent := time.Now(), 0
	told := begun
	for {
		select {
		case <-ctx.Done():
			return
		case <-step.C:
		}
		due := int(time.Since(begun).Seconds() * float64(l.rate))
		if due-sent > l.rate { // this process did not run for a second
			sent = due - l.rate
		}
		for ; sent < due; sent++ {
			l.check()
		}
		if time.Since(told) >= time.Second {
			told = told.Add(time.Second)
			l.tell(l.line())
		}
	}
}

func (l *Load) check() {
	select {
	case l.slots <- struct{}{}:
	default:
		l.unsent.Add(1)
		return
	}
	l.wait.Go(func() {
		defer func() { <-l.slots }()
		answer, err := l.client.Check(context.Background(), l.request)
		switch {
		case err != nil:
			l.failed.Add(1)
		case client.Undecided(answer):
			l.undecided.Add(1)
		case answer.GetAllowed():
			l.allowed.Add(1)
		default:
			l.denied.Add(1)
		}
	})
}

// line says what the answers were since the last line.
func (l *Load) line() string {
	text := fmt.Sprintf("load: %d allowed, %d denied, %d undecided", l.allowed.Swap(0), l.denied.Swap(0), l.undecided.Swap(0))
	if n := l.failed.Swap(0); n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	if n := l.unsent.Swap(0); n > 0 {
		text += fmt.Sprintf(", %d not sent", n)
	}
	return text
}
