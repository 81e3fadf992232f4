package client_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// A node's answers on a stream say by which view it routes, the one by which it lists the nodes.
func TestAnswersTellTheView(t *testing.T) {
	info := startNode(t, "a", ruleText)
	conn, err := grpc.NewClient(info.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := weirv1.NewRateLimiterClient(conn).StreamRateLimits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for before, after := uint64(0), uint64(1); before != after; { // else there is a new one meanwhile
		before = listedView(t, conn)
		if err := stream.Send(&weirv1.StreamRateLimitsRequest{Requests: []*weirv1.RateLimitRequest{request("alice")}}); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if after = listedView(t, conn); before == after && answer.GetView() != before {
			t.Errorf("the answer is of view %d, the list of view %d", answer.GetView(), before)
		}
	}
}

func listedView(t *testing.T, conn *grpc.ClientConn) uint64 {
	t.Helper()
	list, err := weirv1.NewClusterClient(conn).ListNodes(t.Context(), &weirv1.ListNodesRequest{})
	if err != nil || list.GetView() == 0 {
		t.Fatalf("%v, %v", list, err)
	}
	return list.GetView()
}
