package hostile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

var insecureConn = grpc.WithTransportCredentials(insecure.NewCredentials())

// victims are callers of a node that is abused, on a connection of their own. They share a limit.
type victims struct {
	node    *process.Node
	conn    *grpc.ClientConn
	allowed int64 // checks
}

const (
	limitOfVictims = 1_000_000
	rulesOfVictims = `domain: default
rules:
  - {id: user, per: [user], on_failure: deny, limits: [{limit: 1000000, window: 365d, algorithm: fixed_window}]}
`
)

func newVictims(t *testing.T, n *process.Node) *victims {
	return &victims{node: n, conn: dialNode(t, n)}
}

// judgeLimit judges that the node has counted each check that it has allowed, and no other.
func (v *victims) judgeLimit(t *testing.T) {
	t.Helper()
	req := userRequest("victim")
	req.Peek = true // what would be left after one more
	var resp *weirv1.RateLimitResponse
	process.Await(t, 10*time.Second, func() (err error) { // the node may refuse calls for a moment longer
		resp, err = weirv1.NewRateLimiterClient(v.conn).CheckRateLimit(t.Context(), req)
		return err
	})
	if got, want := int64(resp.GetRemainingTokens()), limitOfVictims-v.allowed-1; got != want {
		t.Errorf("%d tokens are left, want %d", got, want)
	}
}

// asked is what victims have met for a while.
type asked struct {
	took    []time.Duration // of the checks that were answered, sorted
	refused int             // checks that the node had no time for
	failed  []error         // the rest
}

func (a asked) p99() time.Duration { return a.took[len(a.took)*99/100] }

// ask asks every other millisecond until ctx ends.
func (v *victims) ask(ctx context.Context) asked {
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
			resp, err := client.CheckRateLimit(call, userRequest("victim"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && !resp.GetAllowed():
				a.failed = append(a.failed, fmt.Errorf("denied: %v", resp))
			case err == nil:
				v.allowed++
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
