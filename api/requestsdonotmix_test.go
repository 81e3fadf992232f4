package api

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/internal/apitest"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// callers is how many ask at once, and rounds how often each of them. Caller i has
// a rule of its own, with a limit that tells it from the others.
const (
	callers = 50
	rounds  = 40
)

func callerRules() string {
	var b strings.Builder
	b.WriteString("domain: default\nrules:\n")
	for i := range callers {
		fmt.Fprintf(&b, "- {id: r%d, when: {caller: c%d}, per: [user], limits: [{limit: %d, window: 1h}]}\n", i, i, 10_000+i)
	}
	return b.String()
}

// Requests share what is used to decide them. None may see another's.
func TestRequestsDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that no hour ends
		f := newFixture(t, callerRules())
		var callerGroup sync.WaitGroup
		for i := range callers {
			callerGroup.Go(func() {
				c := caller{t: t, fixture: f, number: i, left: 10_000 + int64(i)}
				for round := range rounds {
					[]func(){c.check, c.batch, c.envoy, c.wrong}[(i+round)%4]()
				}
			})
		}
		callerGroup.Wait()
		if got := f.shard.Len(); got != callers {
			t.Errorf("%d counters of %d callers", got, callers)
		}
	})
}

// caller asks in every way, and knows what it must hear.
type caller struct {
	*fixture
	t      *testing.T
	number int
	left   int64
}

func (c *caller) request(more string) *weirv1.RateLimitRequest {
	return request(fmt.Sprintf("user=u%d caller=c%d %s", c.number, c.number, more))
}

// heard compares an answer to one request of the given cost.
func (c *caller) heard(r *weirv1.RateLimitResponse, cost int64) {
	c.left -= cost
	rule, limit := fmt.Sprint("r", c.number), uint32(10_000+c.number)
	if !r.GetAllowed() || r.GetRuleId() != rule || r.GetLimit() != limit || int64(r.GetRemainingTokens()) != c.left {
		c.t.Errorf("caller %d, %d left: %v", c.number, c.left, r)
	}
}

func (c *caller) check() {
	resp, err := c.server().CheckRateLimit(c.t.Context(), c.request("cost=2"))
	if err != nil {
		c.t.Error(err)
	}
	c.heard(resp, 2)
}

func (c *caller) batch() {
	b := &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{c.request(""), request("user=x"), c.request("cost=3")}}
	resp, err := c.server().CheckRateLimitBatch(c.t.Context(), b)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.heard(resp.GetResponses()[0], 1)
	if got := brief(resp.GetResponses()[1]); got != "allowed no_rule" {
		c.t.Errorf("caller %d: %s", c.number, got)
	}
	c.heard(resp.GetResponses()[2], 3)
}

func (c *caller) envoy() {
	d := fmt.Sprintf("user=u%d caller=c%d", c.number, c.number)
	resp, err := c.Limiter.envoy.ShouldRateLimit(c.t.Context(), &rlsv3.RateLimitRequest{
		Domain: DefaultDomain, Descriptors: apitest.Descriptors("user=x", d), HitsAddend: 4,
	})
	if err != nil {
		c.t.Error(err)
		return
	}
	c.left -= 4
	want := fmt.Sprintf("OK | OK | OK r%d %d/HOUR left %d reset ", c.number, 10_000+c.number, c.left)
	if got := apitest.BriefEnvoy(resp); !strings.HasPrefix(got, want) {
		c.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// wrong is refused after it has matched rules.
func (c *caller) wrong() {
	b := &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{c.request(""), request("user=")}}
	_, err := c.server().CheckRateLimitBatch(c.t.Context(), b)
	refused(c.t, err, "requests[1].identifier: must not be empty")
}
