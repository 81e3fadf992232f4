package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestNodeFlagsErrors: every failed call is one sentence and exit code 2.
func TestNodeFlagsErrors(t *testing.T) {
	refused := "127.0.0.1:1" // reserved for tcpmux; no process listens there
	silent := listen(t, &fakeNode{silent: true})
	empty := listen(t, nil)
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	notGRPC := web.Listener.Addr().String()
	invalid := listen(t, &fakeNode{failure: status.Error(codes.InvalidArgument, "identifier: 300 bytes, at most 256 are allowed")})
	broken := listen(t, &fakeNode{failure: status.Error(codes.Internal, "boom")})
	taken := listen(t, &fakeNode{failure: status.Error(codes.FailedPrecondition, "rules cannot be changed through this node")})
	cutOff := listen(t, &fakeNode{failure: status.Error(codes.Unavailable, "etcd is unreachable; the change may have been made or not")})
	busy := listen(t, &fakeNode{failure: status.Error(codes.Unavailable, "the node is stopping")})

	tests := []struct {
		env  []string
		args string
		want string
	}{
		{nil, "check user=alice --node " + refused, "no node answers at " + refused + ": the connection was refused; " +
			`start one with "weir serve", or name another with --node`},
		{[]string{"WEIR_NODE=" + refused}, "ring", "no node answers at " + refused + ": the connection was refused; " +
			`start one with "weir serve", or name another with --node`},
		{nil, "nodes --node 9090", `--node: address "9090" is not host:port`},
		{[]string{"WEIR_NODE=9090"}, "nodes", `WEIR_NODE: address "9090" is not host:port`},
		{nil, "nodes --timeout 100ms --node " + silent, "node " + silent + " did not answer within 100ms; " +
			"wait longer with --timeout, or name another with --node"},
		{nil, "nodes --node " + empty, "the server at " + empty + " is not a Weir node, or one of another version: " +
			"unknown service weir.v1.Cluster"},
		{nil, "nodes --node " + notGRPC, "the server at " + notGRPC + " does not speak gRPC without TLS; pass --tls-ca if it has TLS, and give --node the node's gRPC address"},
		{nil, "check user=alice --node " + invalid, "node " + invalid + " refuses the request: identifier: 300 bytes, at most 256 are allowed"},
		{nil, "check user=alice --json --node " + broken, "node " + broken + ": boom (Internal)"},
		{nil, "nodes --node " + taken, "node " + taken + ": rules cannot be changed through this node"},
		{nil, "nodes --node " + cutOff, "node " + cutOff + ": etcd is unreachable; the change may have been made or not"},
		{nil, "nodes --node " + busy, "node " + busy + ": the node is stopping"},
	}
	for _, test := range tests {
		want := outcome{2, "", "weir: " + test.want + "\n"}
		if got := weir(t, test.env, strings.Fields(test.args)...); got != want {
			t.Errorf("weir %s:\n got %+v\nwant %+v", test.args, got, want)
		}
	}
}

// TestExplainUnavailable has the texts that would need a name server.
func TestExplainUnavailable(t *testing.T) {
	q := &nodeFlags{node: "n:1"}
	const lookup = "dns: A record lookup error: lookup n on 127.0.0.1:53: read udp 127.0.0.1:5->127.0.0.1:53: read: connection refused"
	tests := []struct{ message, want string }{
		{"name resolver error: produced zero addresses", "node n:1 cannot be reached: its name has no address"},
		{lookup, "node n:1 cannot be reached: " + lookup},
	}
	for _, test := range tests {
		if got := q.explainUnavailable(test.message).Error(); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}
