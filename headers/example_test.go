package headers_test

import (
	"fmt"
	"net/http/httptest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// A service tells its own client what Weir has answered.
func Example() {
	response := &weirv1.RateLimitResponse{
		RuleId: "posts", Limit: 10, Window: durationpb.New(time.Minute),
		ResetAfter: durationpb.New(30 * time.Second), RetryAfter: durationpb.New(3 * time.Second),
	}
	answer := headers.Of(response)
	style := headers.Style{Forms: []headers.Form{headers.Draft}}
	w := httptest.NewRecorder()
	if err := style.Set(w.Header(), answer); err != nil {
		fmt.Println(err)
	}
	if answer.Denied {
		headers.ProblemOf(answer).Write(w)
	}
	fmt.Println(w.Code, w.Header().Get("Retry-After"))
	fmt.Print(w.Body)
	fmt.Println(style.Status(answer, "user:alice").Err())
	// Output:
	// 429 3
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"the limit posts, 10 in 1m0s, has no room now","violated-policies":["posts"]}
	// rpc error: code = ResourceExhausted desc = the limit posts, 10 in 1m0s, has no room now
}
