package client_test

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plainNode answers with the identifier's number as the remaining tokens. The
// identifier "slow" is never answered.
type plainNode struct {
	weirv1.UnimplementedRateLimiterServer
	weirv1.UnimplementedClusterServer
	deadlines chan time.Duration // how much time each check was given
	short     bool               // answer one request of a batch too few
}

func (f *plainNode) CheckRateLimit(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	deadline, _ := ctx.Deadline()
	f.deadlines <- time.Until(deadline)
	if req.GetIdentifier() == "slow" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	remaining, err := strconv.ParseUint(req.GetIdentifier(), 10, 32)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "identifier: not a number")
	}
	return &weirv1.RateLimitResponse{Allowed: true, RemainingTokens: uint32(remaining)}, nil
}

func (f *plainNode) CheckRateLimitBatch(ctx context.Context, req *weirv1.RateLimitBatchRequest) (*weirv1.RateLimitBatchResponse, error) {
	var batch weirv1.RateLimitBatchResponse
	for _, r := range req.GetRequests() {
		response, err := f.CheckRateLimit(ctx, r)
		if err != nil {
			return nil, err
		}
		batch.Responses = append(batch.Responses, response)
	}
	if f.short {
		batch.Responses = batch.Responses[1:]
	}
	return &batch, nil
}

func (f *plainNode) ListNodes(context.Context, *weirv1.ListNodesRequest) (*weirv1.ListNodesResponse, error) {
	return &weirv1.ListNodesResponse{View: 3}, nil
}

func (f *plainNode) GetRing(_ context.Context, req *weirv1.GetRingRequest) (*weirv1.GetRingResponse, error) {
	response := &weirv1.GetRingResponse{View: 3}
	if req.GetTables() {
		response.Owners = []uint32{0}
	}
	return response, nil
}

// start returns a client of a fake node and the node.
func start(t *testing.T, opts ...client.Option) (*client.Node, *plainNode) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fake := &plainNode{deadlines: make(chan time.Duration, 10)}
	server := grpc.NewServer()
	weirv1.RegisterRateLimiterServer(server, fake)
	weirv1.RegisterClusterServer(server, fake)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	c, err := client.NewNode(listener.Addr().String(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c, fake
}

func request(identifier string) *weirv1.RateLimitRequest {
	return &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: identifier}
}

func TestCheck(t *testing.T) {
	c, _ := start(t)
	answer, err := c.Check(t.Context(), request("41"))
	if err != nil || !answer.GetAllowed() || answer.GetRemainingTokens() != 41 {
		t.Errorf("got %v, %v", answer, err)
	}
	_, err = c.Check(t.Context(), request("alice"))
	if got := status.Convert(err); got.Code() != codes.InvalidArgument || got.Message() != "identifier: not a number" {
		t.Errorf("got %v", err)
	}
}

func TestCheckBatch(t *testing.T) {
	c, fake := start(t)
	reqs := []*weirv1.RateLimitRequest{request("3"), request("1"), request("2")}
	answers, err := c.CheckBatch(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint32{3, 1, 2} {
		if got := answers[i].GetRemainingTokens(); got != want {
			t.Errorf("answer %d is %d, want %d", i, got, want)
		}
	}
	if _, err := c.CheckBatch(t.Context(), append(reqs, request("x"))); status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v", err)
	}
	fake.short = true
	const want = "check 3 requests: got 2 answers"
	if _, err := c.CheckBatch(t.Context(), reqs); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestCluster(t *testing.T) {
	c, _ := start(t)
	nodes, err := c.ListNodes(t.Context())
	if err != nil || nodes.GetView() != 3 {
		t.Errorf("got %v, %v", nodes, err)
	}
	for _, tables := range []bool{false, true} {
		ring, err := c.GetRing(t.Context(), tables)
		if err != nil || (len(ring.GetOwners()) == 1) != tables {
			t.Errorf("tables %v: got %v, %v", tables, ring, err)
		}
	}
}

func TestDeadline(t *testing.T) {
	c, fake := start(t)
	if _, err := c.Check(t.Context(), request("slow")); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	if got := <-fake.deadlines; got > client.DefaultTimeout {
		t.Errorf("without a deadline the node had %v", got)
	}

	long, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := c.Check(long, request("1")); err != nil {
		t.Error(err)
	}
	if got := <-fake.deadlines; got < 50*time.Minute {
		t.Errorf("with a deadline of an hour the node had %v", got)
	}
}

func TestDeadlineOfANode(t *testing.T) {
	c, fake := start(t, client.WithTimeout(time.Hour))
	if _, err := c.Check(t.Context(), request("1")); err != nil {
		t.Error(err)
	}
	if got := <-fake.deadlines; got < 50*time.Minute {
		t.Errorf("with a timeout of an hour the node had %v", got)
	}
}

func TestClosed(t *testing.T) {
	c, err := client.NewNode("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Check(t.Context(), request("1")); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
}
