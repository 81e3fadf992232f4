package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// exampleNode runs a node that lets every user do two things per day.
func exampleNode() (addr string, stop func()) {
	dir, err := os.MkdirTemp("", "weir-example-")
	if err != nil {
		panic(err)
	}
	const rules = "domain: default\nrules:\n  - {id: per-user, per: [user], limits: [{limit: 2, window: 1d, algorithm: gcra}]}\n"
	info, end, err := runNode(dir, rules)
	if err != nil {
		panic(err)
	}
	return info.GRPC, func() {
		if err := end(); err != nil {
			panic(err)
		}
		_ = os.RemoveAll(dir) // it is in the temporary directory
	}
}

func Example() {
	addr, stop := exampleNode()
	defer stop()

	weir, err := client.New(addr, client.WithTimeout(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = weir.Close() }()

	for range 3 {
		answer, err := weir.Check(context.Background(), &weirv1.RateLimitRequest{
			IdentifierType: "user", Identifier: "alice", Endpoint: "/api/v1/posts",
		})
		switch {
		case err != nil:
			fmt.Println(err)
		case !answer.GetAllowed():
			fmt.Println("denied: come back in", answer.GetRetryAfter().AsDuration().Round(time.Hour))
		default:
			fmt.Println("allowed,", answer.GetRemainingTokens(), "left")
		}
	}
	// Output:
	// allowed, 1 left
	// allowed, 0 left
	// denied: come back in 12h0m0s
}

// What Client has no methods for is asked of one of its nodes.
func ExampleClient_Node() {
	addr, stop := exampleNode()
	defer stop()
	weir, err := client.New(addr)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = weir.Close() }()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := weir.Node().Status(ctx, &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: "alice"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range resp.GetLimits() {
		fmt.Println(l.GetRuleId(), l.GetRemainingTokens(), "of", l.GetLimit())
	}
	// Output: per-user 2 of 2
}

// A caller with a limit of two a day, and a deadline at the end of the hour, is denied at once.
func ExampleClient_Wait() {
	addr, stop := exampleNode()
	defer stop()
	weir, err := client.New(addr)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = weir.Close() }()

	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for range 3 {
		_, err := weir.Wait(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "bob"})
		var denied *client.DeniedError
		if errors.As(err, &denied) {
			wait, _ := denied.RetryAfter()
			fmt.Println("not within an hour, but in", wait.Round(time.Hour))
			return
		}
		fmt.Println("go on")
	}
	// Output:
	// go on
	// go on
	// not within an hour, but in 12h0m0s
}

// What fails for a while is tried again, when it can succeed.
func ExampleRetry() {
	tries := 0
	err := client.Retry(context.Background(), client.Backoff{First: time.Millisecond}, func(context.Context) error {
		if tries++; tries < 3 {
			return status.Error(codes.Unavailable, "not yet")
		}
		return nil
	})
	fmt.Println(err, "after", tries, "tries")
	// Output: <nil> after 3 tries
}
