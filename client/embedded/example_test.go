package embedded_test

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir/client/embedded"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func Example() {
	weir, err := embedded.New(`
domain: default
rules:
  - {id: per-user, per: [user], limits: [{limit: 2, window: 1d}]}
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = weir.Close() }()

	for range 3 {
		answer, err := weir.Check(context.Background(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
		fmt.Println(answer.GetAllowed(), answer.GetRemainingTokens(), err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
