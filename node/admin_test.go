package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// With an admin port, metrics, profiles and changes are served there only, over HTTP and gRPC, and checks at the other
// ports only. The port is free again when the node has ended.
func TestAdminPort(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	opts.Admin = "127.0.0.1:0"
	info, stop, ended := start(t, opts)
	for _, tc := range []struct {
		path          string
		public, admin int
	}{
		{"/healthz", 200, 200}, {"/readyz", 200, 200}, {"/openapi.json", 200, 200}, {"/v1/nodes", 200, 200}, {"/v1/rules", 200, 200},
		{"/metrics", 404, 200}, {"/v1/ring", 404, 200}, {"/debug/pprof/", 404, 200}, {"/debug/pprof/heap", 404, 200}, {"/auth", 404, 404},
	} {
		for address, want := range map[string]int{info.HTTP: tc.public, info.Admin: tc.admin} {
			if tc.path == "/auth" && address == info.HTTP {
				continue // its answer depends on the rules
			}
			if code, body := get(t, "http://"+address+tc.path); code != want || strings.Contains(body, info.Admin) && address == info.HTTP {
				t.Errorf("%s%s: %d, want %d\n%.300s", address, tc.path, code, want, body)
			}
		}
	}
	for address, public := range map[string]bool{info.GRPC: true, info.Admin: false} {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		_, check := weirv1.NewRateLimiterClient(conn).CheckRateLimit(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "a"})
		_, drain := weirv1.NewClusterClient(conn).DrainNode(t.Context(), &weirv1.DrainNodeRequest{NodeId: "a", Cancel: true})
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		for call, tc := range map[string]struct {
			err    error
			served bool
		}{"check": {check, public}, "drain": {drain, !public}} {
			if refused := status.Code(tc.err) == codes.Unimplemented && strings.Contains(tc.err.Error(), "admin port"); refused == tc.served {
				t.Errorf("%s at %s: %v", call, address, tc.err)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if resp, err := http.Get("http://" + info.Admin + "/healthz"); err == nil {
		_ = resp.Body.Close()
		t.Error("the admin port is served after the end")
	}
}

// What a client sends over gRPC at the admin port ahead of what the node needs has a bound. Then the call ends, with a reason.
func TestAdminPortHoldsLittle(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	opts.Admin = "127.0.0.1:0"
	info, stop, ended := start(t, opts)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	const calls, size = 12, 4 << 20 // more than 32 MiB
	messages := make(chan string, calls)
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			body, write := io.Pipe()
			defer write.Close()
			go func() {
				_, _ = write.Write(append(binary.BigEndian.AppendUint32([]byte{0}, size), make([]byte, size-1)...))
			}()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+info.Admin+"/weir.v1.Cluster/DrainNode", body)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/grpc")
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return // it is over
			}
			if _, err := io.Copy(io.Discard, resp.Body); err == nil { // trailers come after it
				messages <- resp.Trailer.Get("Grpc-Message")
			}
			_ = resp.Body.Close()
		})
	}
	select {
	case message := <-messages:
		if !strings.Contains(message, "too many requests have begun to arrive") {
			t.Errorf("a call ended with %q", message)
		}
	case <-time.After(time.Minute):
		t.Error("no call ends")
	}
	cancel()
	all.Wait()
	if _, metrics := get(t, "http://"+info.Admin+"/metrics"); !strings.Contains(metrics, "\nweir_unfinished_ended_total ") || strings.Contains(metrics, "\nweir_unfinished_ended_total 0\n") {
		t.Error("the metrics do not say that a call has ended")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A call that holds too much ends though its client does not read its answers: what gRPC has of it is free then.
func TestAdminPortEndsUnreadCalls(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	opts.Admin = "127.0.0.1:0"
	info, stop, ended := start(t, opts)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	ask := []byte("\x00\x00\x00\x00\x15\x22\x13weir.v1.RateLimiter") // for its file, which is longer
	// The node reads at least 1 MiB of each call, Go's window of a stream: it opens none again while an answer waits. They are more than 32 MiB.
	const calls, size = 40, 2 << 20
	over := make(chan struct{}, calls)
	for range calls {
		body := &askingBody{size: size, text: bytes.Repeat(ask, 1000), over: make(chan struct{})}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+info.Admin+"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		go func() {
			<-body.over
			over <- struct{}{}
		}()
		resp, err := transport.RoundTrip(req)
		if err != nil {
			break // the node has ended it
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("no call ends")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// askingBody is a text again and again, and waits at the end until its request is over.
type askingBody struct {
	text       []byte
	size, sent int
	over       chan struct{}
	once       sync.Once
}

// Read implements io.Reader.
func (b *askingBody) Read(p []byte) (int, error) {
	if b.sent >= b.size {
		<-b.over
		return 0, io.EOF
	}
	n := copy(p, b.text[b.sent%len(b.text):])
	b.sent += n
	return n, nil
}

// Close implements io.Closer.
func (b *askingBody) Close() error {
	b.once.Do(func() { close(b.over) })
	return nil
}

// get returns the code and the body of an answer.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// Other nodes reach an admin port that listens on all interfaces by the host of the node.
func TestAdvertisedAdmin(t *testing.T) {
	for _, tc := range []struct{ admin, advertise, want string }{
		{"", "node-1:9090", ""},
		{"127.0.0.1:9100", "node-1:9090", "127.0.0.1:9100"},
		{":9100", "node-1:9090", "node-1:9100"},
		{"[::]:9100", "[fd00::1]:9090", "[fd00::1]:9100"},
	} {
		if got := (Options{Admin: tc.admin, Advertise: tc.advertise}).advertisedAdmin(); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}
