package cluster

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/shard"
)

// A connection without answers is replaced, whether or not the peer reads what is sent.
func TestDeadConnsAreReplaced(t *testing.T) {
	for _, reads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var opened []time.Duration
			start := time.Now()
			c := newConn(func(context.Context) (net.Conn, error) {
				opened = append(opened, time.Since(start))
				here, there := net.Pipe()
				if reads {
					go func() { _, _ = io.Copy(io.Discard, there) }()
				}
				return here, nil
			}, DefaultAttemptTimeout)
			c.frames, c.notice = prometheus.NewCounter(prometheus.CounterOpts{Name: "frames"}), func() {}
			go c.run(ctx)
			time.Sleep(2*connIdle - probeEvery) // in a bubble
			cancel()
			synctest.Wait()
			if len(opened) != 2 || opened[1] < connIdle || opened[1] > connIdle+2*probeEvery {
				t.Errorf("reads %t: conns were opened at %v", reads, opened)
			}
		})
	}
}

// overTCP is the Dialer of real networks.
var overTCP = GreetingDialer(func(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}, newTestGreeter("a", 1))

// A broken connection connects again as soon as its peer, which has just been started, calls by itself.
func TestConnToAPeerThatCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialed := 0
		c := newConn(func(context.Context) (net.Conn, error) {
			dialed++
			return nil, net.ErrClosed
		}, DefaultAttemptTimeout)
		c.notice = func() {}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); c.run(ctx) }()
		for calls := range 3 {
			synctest.Wait()
			if dialed != 1+calls {
				t.Errorf("dialed %d times after %d calls", dialed, calls)
			}
			c.hears()
		}
		cancel()
		<-ended
	})
}

// A connection that was fine until it broke connects again soon, one to a peer that has said nothing is not
// dialed more often than pings are sent.
func TestConnThatBreaks(t *testing.T) {
	const lasts = 10 * time.Millisecond
	for answers, want := range map[bool]int{true: int(time.Second / redialEvery), false: int(time.Second / probeEvery)} {
		synctest.Test(t, func(t *testing.T) {
			dialed := 0
			c := newConn(func(context.Context) (net.Conn, error) {
				dialed++
				here, there := net.Pipe()
				go func() {
					frames := newFrameReader(there, maxFrame)
					if _, err := frames.next(); err == nil && answers {
						_ = writeFrame(there, appendAnswer(newFrame(nil), pingID, &shard.Group{Allowed: true}, false))
					}
					time.Sleep(lasts)
					_ = there.Close()
				}()
				return here, nil
			}, DefaultAttemptTimeout)
			c.frames, c.notice = prometheus.NewCounter(prometheus.CounterOpts{Name: "frames"}), func() {}
			ctx, cancel := context.WithCancel(t.Context())
			go c.run(ctx)
			time.Sleep(time.Second - time.Millisecond)
			cancel()
			synctest.Wait()
			if dialed != want {
				t.Errorf("answers %t: dialed %d times in a second, want %d", answers, dialed, want)
			}
		})
	}
}
