package e2e

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

const rulesOfOrganisations = `domain: default
rules:
  - id: per-user
    per: [user]
    limits: [{limit: 20, window: 365d}]
  - id: per-org
    per: [org]
    limits: [{limit: 200, window: 365d}]
`

// member asks for so many tokens of a user, of an organisation, or of both at once.
func member(user, org string, tokens int64) *weirv1.RateLimitRequest {
	switch {
	case user == "":
		return &weirv1.RateLimitRequest{IdentifierType: "org", Identifier: org, TokensRequested: tokens}
	case org == "":
		return &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: user, TokensRequested: tokens}
	}
	return &weirv1.RateLimitRequest{
		IdentifierType: "user", Identifier: user, Attributes: map[string]string{"org": org}, TokensRequested: tokens,
	}
}

// askWhileStopped asks the others all at once while the node is stopped, and returns how many were allowed.
func askWhileStopped(t *testing.T, nodes []*process.Node, stopped int, reqs []*weirv1.RateLimitRequest) (allowed int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	nodes[stopped].Signal(syscall.SIGSTOP)
	for i, req := range reqs {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			defer cancel()
			resp, err := nodes[(stopped+1+i%2)%3].Client.Check(ctx, req)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if resp.GetAllowed() {
				allowed++
			}
		})
	}
	pause(t, 70*time.Millisecond)
	nodes[stopped].Signal(syscall.SIGCONT)
	wg.Wait()
	return allowed
}

// hasLeft reports whether a check of so many tokens of an organisation would be allowed, and how many it has left. It
// counts nothing: a check whose answer is late would be asked again, and be denied by what it has counted itself.
func hasLeft(t *testing.T, node *process.Node, org string, tokens int64) (left uint32, has bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	resp, err := node.Client.Explain(ctx, member("", org, tokens))
	if err != nil {
		t.Fatal(err)
	}
	d := resp.GetDecision()
	return d.GetRemainingTokens(), d.GetAllowed()
}

// TestStoppedOwnerCountsNothingLate stops each node for 70 ms while the others are asked: what they asked it
// meanwhile was decided elsewhere, and must not be counted once more.
func TestStoppedOwnerCountsNothingLate(t *testing.T) {
	testform.NotInBrief(t)
	_, nodes := startThree(t, rulesOfOrganisations)
	const orgs = 3 // and as many users, for each node that is stopped
	for i := range orgs {
		resp, err := nodes[0].Client.Check(t.Context(), member(fmt.Sprint("user-", i), "", 20))
		if err != nil || !resp.GetAllowed() {
			t.Fatal(resp, err)
		}
	}
	through := make(map[string]int) // requests of users without room, because the user's limit was not decided
	for stopped := range nodes {
		for i := range orgs {
			org := fmt.Sprintf("org-%d-%d", stopped, i)
			var reqs []*weirv1.RateLimitRequest
			for range 10 {
				reqs = append(reqs, member(fmt.Sprint("user-", i), org, 20))
			}
			through[org] = askWhileStopped(t, nodes, stopped, reqs)
		}
	}
	pause(t, time.Second)
	for stopped := range nodes {
		for i := range orgs {
			org := fmt.Sprintf("org-%d-%d", stopped, i)
			if through[org] == 10 {
				continue
			}
			if left, has := hasLeft(t, nodes[0], org, int64(200-20*through[org])); !has {
				t.Errorf("%s has %d of 200 left, although %d of 10 were denied", org, left, 10-through[org])
			}
		}
	}
	for i := range orgs {
		org := fmt.Sprint("single-", i)
		var reqs []*weirv1.RateLimitRequest
		for range 6 {
			reqs = append(reqs, member("", org, 1))
		}
		allowed := askWhileStopped(t, nodes, i%3, reqs)
		pause(t, 300*time.Millisecond)
		if left, has := hasLeft(t, nodes[0], org, int64(200-allowed)); !has {
			t.Errorf("%d single checks were allowed, and %d of 200 are left", allowed, left)
		}
	}
}
