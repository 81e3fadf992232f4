package linear

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/algorithms"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client/embedded"
	"github.com/weirlimit/weir/test/process"
)

// seedInto puts faults into one recorded history of each kind, and fails the test if one is not found.
func seedInto(t *testing.T, l *load) {
	t.Helper()
	for _, h := range l.active[:len(l.active)/perKind] {
		if result := doubleGrant(t, h).search(); result != porcupine.Illegal {
			t.Errorf("%s with a double grant: %s", h.name, result)
		}
		if h.kind.shared { // what remains is not known
			continue
		}
		if result := lostUpdate(h).search(); result != porcupine.Illegal {
			t.Errorf("%s with a lost update: %s", h.name, result)
		}
	}
}

// doubleGrant returns h with its last check, which was denied for lack of one token, allowed.
func doubleGrant(t *testing.T, h *history) *history {
	t.Helper()
	ops := inOrder(h)
	last := &ops[len(ops)-1]
	if last.Output.(answer).allowed {
		t.Errorf("%s: the last check was to be denied: %v %v", h.name, last.Input, last.Output)
	}
	granted := answer{allowed: true}
	for i := range granted.remaining {
		granted.remaining[i] = notHeld
	}
	last.Output = granted
	return &history{name: h.name, kind: h.kind, ops: ops}
}

// lostUpdate returns h with one more grant just before its last check but one, of which no later answer knows. Each answer by itself is
// right.
func lostUpdate(h *history) *history {
	ops := inOrder(h)
	before, next := ops[len(ops)-3], ops[len(ops)-2]
	lost := porcupine.Operation{Input: next.Input, Output: next.Output, Call: before.Return + 1, Return: next.Call - 1}
	return &history{name: h.name, kind: h.kind, ops: slices.Insert(ops, len(ops)-2, lost)}
}

// inOrder returns a copy of the operations, in the order of their calls.
func inOrder(h *history) []porcupine.Operation {
	ops := slices.Clone(h.ops)
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return ops
}

