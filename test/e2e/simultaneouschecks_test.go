package e2e

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/test/process"
)

// Of 20,000 logins at once exactly as many pass as the limit allows: what is too much for the
// client or the nodes is refused, and not taken for nodes that do not answer.
func TestSimultaneousChecks(t *testing.T) {
	const limit = 3
	patient := []string{"--peer-timeout", "5s"} // what is tested is the client
	t.Run("one node", func(t *testing.T) {
		n := process.Start(t, append(patient, "--rules", writeRules(t, rulesPerYear(limit)))...)
		askAtOnce(t, limit, n)
	})
	t.Run("three nodes", func(t *testing.T) {
		_, nodes := startThree(t, rulesPerYear(limit), patient...)
		askAtOnce(t, limit, nodes...)
	})
}

func askAtOnce(t *testing.T, limit int64, nodes ...*process.Node) {
	const callers = 20_000
	// While 20,000 goroutines want a processor a node may not get one for the usual 100 ms.
	c, err := client.New(nodes[0].GRPC, client.WithTimeout(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	awaitAll(t, c, len(nodes))
	var allowed, undecided, denied, refused atomic.Int64
	var ready, wg sync.WaitGroup
	begin := make(chan struct{})
	ready.Add(callers)
	for range callers {
		wg.Go(func() {
			ready.Done()
			<-begin
			answer, err := c.Check(context.Background(), user("alice"))
			switch {
			case status.Code(err) == codes.ResourceExhausted:
				refused.Add(1)
			case err != nil:
				t.Error(err)
			case client.Undecided(answer):
				undecided.Add(1)
			case answer.GetAllowed():
				allowed.Add(1)
			default:
				denied.Add(1)
			}
		})
	}
	ready.Wait()
	close(begin)
	wg.Wait()
	t.Logf("%d allowed, %d undecided, %d denied, %d refused", allowed.Load(), undecided.Load(), denied.Load(), refused.Load())
	// The answer that a node has given to a refused check came too late, and may have been "allowed".
	if a := allowed.Load(); a > limit || a < limit-refused.Load() || undecided.Load() != 0 {
		t.Errorf("%d allowed, %d refused and %d undecided, want %d allowed, less those of the refused, and 0", a, refused.Load(), undecided.Load(), limit)
	}
}
