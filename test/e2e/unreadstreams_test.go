package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// collected returns the MiB that are left of a node's heap after a garbage collection. The node has --pprof.
func collected(t *testing.T, n *process.Node) int {
	t.Helper()
	_, rest, _ := strings.Cut(n.Log(), `"msg":"serving profiles","url":"`)
	url, _, found := strings.Cut(rest, `"`)
	if !found {
		t.Fatal("the log does not say where profiles are served")
	}
	resp, err := http.Get(url + "heap?gc=1&debug=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ = strings.Cut(string(text), "# HeapAlloc = ")
	number, _, _ := strings.Cut(rest, "\n")
	bytes, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("%s has no HeapAlloc: %v", url, err)
	}
	return bytes >> 20
}

// Streams whose answers are not read take a bounded part of a node's memory, end with a reason, and release
// all of it; others go on meanwhile.
func TestUnreadStreams(t *testing.T) {
	testform.NotInBrief(t)
	n := process.Start(t, "--rules", "../../deploy/examples/quickstart.yaml", "--pprof", process.Host(t)+":0")
	heap := collected(t, n)
	const (
		conns, perConn = 10, 15
		ended          = 25  // streams at least, for want of memory
		bound          = 128 // MiB of unread answers
	)
	before := process.Memory(t, n.PID(), process.Resident)
	message := &weirv1.StreamRateLimitsRequest{}
	for i := range 1000 {
		message.Requests = append(message.Requests, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: strconv.Itoa(i), Endpoint: "/api/v1/posts"})
	}
	connect := func() weirv1.RateLimiterClient {
		conn, err := grpc.NewClient(n.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true))) // on a busy machine the node may be late to accept a connection
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return weirv1.NewRateLimiterClient(conn)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var senders sync.WaitGroup
	var streams []weirv1.RateLimiter_StreamRateLimitsClient
	for range conns {
		client := connect()
		for range perConn {
			stream, err := client.StreamRateLimits(ctx)
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, stream)
			senders.Go(func() {
				for more := true; more; {
					more = stream.Send(message) == nil // its answer has 100 KB, or few bytes if the node has no time
				}
			})
		}
	}
	process.Await(t, process.Patience, func() error {
		if got := n.Metric(t, "weir_streams_unread_total"); got < ended {
			return fmt.Errorf("%v streams have ended, want %d", got, ended)
		}
		return nil
	})
	if unread := n.Metric(t, "weir_unread_bytes"); unread > bound<<20 {
		t.Errorf("%v bytes are unread", unread)
	}
	if got := n.Metric(t, "weir_unfinished_ended_total"); got > 0 {
		t.Errorf("%v connections have ended without a reason", got)
	}
	good, err := connect().StreamRateLimits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := good.Send(message); err != nil {
			t.Fatal(err)
		}
		if _, err := good.Recv(); err != nil {
			t.Fatalf("a stream that is read: %v", err)
		}
	}
	told := make(chan struct{}, len(streams))
	for _, stream := range streams {
		go func() {
			for {
				if _, err := stream.Recv(); err != nil {
					if status.Code(err) == codes.ResourceExhausted {
						told <- struct{}{}
					}
					return
				}
			}
		}()
	}
	for i := range ended {
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Fatalf("%d streams say that they have ended because they are not read, want %d", i, ended)
		}
	}
	most := process.Memory(t, n.PID(), process.MostResident)
	t.Logf("%d MiB before, %d at most", before, most)
	if most > before+400 {
		t.Errorf("%d MiB at most, %d before", most, before)
	}
	cancel()
	senders.Wait()
	process.Await(t, time.Minute+process.Patience, func() error { // it may take a minute, which is what is promised
		if unread := n.Metric(t, "weir_unread_bytes"); unread > 0 {
			return fmt.Errorf("%v bytes are unread", unread)
		}
		return nil
	})
	// Free memory goes back to the system later, so this measures the heap and not the process.
	process.Await(t, time.Minute, func() error {
		if now := collected(t, n); now > heap+20 {
			return fmt.Errorf("the heap has %d MiB, %d before", now, heap)
		}
		return nil
	})
}
