package hostile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// secured is a node with TLS, an admin port, a port for Envoy, and an etcd that takes TLS. Its HTTP speaks HTTP/2.
type secured struct {
	*process.Node
	process.Certificates
	rls    string // address of the port for Envoy
	tokens int    // that accessTokens has created
}

func startSecured(t *testing.T) *secured {
	t.Helper()
	c := process.NewCertificates(t, "127.0.0.1")
	l, err := net.Listen("tcp", net.JoinHostPort(process.Host(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	rls := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	node := c.Start("a", "--admin", net.JoinHostPort(process.Host(t), "0"), "--etcd-listen", "0.0.0.0:0",
		"--rls-listen", rls, "--rls-cert", c.File("node-a.crt"), "--rls-key", c.File("node-a.key"), "--rls-ca", c.File("ca.crt"))
	return &secured{Node: node, Certificates: c, rls: rls}
}

// config is how the administrator connects, by the first of these protocols that the node speaks.
func (s *secured) config(protocols ...string) *tls.Config {
	config := s.Config("client-admin")
	config.NextProtos = protocols
	return config
}

// dialGRPC connects a client of gRPC to an address of the node.
func (s *secured) dialGRPC(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	return dialGRPC(t, address, grpc.WithTransportCredentials(credentials.NewTLS(s.config())))
}

func dialGRPC(t *testing.T, address string, option grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// http2Client returns a client that speaks HTTP/2 on one connection, without TLS if config is nil, and what URLs of its requests begin with.
func http2Client(t *testing.T, config *tls.Config) (client *http.Client, scheme string) {
	transport := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true}}
	transport.Protocols.SetHTTP2(config != nil)
	transport.Protocols.SetUnencryptedHTTP2(config == nil)
	t.Cleanup(transport.CloseIdleConnections)
	if config == nil {
		return &http.Client{Transport: transport}, "http://"
	}
	return &http.Client{Transport: transport}, "https://"
}

// httpWay is a way by which a node is asked over HTTP.
type httpWay struct {
	name   string
	client *http.Client
	url    string
	checks bool // are answered there
}

// httpWays are all ways over HTTP: the version of it, TLS, and the port.
func httpWays(t *testing.T, target *target) []httpWay {
	unencrypted, plain := http2Client(t, nil)
	tls2, secure := http2Client(t, target.secured.config("h2"))
	tls1 := &http.Transport{TLSClientConfig: target.secured.config("http/1.1")}
	t.Cleanup(tls1.CloseIdleConnections)
	return []httpWay{
		{"HTTP", http.DefaultClient, plain + target.HTTP, true},
		{"HTTPS", &http.Client{Transport: tls1}, secure + target.secured.HTTP, true},
		{"HTTP/2 by TLS", tls2, secure + target.secured.HTTP, true},
		{"the admin port", http.DefaultClient, plain + target.admin.Admin, false},
		{"HTTP/2 at the admin port", unencrypted, plain + target.admin.Admin, false},
		{"HTTP/2 by TLS at the admin port", tls2, secure + target.secured.Admin, false},
	}
}

// overAllHTTP posts a body by all ways on which the path is served, and returns the answer of the first. The others say the same.
func overAllHTTP(t *testing.T, target *target, path, body string, served func(httpWay) bool) (answer string) {
	t.Helper()
	for _, way := range httpWays(t, target) {
		if !served(way) {
			continue
		}
		resp, err := way.client.Post(way.url+path, "application/json", strings.NewReader(body))
		got := answered(t, resp, err)
		if answer == "" {
			answer = got
		}
		if got != answer {
			t.Errorf("%s by %s: %.300s, by another way %.300s", path, way.name, got, answer)
		}
	}
	return answer
}

// auth asks as a proxy by all ways of HTTP, with a header field, and returns the answer of the first. The others say the same.
func auth(t *testing.T, target *target, path, field, value string) (answer string) {
	t.Helper()
	for _, way := range httpWays(t, target) {
		if !way.checks {
			continue
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, way.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(field, value)
		resp, err := way.client.Do(req)
		got := answered(t, resp, err)
		if answer == "" {
			answer = got
		}
		if got != answer {
			t.Errorf("%s by %s: %.300s, by another way %.300s", path, way.name, got, answer)
		}
	}
	return answer
}

func everyWay(httpWay) bool     { return true }
func forChecks(w httpWay) bool  { return w.checks }
func forChanges(w httpWay) bool { return !w.checks || w.name == "HTTP" } // the secured node has an admin port

// isSame fails unless an error is said with the same code and message by another way; the message may begin with a place.
func isSame(t *testing.T, way, got, want string) {
	t.Helper()
	code, message, _ := strings.Cut(want, ": ")
	if !strings.HasPrefix(got, code) || !strings.HasSuffix(got, message) {
		t.Errorf("by %s: %.300s, by a call of its own %.300s", way, got, want)
	}
}

// inBatches asks for the check in a batch and on a stream, and has it explained; all answer as want. Explanations have no leases.
func inBatches(t *testing.T, target *target, r *weirv1.RateLimitRequest, want string) {
	t.Helper()
	client := weirv1.NewRateLimiterClient(target.conn)
	batch := &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{r}}
	_, err := client.CheckRateLimitBatch(t.Context(), batch)
	isSame(t, "batch", said(err), want)
	overHTTP(t, target, "/v1/check:batch", batch, err)
	isSame(t, "stream", onStream(t, target, batch), want)
	if r.GetLease() > 0 {
		return
	}
	_, err = client.ExplainRateLimit(t.Context(), r)
	isSame(t, "explanation", said(err), want)
	overHTTP(t, target, "/v1/explain", r, err)
}

// onStream asks by a message of a stream.
func onStream(t *testing.T, target *target, batch *weirv1.RateLimitBatchRequest, options ...grpc.CallOption) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := weirv1.NewRateLimiterClient(target.conn).StreamRateLimits(ctx, options...)
	if err == nil {
		err = stream.Send(&weirv1.StreamRateLimitsRequest{Requests: batch.GetRequests()})
	}
	if err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if refused := resp.GetError(); refused != nil {
		return code.Code(refused.GetCode()).String() + ": " + refused.GetMessage()
	}
	return said(err)
}

// applyBytes applies a file of rules by a message that has n bytes, at the port for gRPC and at the admin port.
func applyBytes(t *testing.T, target *target, n int, want string, options ...grpc.CallOption) {
	t.Helper()
	req := &weirv1.ApplyRulesRequest{DryRun: true}
	for size := n; proto.Size(req) != n; size -= proto.Size(req) - n {
		req.Rules = "domain: bytes\nrules: []\n#" + text(size)
	}
	for name, conn := range map[string]*grpc.ClientConn{
		"gRPC": target.conn, "the admin port": dialGRPC(t, target.admin.Admin, insecureConn), "TLS at the admin port": target.secured.dialGRPC(t, target.secured.Admin),
	} {
		_, err := weirv1.NewRateLimiterConfigClient(conn).ApplyRules(t.Context(), req, options...)
		isSame(t, "a file of rules by "+name, said(err), want)
	}
}

// envoyWays asks by Envoy's API at the port for gRPC, at the port for Envoy alone, and over HTTP, and returns the answer of the first.
func envoyWays(t *testing.T, target *target, of func(way string) *rls.RateLimitRequest) string {
	t.Helper()
	answer := shouldRateLimit(t, target.conn, of("grpc"))
	isSame(t, "--rls-listen", shouldRateLimit(t, target.secured.dialGRPC(t, target.secured.rls), of("rls")), answer)
	body, err := protojson.Marshal(of("json"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(answer, "OVER_LIMIT", "429 ", 1)
	if got := post(t, target, "/json", string(body)); !strings.HasPrefix(got, want) {
		t.Errorf("/json: %.300s, over gRPC %.300s", got, answer)
	}
	return answer
}

// http2Header asks for a page over HTTP/2 with header fields of n bytes, as HTTP/2 counts them, at the admin port without TLS, and by TLS.
func http2Header(t *testing.T, target *target, n int) (answer string) {
	secure := target.secured.config("h2")
	for address, config := range map[string]*tls.Config{target.admin.Admin: nil, target.secured.Admin: secure, target.secured.HTTP: secure} {
		got := headersOf(t, address, config, n)
		if answer != "" && got != answer {
			t.Errorf("%s, and by another way %s", got, answer)
		}
		answer = got
	}
	return answer
}

func headersOf(t *testing.T, address string, config *tls.Config, n int) string {
	t.Helper()
	c := dialHTTP2By(t, address, config)
	host, _, _ := net.SplitHostPort(address)
	fields := []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/healthz"}, {Name: ":authority", Value: host},
	}
	size := 0
	for _, f := range fields {
		size += int(f.Size())
	}
	field := hpack.HeaderField{Name: "x"}
	field.Value = text(n - size - int(field.Size()))
	c.must(t, c.writeHeaders(c.encode(append(fields, field)), true))
	c.must(t, c.flush())
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if meta, ok := frame.(*http2.MetaHeadersFrame); ok {
			return strings.Replace(meta.PseudoValue("status"), "200", "ok", 1)
		}
	}
}

// http2Calls has n calls under way on one connection over HTTP/2: those of gRPC at the admin port, without TLS and by it, and checks
// whose bodies do not end.
func http2Calls(t *testing.T, target *target, n int) string {
	answer := healthCalls(t, dialGRPC(t, target.admin.Admin, insecureConn), n)
	if got := healthCalls(t, target.secured.dialGRPC(t, target.secured.Admin), n); got != answer {
		t.Errorf("by TLS: %s, without it %s", got, answer)
	}
	if got := unfinishedChecks(t, target, n); got != answer {
		t.Errorf("checks: %s, calls of gRPC %s", got, answer)
	}
	return answer
}

// unfinishedChecks sends n-1 checks whose bodies do not end on one connection, and one more.
func unfinishedChecks(t *testing.T, target *target, n int) string {
	t.Helper()
	client, scheme := http2Client(t, target.secured.config("h2"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range n - 1 {
		r, w := io.Pipe()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+target.secured.HTTP+"/v1/check", r)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			resp, err := client.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			ended <- err
		}()
		if _, err := io.WriteString(w, "{"); err != nil { // the call has begun
			t.Fatal(err)
		}
	}
	last, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(last, http.MethodGet, scheme+target.secured.HTTP+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err == nil {
		err = resp.Body.Close()
	}
	cancel()
	for range n - 1 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a check has ended: %v", err)
		}
	}
	return waits(err)
}

