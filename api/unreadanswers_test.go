package api

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/wire"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// unreadMessages are more than a stream takes whose answers are not read.
const unreadMessages = 24

// manyChecks is a message with as many checks as one may have.
func manyChecks() *weirv1.StreamRateLimitsRequest {
	m := &weirv1.StreamRateLimitsRequest{}
	for i := range maxBatch {
		m.Requests = append(m.Requests, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: strconv.Itoa(i), Endpoint: "/both"})
	}
	return m
}

// Unread answers have one budget, after which streams end, those that are read go on, and connections that
// do not even read that are closed.
func TestUnreadStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		small := grpc.WithStaticStreamWindowSize(64 << 10) // otherwise it takes all answers in at once
		deaf, good := weirv1.NewRateLimiterClient(f.dial(t, small)), weirv1.NewRateLimiterClient(f.dial(t))
		message := manyChecks()
		var streams []weirv1.RateLimiter_StreamRateLimitsClient
		var senders sync.WaitGroup
		const unread = 60
		for range unread {
			stream, err := deaf.StreamRateLimits(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, stream)
			senders.Go(func() {
				for range unreadMessages {
					if stream.Send(message) != nil {
						return
					}
				}
			})
		}
		synctest.Wait() // all are blocked: none ends before the budget is used
		full := f.unread.used.Load()
		if ended := testutil.ToFloat64(f.unread.refused); full < maxUnread/2 || ended > 0 {
			t.Errorf("%d bytes are unread, %v streams have ended at once", full, ended)
		}
		<-time.After(2 * unreadWait)
		synctest.Wait()
		// Answers may be longer than was reserved. How many streams wait for room at that time, and end, depends on how they took turns.
		used, ended := f.unread.used.Load(), testutil.ToFloat64(f.unread.refused)
		if max(full, used) > 2*maxUnread || ended == 0 {
			t.Errorf("%d bytes are unread, %d before, %v streams have ended", used, full, ended)
		}
		stream, err := good.StreamRateLimits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if err := stream.Send(message); err != nil {
				t.Fatal(err)
			}
			if resp, err := stream.Recv(); err != nil || len(resp.GetResponses()) != maxBatch {
				t.Fatalf("a stream that is read: %v", err)
			}
		}
		// Those that have ended say why when they are read.
		var told atomic.Int32
		var readers sync.WaitGroup
		for _, stream := range streams[:30] {
			readers.Go(func() {
				for range unreadMessages {
					switch _, err := stream.Recv(); {
					case status.Code(err) == codes.ResourceExhausted:
						told.Add(1)
						return
					case err != nil:
						t.Errorf("a stream that was not read: %v", err)
						return
					}
				}
			})
		}
		readers.Wait()
		if told.Load() == 0 {
			t.Errorf("no stream of those that have ended says why")
		}
		synctest.Wait()
		if now := f.unread.used.Load(); now >= used {
			t.Errorf("%d bytes are unread after some were read, %d before", now, used)
		}
		<-time.After(2*unreadPatience + time.Second)
		synctest.Wait()
		if used := f.unread.used.Load(); used != 0 {
			t.Errorf("%d bytes are unread in the end", used)
		}
		if err := stream.Send(message); err != nil {
			t.Error(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Errorf("a stream that is read, in the end: %v", err)
		}
		senders.Wait()
	})
}

// An answer that gRPC takes while the client resets the stream, and then forgets, does not count for as long as the connection lasts.
func TestResetStreamsAreNotUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		conn := f.meteredConn(t)
		ctx, reset := context.WithCancel(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: meteredInfo{conn: conn}}))
		server := &fakeServer{ctx: ctx, messages: make(chan wire.Encoded), answers: make(chan wire.Encoded)}
		s, end := newStream(f.Limiter, server), make(chan error)
		go func() { end <- s.run() }()
		server.messages <- wire.CopyEncoded(nil)
		synctest.Wait()
		if got := f.unread.used.Load(); got < minMetered {
			t.Errorf("%d bytes are unread of an answer that is being sent", got)
		}
		reset()
		<-server.answers // is not freed
		close(server.messages)
		if err := <-end; err != nil {
			t.Error(err)
		}
		if got := f.unread.used.Load(); got != 0 {
			t.Errorf("%d bytes are unread of a stream that is reset", got)
		}
	})
}

// meteredConn returns a connection that nothing is read from.
func (f *fixture) meteredConn(t *testing.T) *meteredConn {
	t.Helper()
	near, far := net.Pipe()
	conn, _, err := f.Limiter.Credentials(insecure.NewCredentials()).ServerHandshake(near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = conn.Close(), far.Close() })
	return conn.(*meteredConn)
}
