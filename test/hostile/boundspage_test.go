package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// bound is a row of the table in docs/reference/bounds.md.
type bound struct {
	what, most string // as in the table
	beyond     string // what is answered one beyond, as in the table, where it stands in `code`
	says       string // a part of that answer that is not in the table
	size       int    // the bound
	ask        func(t *testing.T, target *target, size int) (answer string)
}

// target is a node with clients, and the nodes that have ports which it has not.
type target struct {
	*process.Node
	conn    *grpc.ClientConn
	admin   *process.Node // has an admin port and one for profiles
	secured *secured
}

// bounds are the rows by their tables.
var bounds = []struct {
	heading string
	rows    []bound
}{
	{"Checks", []bound{
		{"Bytes of a value", "256", "`INVALID_ARGUMENT`", "identifier: 257 bytes are more than 256", 256, ofRequest(func(r *weirv1.RateLimitRequest, n int) { r.Identifier = text(n) })},
		{"Bytes of an attribute's name", "64", "`INVALID_ARGUMENT`", "more than 64", 64, ofRequest(func(r *weirv1.RateLimitRequest, n int) { r.Attributes = map[string]string{text(n): "v"} })},
		{"Bytes of a domain", "64", "`INVALID_ARGUMENT`", "domain: 65 bytes are more than 64", 64, ofRequest(func(r *weirv1.RateLimitRequest, n int) { r.Domain = text(n) })},
		{"Attributes of a request, with identifier and endpoint", "16", "`INVALID_ARGUMENT`", "attributes", 16, ofRequest(func(r *weirv1.RateLimitRequest, n int) {
			r.Attributes = map[string]string{}
			for i := range n - 2 {
				r.Attributes[fmt.Sprint("a", i)] = "v"
			}
		})},
		{"Cost", "2,147,483,648", "`INVALID_ARGUMENT`", "tokens_requested", 1 << 31, ofRequest(func(r *weirv1.RateLimitRequest, n int) { r.TokensRequested = int64(n) })},
		{"Tokens of a lease", "1,000,000", "`INVALID_ARGUMENT`", "lease: 1000001 is not between 0 and 1000000", 1_000_000, ofRequest(func(r *weirv1.RateLimitRequest, n int) { r.Lease = int64(n) })},
		{"Requests of a batch", "1,000", "`INVALID_ARGUMENT`", "requests", 1000, batch},
		{"Bytes of a gRPC message", "262,144", "`RESOURCE_EXHAUSTED`", "262144", 262144, batchOfBytes()},
		{"Bytes of a compressed gRPC message, unpacked", "262,144", "`RESOURCE_EXHAUSTED`", "262144", 262144, batchOfBytes(grpc.UseCompressor(gzip.Name))},
		{"Limits that apply to a request", "1,024", "`INVALID_ARGUMENT`", "rules: 1025 limits apply to the request, more than 1024", 1024, limits},
		{"Limits that apply to a batch", "16,384", "`INVALID_ARGUMENT`", "16385 limits apply up to here, more than 16384 for a batch", 16384, limits},
		{"Descriptors of a request of Envoy", "4,096", "`OVER_LIMIT`", "", 4096, descriptors},
		{"Limits that apply to a request of Envoy", "8,192", "`OVER_LIMIT`", "", 8192, envoyLimits},
		{"Hits of a request of Envoy", "2,147,483,648", "`OVER_LIMIT`", "", 1 << 31, envoyHits},
		{"Bytes of a request of Envoy", "4,194,304", "`RESOURCE_EXHAUSTED`", "4194304", 4194304, envoyBytes},
		{"Calls under way on a gRPC connection", "4,096", "waits until one ends", "", 4096, streams},
		{"Bytes of a gRPC call's header fields, as HTTP/2 counts them", "131,072", "`FRAME_SIZE_ERROR`", "", 128 << 10, grpcHeader},
	}},
	{"HTTP", []bound{
		{"Bytes of a body", "262,144", "`413`", "", 262144, func(t *testing.T, target *target, n int) string {
			body := `{"identifier_type":"user","identifier":"a"` + strings.Repeat(" ", n-43) + "}"
			answer := overAllHTTP(t, target, "/v1/check", body, forChecks)
			if got := overAllHTTP(t, target, "/v1/status", body, everyWay); got != answer {
				t.Errorf("a status: %.300s, a check %.300s", got, answer)
			}
			return answer
		}},
		{"Bytes of a body of `/json`", "4,194,304", "`400`", "body: more than 4194304 bytes", 4 << 20, func(t *testing.T, target *target, n int) string {
			body := `{"domain":"default","descriptors":[{"entries":[{"key":"user","value":"a"}]}]`
			return overAllHTTP(t, target, "/json", body+strings.Repeat(" ", n-len(body)-1)+"}", forChecks)
		}},
		{"Bytes of the path that `/auth` is asked about", "4,096", "`400`", "4097 bytes are more than 4096", 4096, func(t *testing.T, target *target, n int) string {
			return auth(t, target, "/auth", "X-Original-Uri", "/"+text(n-1))
		}},
		{"Bytes of another field that `/auth` reads", "256", "`400`", "257 bytes are more than 256", 256, func(t *testing.T, target *target, n int) string {
			return auth(t, target, "/auth", "X-Original-Method", text(n))
		}},
		{"Bytes of the domain in `/auth/DOMAIN`", "64", "`400`", "65 bytes are more than 64", 64, func(t *testing.T, target *target, n int) string {
			return auth(t, target, "/auth/"+text(n), "X-Original-Uri", "/")
		}},
		{"Bytes of all header fields", "20,480", "`431`", "", 20480, header},
		{"Bytes of all header fields over HTTP/2, as it counts them", "16,704", "`431`", "", 16704, http2Header},
		{"Calls under way on a connection over HTTP/2", "250", "waits until one ends", "", 250, http2Calls},
		{"Bytes of a file of rules", "5,242,880", "`413`", "", 5 << 20, func(t *testing.T, target *target, n int) string {
			body := `{"rules":"domain: default\nrules: []","prune":true,"dry_run":true`
			return overAllHTTP(t, target, "/v1/rules:apply", body+strings.Repeat(" ", n-len(body)-1)+"}", forChanges)
		}},
		{"Files of rules that are received at once", "4", "`503`", "4 requests of this kind are under way", 4, func(t *testing.T, target *target, n int) string {
			return unfinished(t, target, "/v1/rules:apply", "application/json", `{"rules":"`, `{"rules":"domain: default\nrules: []","dry_run":true}`, n)
		}},
		{"Bytes of a form with a log for the dashboard", "33,554,432", "`413`", "The log has more than 32", 32 << 20, func(t *testing.T, target *target, n int) string {
			kind, body := logForm(t, n)
			resp, err := http.Post("http://"+target.HTTP+"/ui/backtest", kind, strings.NewReader(body))
			return answered(t, resp, err)
		}},
		{"Bytes of another form of the dashboard", "262,144", "`413`", "the form has more than 256 KiB", 256 << 10, forms},
		{"Logs for the dashboard that are received at once", "2", "`503`", "this node receives other logs", 2, func(t *testing.T, target *target, n int) string {
			kind, body := logForm(t, 0)
			begin := body[:strings.LastIndex(body, "\r\n--")] + strings.Repeat("\n", 16<<20) // more than is sent before the node has begun with the log
			return unfinished(t, target, "/ui/backtest", kind, begin, body, n)
		}},
	}},
	{"Rules, counters and tokens", []bound{
		{"Rules of a page", "1,000", "`INVALID_ARGUMENT`", "page_size: 1001 is not between 0 and 1000", 1000, page},
		{"Bytes of a rule's id", "128", "`INVALID_ARGUMENT`", "has 129 bytes, not 1 to 128", 128, ruleID},
		{"Bytes of the name of a file of rules", "256", "`INVALID_ARGUMENT`", "name: 257 bytes are more than 256", 256, fileName},
		{"Watches of rules on a node", "100", "`RESOURCE_EXHAUSTED`", "this node has 100 watches", 100, watches},
		{"Busiest keys of an answer", "200", "`INVALID_ARGUMENT`", "limit: 201 is more than 200", 200, busiestKeys},
		{"Counters that an identifier chooses for a reset", "1,000", "`INVALID_ARGUMENT`", "identifier: chooses 1001 counters, more than 1000; name a rule_id", 1000, resetCounters},
		{"Counters of an answer about an identifier", "1,000", "says how many are left out", "1", 1000, statusCounters},
		{"Differences that the answer to a change of rules lists", "1,000", "says how many are left out", "1", 1000, differences},
		{"Descriptors that are explained or reset at once", "100", "`INVALID_ARGUMENT`", "descriptors: 101 items are more than 100", 100, descriptorsOf(func(r *weirv1.DescriptorsRequest, n int) {
			r.Descriptors = slices.Repeat([]*weirv1.Descriptor{{Entries: []*weirv1.DescriptorEntry{{Key: "user", Value: "a"}}}}, n)
		})},
		{"Entries of such a descriptor", "16", "`INVALID_ARGUMENT`", "descriptors[0].entries: 17 items are more than 16", 16, descriptorsOf(func(r *weirv1.DescriptorsRequest, n int) {
			r.Descriptors = []*weirv1.Descriptor{{Entries: slices.Repeat([]*weirv1.DescriptorEntry{{Key: "user", Value: "a"}}, n)}}
		})},
		{"Roles of an access token", "64", "`INVALID_ARGUMENT`", "roles: 65 roles are more than 64", 64, func(t *testing.T, target *target, n int) string {
			return createToken(t, target, strings.Repeat("check,", n-1)+"check")
		}},
		{"Bytes of such roles", "2,048", "`INVALID_ARGUMENT`", "roles: roles have 2049 bytes, more than 2048", 2048, func(t *testing.T, target *target, n int) string {
			roles := strings.Repeat("check:"+text(64)+",", n/71)
			return createToken(t, target, roles+"check:"+text(n-len(roles)-6))
		}},
		{"Access tokens in etcd", "1,000", "`FAILED_PRECONDITION`", "there are 1000 tokens", 1000, accessTokens},
	}},
	{"Connections", []bound{
		{"Over HTTP", "4,096", "waits until one ends", "", 4096, func(t *testing.T, target *target, n int) string {
			return connections(t, target.HTTP, n, "", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}},
		{"Over gRPC", "16,384", "waits until one ends", "", 16 << 10, grpcConnections},
		{"To the admin port", "256", "waits until one ends", "", 256, func(t *testing.T, target *target, n int) string {
			return connections(t, target.admin.Admin, n, "", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}},
		{"To the port of `--pprof`", "16", "waits until one ends", "", 16, func(t *testing.T, target *target, n int) string {
			return connections(t, profilesOf(t, target.admin), n, "GET /debug/pprof/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "") // silent ones end
		}},
		{"By TLS to the etcd of a node", "1,024", "waits until one ends", "", 1024, func(t *testing.T, target *target, n int) string {
			at, err := url.Parse(target.secured.Etcd)
			if err != nil {
				t.Fatal(err)
			}
			return tlsConnections(t, net.JoinHostPort("127.0.0.1", at.Port()), target.secured.config("h2"), n)
		}},
	}},
}

func text(n int) string { return strings.Repeat("x", n) }

// said is a gRPC error as text: "ok", or its code and message.
func said(err error) string {
	if err == nil {
		return "ok"
	}
	st := status.Convert(err)
	return code.Code(st.Code()).String() + ": " + st.Message()
}

// overHTTP asks by HTTP for what gRPC has answered with err. The answers say the same.
func overHTTP(t *testing.T, target *target, path string, req proto.Message, err error) {
	t.Helper()
	body, bad := protojson.Marshal(req)
	if bad != nil {
		t.Fatal(bad)
	}
	want := "ok"
	if err != nil {
		want = status.Convert(err).Message()
	}
	if got := post(t, target, path, string(body)); err == nil && got != want || err != nil && !(strings.HasPrefix(got, "400 ") && strings.Contains(got, want)) {
		t.Errorf("%s: %.300s, over gRPC %s", path, got, said(err))
	}
}

// ofRequest asks for one check that set has changed, over gRPC and HTTP.
func ofRequest(set func(r *weirv1.RateLimitRequest, n int)) func(*testing.T, *target, int) string {
	return func(t *testing.T, target *target, n int) string {
		r := &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice", Endpoint: "/api/v1/posts"}
		set(r, n)
		_, err := weirv1.NewRateLimiterClient(target.conn).CheckRateLimit(t.Context(), r)
		overHTTP(t, target, "/v1/check", r, err)
		inBatches(t, target, r, said(err))
		return said(err)
	}
}

func batch(t *testing.T, target *target, n int) string {
	req := &weirv1.RateLimitBatchRequest{}
	for range n {
		req.Requests = append(req.Requests, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
	}
	return checkBatch(t, target, req)
}

// checkBatch asks over gRPC, also on a stream, and HTTP.
func checkBatch(t *testing.T, target *target, req *weirv1.RateLimitBatchRequest) string {
	_, err := weirv1.NewRateLimiterClient(target.conn).CheckRateLimitBatch(t.Context(), req)
	overHTTP(t, target, "/v1/check:batch", req, err)
	isSame(t, "stream", onStream(t, target, req), said(err))
	return said(err)
}

// batchOfBytes asks for a batch that has n bytes.
func batchOfBytes(options ...grpc.CallOption) func(*testing.T, *target, int) string {
	return func(t *testing.T, target *target, n int) string {
		req := &weirv1.RateLimitBatchRequest{}
		for proto.Size(req) < n {
			req.Requests = append(req.Requests, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: text(256)})
		}
		for last := 256; proto.Size(req) != n; last-- {
			if last == 0 {
				req.Requests, last = req.Requests[:len(req.Requests)-1], 256
			}
			req.Requests[len(req.Requests)-1].Identifier = text(last)
		}
		_, err := weirv1.NewRateLimiterClient(target.conn).CheckRateLimitBatch(t.Context(), req, options...)
		isSame(t, "stream", onStream(t, target, req, options...), said(err))
		applyBytes(t, target, n, said(err), options...)
		return said(err)
	}
}

// limits asks for checks to which n limits apply together, of rules that it applies: every check of domain "full" has as many as a request
// may have, and one of domain "one" has one.
func limits(t *testing.T, target *target, n int) string {
	const most, ofRule = 1024, 8
	var file strings.Builder
	file.WriteString("domain: full\nrules:\n")
	limit := "{limit: 1000000, window: %ds}"
	for i := range most / ofRule {
		var all []string
		for j := range ofRule {
			all = append(all, fmt.Sprintf(limit, j+1))
		}
		fmt.Fprintf(&file, "- {id: r%d, limits: [%s]}\n", i, strings.Join(all, ", "))
	}
	fmt.Fprintf(&file, "- {id: more, when: {more: alice}, limits: [%s]}\n---\ndomain: one\nrules:\n- {id: one, limits: [%[1]s]}\n", fmt.Sprintf(limit, 1))
	if answer := post(t, target, "/v1/rules:apply", fmt.Sprintf(`{"rules":%q}`, file.String())); answer != "ok" {
		t.Fatal(answer)
	}
	req := &weirv1.RateLimitBatchRequest{}
	add := func(domain, kind string) {
		req.Requests = append(req.Requests, &weirv1.RateLimitRequest{Domain: domain, IdentifierType: kind, Identifier: "alice"})
	}
	if n == most+1 {
		add("full", "more")
	} else {
		for range n / most {
			add("full", "user")
		}
		for range n % most {
			add("one", "user")
		}
	}
	return checkBatch(t, target, req)
}

// streams begins n calls on one connection.
func streams(t *testing.T, target *target, n int) string {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := weirv1.NewRateLimiterClient(target.conn)
	for range n - 1 {
		if _, err := client.StreamRateLimits(ctx); err != nil {
			t.Fatal(err)
		}
	}
	last, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	_, err := client.CheckRateLimit(last, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
	answer := waits(err)
	if got := healthCalls(t, target.secured.dialGRPC(t, target.secured.rls), n); got != answer {
		t.Errorf("at --rls-listen: %s, at --grpc %s", got, answer)
	}
	return answer
}

// grpcHeader calls with header fields of n bytes at the port for gRPC, with TLS and without it, and at the port for Envoy.
func grpcHeader(t *testing.T, target *target, n int) string {
	answer := headersOfCall(t, target.GRPC, nil, n)
	for _, address := range []string{target.secured.GRPC, target.secured.rls} {
		if got := headersOfCall(t, address, target.secured.config("h2"), n); got != answer {
			t.Errorf("at %s: %s, without TLS %s", address, got, answer)
		}
	}
	return answer
}

// headersOfCall asks for the health with header fields of n bytes, by RFC 9113, section 6.5.2: each has its name, its value and 32 bytes.
func headersOfCall(t *testing.T, address string, config *tls.Config, n int) string {
	t.Helper()
	c := dialHTTP2By(t, address, config)
	fields := slices.Clone(callHeaders)
	fields[2].Value = "/grpc.health.v1.Health/Check"
	size := 0
	for _, f := range fields {
		size += int(f.Size())
	}
	field := hpack.HeaderField{Name: "x"}
	field.Value = text(n - size - int(field.Size()))
	c.must(t, c.writeHeaders(c.encode(append(fields, field)), false))
	c.must(t, c.WriteData(1, true, lengthPrefixed(&healthpb.HealthCheckRequest{})))
	c.must(t, c.flush())
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.DataFrame: // of the health
			return "ok"
		case *http2.RSTStreamFrame:
			return frame.ErrCode.String()
		}
	}
}

// waits is said of a call or a read that has ended at its deadline, because it waits.
func waits(err error) string {
	var late net.Error
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded || errors.As(err, &late) && late.Timeout() {
		return "waits until one ends"
	}
	return said(err)
}

// answered is an HTTP answer as text: "ok", or the status and the body.
func answered(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		return "ok"
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

func post(t *testing.T, target *target, path, body string) string {
	resp, err := http.Post("http://"+target.HTTP+path, "application/json", strings.NewReader(body))
	return answered(t, resp, err)
}

func get(t *testing.T, target *target, path string, header http.Header) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+target.HTTP+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	return answered(t, resp, err)
}

// header sends a request whose header has n bytes, with its first line and the empty one behind it.
func header(t *testing.T, target *target, n int) string {
	request := "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: \r\n\r\n"
	request = strings.Replace(request, "X: ", "X: "+text(n-len(request)), 1)
	conn := dial(t, target.HTTP)
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if len(answer) == 0 {
		t.Fatal(err)
	}
	_, line, _ := bytes.Cut(answer, []byte("HTTP/1.1 "))
	if bytes.HasPrefix(line, []byte("200")) {
		return "ok"
	}
	return string(line)
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// connections opens n connections, each of which says begin, and asks by the last one.
func connections(t *testing.T, address string, n int, begin, ask string) string {
	var opened []net.Conn
	defer func() {
		for _, conn := range opened {
			_ = conn.Close()
		}
	}()
	for range n {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_, err = io.WriteString(conn, begin)
		}
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, conn)
	}
	last := opened[n-1]
	if _, err := io.WriteString(last, ask); err != nil {
		t.Fatal(err)
	}
	_ = last.SetReadDeadline(time.Now().Add(time.Second))
	_, err := last.Read(make([]byte, 1))
	return waits(err)
}

// grpcConnections opens n connections to the gRPC port. The node sends its settings on one as soon as it serves it.
func grpcConnections(t *testing.T, target *target, n int) string {
	if !form.Full() {
		t.Skip("with -full only: it takes ten seconds")
	}
	return connections(t, target.GRPC, n, clientHello(), "")
}

// What a bound permits is answered, and what is one beyond as the table says.
func TestBounds(t *testing.T) {
	node := process.Start(t) // with rules in etcd, so that they can be changed
	admin := process.Start(t, "--admin", net.JoinHostPort(process.Host(t), "0"), "--pprof", "127.0.0.1:0")
	secured := startSecured(t)
	for _, table := range bounds {
		for _, b := range table.rows {
			t.Run(b.what, func(t *testing.T) {
				conn, err := grpc.NewClient(node.GRPC, insecureConn)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				defer http.DefaultClient.CloseIdleConnections()
				target := &target{node, conn, admin, secured}
				if got := b.ask(t, target, b.size); got != "ok" {
					t.Errorf("%d: %.300s, want ok", b.size, got)
				}
				got := b.ask(t, target, b.size+1)
				if want := strings.Trim(b.beyond, "`"); !strings.HasPrefix(got, want) || !strings.Contains(got, b.says) {
					t.Errorf("%d: %.300s, want %s and %q", b.size+1, got, want, b.says)
				}
			})
		}
	}
}

// A client that is too slow is cut off after the time that docs/reference/bounds.md says, and not before.
func TestTimes(t *testing.T) {
	form.NotInBrief(t)
	const late = 5 * time.Second // by which a node on a busy machine may be
	node := process.Start(t)
	for _, tc := range []struct {
		name, address, begin string
		after                time.Duration
	}{
		{"headers", node.HTTP, "GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX: ", 5 * time.Second},
		{"body", node.HTTP, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", 10 * time.Second},
		{"handshake", node.GRPC, "", time.Second},
		{"handshake of a node", node.GRPC, nodePreface, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			conn, began := dial(t, tc.address), time.Now()
			if _, err := io.WriteString(conn, tc.begin); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(began.Add(tc.after + late))
			_, err := io.Copy(io.Discard, conn)
			if took := time.Since(began); isTimeout(err) || took < tc.after-100*time.Millisecond {
				t.Errorf("ends after %v, want %v to %v: %v", took, tc.after, tc.after+late, err)
			}
		})
	}
}

// The tables of docs/reference/bounds.md are those of this test.
func TestDocumentedBounds(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/bounds.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range bounds {
		want := "| " + table.heading + " | At most | One more |\n| --- | --- | --- |\n"
		for _, b := range table.rows {
			want += fmt.Sprintf("| %s | %s | %s |\n", b.what, b.most, b.beyond)
			if got := strings.ReplaceAll(b.most, ",", ""); got != fmt.Sprint(b.size) {
				t.Errorf("%s: %s in the table, the test asks for %d", b.what, b.most, b.size)
			}
		}
		if !strings.Contains(string(doc), want) {
			t.Errorf("docs/reference/bounds.md has not this table:\n%s", want)
		}
	}
}
