package hostile

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

var insecureConn = grpc.WithTransportCredentials(insecure.NewCredentials())

// victims are callers of a node that is abused, on a connection of their own.
type victims struct {
	node *process.Node
	conn *grpc.ClientConn
}

// asked is what victims have met for a while.
type asked struct {
	took    []time.Duration // of the checks that were answered, sorted
	refused int             // checks that the node had no time for
	failed  []error         // the rest
}

func (a asked) p99() time.Duration { return a.took[len(a.took)*99/100] }

// ask asks every other millisecond until ctx ends.
func (v victims) ask(ctx context.Context) asked {
	const pace = 2 * time.Millisecond
	var (
		a  asked
		mu sync.Mutex
		wg sync.WaitGroup
	)
	client := weirv1.NewRateLimiterClient(v.conn)
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for ctx.Err() == nil {
		<-ticker.C
		wg.Go(func() {
			begun := time.Now()
			call, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, err := client.CheckRateLimit(call, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "victim", Endpoint: "/elsewhere"})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				a.took = append(a.took, time.Since(begun))
			case status.Code(err) == codes.ResourceExhausted:
				a.refused++
			default:
				a.failed = append(a.failed, err)
			}
		})
	}
	wg.Wait()
	slices.Sort(a.took)
	return a
}
