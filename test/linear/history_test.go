package linear

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// settled is a retry_after that only a contended denial is below: a limit refills a token in days.
const settled = time.Hour

// history is what clients have asked of one subject of a kind, and what they were told.
type history struct {
	name string // the subject
	kind *kind
	left int // how many checks are still to be asked
	ops  []porcupine.Operation
}

// record is all histories of a test.
type record struct {
	name  string // in which the names of all subjects begin
	began time.Time

	mu        sync.Mutex
	histories []*history
	checks    int
	allowed   int
	omitted   int                   // denials of groups that say nothing, without an operation
	sources   map[weirv1.Source]int // of the answers
	unknown   []string              // checks that no node has decided, or answered
	calls     []took
}

// took is how long one call took, and when it ended.
type took struct{ ended, lasted time.Duration }

func newRecord(name string) *record {
	return &record{name: name, began: time.Now(), sources: make(map[weirv1.Source]int)}
}

// now returns the time since the record began, by the monotonic clock.
func (r *record) now() time.Duration { return time.Since(r.began) }

// add begins the history of a new subject.
func (r *record) add(k *kind) *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &history{name: fmt.Sprintf("%s-%s-%d", r.name, k.name, len(r.histories)), kind: k, left: cmp.Or(k.checks, perKey)}
	r.histories = append(r.histories, h)
	return h
}

// asked returns how many checks were answered.
func (r *record) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checks
}

// request is a check of a history as nodes understand it.
func (h *history) request(c check) *weirv1.RateLimitRequest {
	req := &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: h.name, Endpoint: h.kind.name, TokensRequested: c.cost, Peek: c.peek}
	switch {
	case h.kind.shared && len(c.counters) == 1:
		req.IdentifierType = "org"
	case h.kind.shared:
		req.Identifier = fmt.Sprintf("%s-user-%d", h.name, c.counters[1])
		req.Attributes = map[string]string{"org": h.name}
	}
	return req
}

// asked is a check that a client has asked.
type asked struct {
	of     *history
	check  check
	client int

	call, returned time.Duration // set when it is answered
}

// answered records what became of a check. Contended denials of groups say nothing, and no
// denial of a group does while partitions move.
func (r *record) answered(a asked, resp *weirv1.RateLimitResponse, err error, moving bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks++
	r.calls = append(r.calls, took{a.returned, a.returned - a.call})
	a.check.from, a.check.to = r.began.Add(a.call).UnixNano(), r.began.Add(a.returned).UnixNano()
	op := porcupine.Operation{ClientId: a.client, Input: a.check, Call: int64(a.call), Return: int64(a.returned)}
	if err != nil || !decided(resp.GetSource()) {
		r.unknown = append(r.unknown, fmt.Sprintf("%s asked at %v for %v: %v %v", a.of.name, a.call, a.check, resp.GetSource(), err))
		op.Output, op.Return = answer{unknown: true}, math.MaxInt64 // of kinds with a grid there is none
		a.of.ops = append(a.of.ops, op)
		return
	}
	r.sources[resp.GetSource()]++
	if resp.GetAllowed() {
		r.allowed++
	}
	if a.of.kind.shared && !resp.GetAllowed() && (moving || resp.GetRetryAfter().AsDuration() < settled) {
		r.omitted++
		return
	}
	op.Output, op.Metadata = a.of.kind.read(a.check, resp), resp.GetSource()
	a.of.ops = append(a.of.ops, op)
}

// decided reports whether a node has counted the check.
func decided(s weirv1.Source) bool {
	switch s {
	case weirv1.Source_SOURCE_OWNER, weirv1.Source_SOURCE_LENT, weirv1.Source_SOURCE_RELAYED, weirv1.Source_SOURCE_PROVISIONAL:
		return true
	}
	return false
}

// read returns what an answer says that is held against the model.
func (k *kind) read(c check, resp *weirv1.RateLimitResponse) answer {
	a := answer{allowed: resp.GetAllowed()}
	for i := range a.remaining {
		a.remaining[i] = notHeld
	}
	if a.allowed {
		a.turn = k.turn(0, int64(resp.GetDelay().AsDuration()))
	}
	switch {
	case k.shared || k.spare > 0:
	case len(c.counters) == 1:
		a.remaining[c.counters[0]] = int64(resp.GetRemainingTokens())
	default:
		for i, l := range resp.GetLimits() {
			a.remaining[c.counters[i]] = int64(l.GetRemainingTokens())
		}
	}
	return a
}

// verify fails the test if some history is not linearizable, or has not been asked for.
func (r *record) verify(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	began, longest, checks := time.Now(), 0, 0
	for _, h := range r.histories {
		longest, checks = max(longest, len(h.ops)), checks+len(h.ops)
		if h.search() != porcupine.Ok {
			t.Error(h.explain(t))
		}
	}
	if checks == 0 {
		t.Error("no history has a check")
	}
	t.Logf("%d checks of %d keys, %d of one at most: %.0f %% allowed, %d denials omitted, by %v; searched for %v",
		checks, len(r.histories), longest, 100*float64(r.allowed)/float64(max(1, r.checks)), r.omitted, r.sources, time.Since(began).Round(time.Millisecond))
}

// allDecided fails the test if a check has no answer, or one that its owner has not decided.
func (r *record) allDecided(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unknown) > 0 {
		t.Errorf("%d of %d checks without a decision, such as %q", len(r.unknown), r.checks, r.unknown[:min(5, len(r.unknown))])
	}
	if n := r.sources[weirv1.Source_SOURCE_PROVISIONAL]; n > 0 {
		t.Errorf("%d of %d checks were decided by standbys from their copies", n, r.checks)
	}
}

// lose adds to the histories in progress what a kill between two instants may do: the last tokens of counters are
// forgotten, as many as bound returns; and a check in progress then may be counted once more.
func (r *record) lose(from, to time.Duration, bound func(*history) int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.histories {
		if len(h.ops) == 0 || slices.MinFunc(h.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) }).Call > int64(to) {
			continue
		}
		for _, o := range slices.Clone(h.ops) {
			if c, is := o.Input.(check); is && o.Call <= int64(to) && o.Return >= int64(from) && !c.peek {
				h.ops = append(h.ops, porcupine.Operation{ClientId: o.ClientId, Input: c, Output: answer{unknown: true}, Call: o.Call, Return: o.Return})
			}
		}
		h.ops = append(h.ops, porcupine.Operation{Input: loss{bound(h)}, Output: answer{}, Call: int64(from), Return: int64(to)})
	}
}

// grantedWithin returns how many tokens of a history were granted by answers between two instants.
func (h *history) grantedWithin(from, to time.Duration) (tokens int64) {
	for _, o := range h.ops {
		if c, is := o.Input.(check); is && o.Output.(answer).allowed && !c.peek && o.Return >= int64(from) && o.Call <= int64(to) {
			tokens += c.cost
		}
	}
	return tokens
}