func healthCalls(t *testing.T, conn *grpc.ClientConn, n int) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := healthpb.NewHealthClient(conn)
	for range n - 1 {
		watch, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	last, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	_, err := client.Check(last, &healthpb.HealthCheckRequest{})
	return waits(err)
}

// tlsConnections opens n connections of which the last one makes its handshake.
func tlsConnections(t *testing.T, address string, config *tls.Config, n int) string {
	var opened []net.Conn
	defer func() {
		for _, conn := range opened {
			_ = conn.Close()
		}
	}()
	for range n - 1 {
		opened = append(opened, dial(t, address))
	}
	config.ServerName, _, _ = net.SplitHostPort(address)
	last := tls.Client(dial(t, address), config)
	defer func() { _ = last.Close() }()
	_ = last.SetDeadline(time.Now().Add(time.Second))
	return waits(last.Handshake())
}

// unfinished has n-1 requests under way whose bodies do not end, and returns what another one is answered.
func unfinished(t *testing.T, target *target, path, kind, begin, body string, n int) string {
	var begun []net.Conn
	defer func() { // until the node has room for others
		for _, conn := range begun {
			_ = conn.(*net.TCPConn).CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(process.Patience))
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	for range n - 1 {
		conn := dial(t, target.HTTP)
		begun = append(begun, conn)
		header := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", path, kind, len(begin)+1)
		if _, err := io.WriteString(conn, header); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, " 100 ") { // the node reads the body
			t.Fatalf("%q, %v", line, err)
		}
		if _, err := io.WriteString(conn, begin); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.Post("http://"+target.HTTP+path, kind, strings.NewReader(body))
	return answered(t, resp, err)
}

// logForm is a form of the dashboard with a log, of n bytes if that is enough.
func logForm(t *testing.T, n int) (kind, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	line := `{"time":"2026-01-01T00:00:00Z","user":"alice"}` + "\n"
	fields := [][2]string{{"rules", "domain: default\nrules: [{id: r, limits: [{limit: 1, window: 1h}]}]\n"}, {"domain", "default"}, {"format", "json"}}
	for _, f := range fields {
		if err := w.WriteField(f[0], f[1]); err != nil {
			t.Fatal(err)
		}
	}
	part, err := w.CreateFormFile("log", "log")
	if err != nil {
		t.Fatal(err)
	}
	end := len("\r\n--" + w.Boundary() + "--\r\n")
	if _, err := io.WriteString(part, line); err != nil {
		t.Fatal(err)
	}
	if rest := n - b.Len() - end; rest > 0 {
		if _, err := io.WriteString(part, strings.Repeat("\n", rest)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.String()
}
