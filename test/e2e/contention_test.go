package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// TestDeniedRequestsDenyNoOthers has users without room ask for all that an organisation has, all the time,
// while others of the organisation ask for one token each, through their own limits too, until it is used up. One
// limiter that decides each request at once would deny none of the first 200, and all after them.
func TestDeniedRequestsDenyNoOthers(t *testing.T) {
	_, nodes := startThree(t, rulesOfOrganisations, "--peer-timeout", "4s")
	const users = 12 // so that some have their limits on another node than the organisation's
	for i := range users {
		if resp, err := nodes[0].Client.Check(t.Context(), member(fmt.Sprint("full-", i), "", 20)); err != nil || !resp.GetAllowed() {
			t.Fatal(resp, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range users {
		wg.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				resp, err := nodes[j%3].Client.Check(ctx, member(fmt.Sprint("full-", i), "org", 20))
				if err == nil && resp.GetAllowed() && resp.GetSource() != weirv1.Source_SOURCE_FAIL_OPEN {
					t.Errorf("a user without room is allowed: %v", resp)
				}
			}
		})
	}
	for i := range 203 {
		user := "" // every second one has a limit of its own
		if i%2 == 1 {
			user = fmt.Sprint("other-", i)
		}
		resp, err := nodes[i%3].Client.Check(t.Context(), member(user, "org", 1))
		if err != nil {
			t.Fatal(err)
		}
		if wait := resp.GetRetryAfter().AsDuration(); resp.GetAllowed() != (i < 200) || i >= 200 && wait < 24*time.Hour {
			t.Errorf("request %d of others: %v", i, resp)
		}
	}
	cancel()
	wg.Wait()
}