// newLimiter returns a limiter of all kinds in this process.
func newLimiter(t *testing.T) *embedded.Limiter {
	t.Helper()
	l, err := embedded.New(rulesText(slices.Concat(kinds(), turning(), draining(), logging())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// bug is a limiter with a fault, once for each key: when a check of it has been answered so often.
type bug struct {
	*embedded.Limiter
	fault func(b *bug, req *weirv1.RateLimitRequest, resp *weirv1.RateLimitResponse) (done bool)

	mu    sync.Mutex
	asked map[string]int  // guarded by mu
	done  map[string]bool // guarded by mu
}

func newBug(t *testing.T, fault func(*bug, *weirv1.RateLimitRequest, *weirv1.RateLimitResponse) bool) *bug {
	t.Helper()
	return &bug{Limiter: newLimiter(t), fault: fault, asked: make(map[string]int), done: make(map[string]bool)}
}

// faultAfter is how many checks of a key are answered before the fault.
const faultAfter = 10

// Check implements decider.
func (b *bug) Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	resp, err := b.Limiter.Check(ctx, req)
	if err != nil {
		return nil, err
	}
	key := req.GetEndpoint() + req.GetIdentifier()
	if b.asked[key]++; b.asked[key] > faultAfter && !b.done[key] {
		b.done[key] = b.fault(b, req, resp)
	}
	return resp, nil
}

// CheckBatch implements decider.
func (b *bug) CheckBatch(ctx context.Context, reqs []*weirv1.RateLimitRequest) (all []*weirv1.RateLimitResponse, err error) {
	for _, req := range reqs {
		resp, err := b.Check(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, resp)
	}
	return all, nil
}

// forget loses the update of a granted check.
func forget(b *bug, req *weirv1.RateLimitRequest, resp *weirv1.RateLimitResponse) bool {
	if !resp.GetAllowed() || req.GetPeek() || req.GetTokensRequested() <= 0 {
		return false
	}
	back := &weirv1.RateLimitRequest{
		Identifier: req.GetIdentifier(), IdentifierType: req.GetIdentifierType(), Endpoint: req.GetEndpoint(), Attributes: req.GetAttributes(),
		TokensRequested: -req.GetTokensRequested(),
	}
	_, err := b.Limiter.Check(context.Background(), back)
	return err == nil
}

// grantTwice allows what was denied.
func grantTwice(_ *bug, _ *weirv1.RateLimitRequest, resp *weirv1.RateLimitResponse) bool {
	if resp.GetAllowed() {
		return false
	}
	resp.Allowed, resp.RemainingTokens = true, 0
	return true
}

// refuse denies what was allowed, and counted.
func refuse(_ *bug, req *weirv1.RateLimitRequest, resp *weirv1.RateLimitResponse) bool {
	if !resp.GetAllowed() || req.GetPeek() || req.GetTokensRequested() <= 0 {
		return false
	}
	resp.Allowed, resp.RetryAfter = false, durationpb.New(yearly)
	return true
}

// enough is how many checks are asked of a limiter, so that there are several keys of each kind.
const enough = 8000

// play has clients ask often enough, and returns what they were told.
func play(t *testing.T, deciders ...decider) *load {
	t.Helper()
	l := newLoad("here", kinds(), deciders...)
	l.every = time.Millisecond
	l.start(t)
	process.Await(t, time.Minute, func() error {
		if n := l.asked(); n < enough {
			return fmt.Errorf("%d of %d checks were asked", n, enough)
		}
		return nil
	})
	l.finish()
	l.allDecided(t)
	return l
}

// TestKindsHaveAllAlgorithms holds that histories of each algorithm are searched for an order.
func TestKindsHaveAllAlgorithms(t *testing.T) {
	for _, a := range algorithms.All() {
		if !slices.ContainsFunc(kinds(), func(k *kind) bool { return len(k.limits) == 1 && k.limits[0].Algorithm == a }) {
			t.Errorf("%v: missing in kinds, in test/linear/harness_keykinds_test.go", a)
		}
	}
}

// The checker accepts one limiter whose clients are concurrent, and finds what is seeded into its histories.
func TestCheckerAcceptsOneLimiter(t *testing.T) {
	l := play(t, newLimiter(t))
	l.verify(t)
	seedInto(t, l)
}

// The checker finds a limiter's bugs, in the histories of every kind.
func TestCheckerFindsBugs(t *testing.T) {
	for name, fault := range map[string]func(*bug, *weirv1.RateLimitRequest, *weirv1.RateLimitResponse) bool{
		"lost update": forget, "double grant": grantTwice, "denial without a reason": refuse,
	} {
		t.Run(name, func(t *testing.T) {
			found(t, play(t, newBug(t, fault)), kinds())
		})
	}
	t.Run("two limiters", func(t *testing.T) {
		found(t, play(t, newLimiter(t), newLimiter(t)), kinds())
	})
}

// found fails the test if there is a kind without a history that is not linearizable.
func found(t *testing.T, l *load, kinds []*kind) {
	t.Helper()
	bad, all := make(map[string]int), make(map[string]int)
	for _, h := range l.histories {
		if all[h.kind.name]++; h.search() == porcupine.Illegal {
			bad[h.kind.name]++
		}
	}
	for _, k := range kinds {
		if bad[k.name] == 0 {
			t.Errorf("%s: none of %d histories is found", k.name, all[k.name])
		}
	}
	t.Logf("found: %v of %v", bad, all)
}

// The checker accepts that a kill loses as many tokens as its bound says, and not one more.
func TestCheckerBoundsLoss(t *testing.T) {
	const bound = 5
	for _, lost := range []int64{0, 1, bound, bound + 1} {
		limiter := newLimiter(t)
		l := newLoad("here", kinds(), limiter)
		l.stop = func() {}
		for _, h := range l.active[:len(l.active)/perKind] {
			counters := []int{0}
			if len(h.kind.limits) > 1 {
				counters = append(counters, 1)
			}
			ask := func(cost int64) { l.ask(limiter, []asked{{of: h, check: check{counters: counters, cost: cost}}}) }
			for range 2 * bound {
				ask(1)
			}
			if lost > 0 {
				if _, err := limiter.Check(t.Context(), h.request(check{counters: counters, cost: -lost})); err != nil {
					t.Fatal(err)
				}
			}
			at := l.now()
			ask(1)
			h.ops = append(h.ops, porcupine.Operation{Input: loss{bound}, Output: answer{}, Call: int64(at), Return: int64(at)})
			if h.kind.shared {
				continue // what remains is not known
			}
			want := porcupine.Ok
			if lost > bound {
				want = porcupine.Illegal
			}
			if result := h.search(); result != want {
				t.Errorf("%s: %d tokens are lost, of %d at most: %s", h.name, lost, bound, result)
			}
		}
	}
}
