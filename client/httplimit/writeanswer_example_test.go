package httplimit_test

import (
	"fmt"
	"net/http/httptest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/client/httplimit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// A service without the middleware gives its own client what Weir has answered.
func ExampleWriteAnswer() {
	answer := &weirv1.RateLimitResponse{
		RuleId: "posts", Limit: 10, Window: durationpb.New(time.Minute),
		ResetAfter: durationpb.New(30 * time.Second), RetryAfter: durationpb.New(3 * time.Second),
	}
	w := httptest.NewRecorder()
	denied := httplimit.WriteAnswer(w, httplimit.Style{Forms: []httplimit.Form{httplimit.Draft}}, answer)
	fmt.Println(denied, w.Code)
	for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
		fmt.Println(w.Header()[name][0])
	}
	fmt.Println("retry after", w.Header().Get("Retry-After"))
	fmt.Print(w.Body)
	// Output:
	// true 429
	// "posts";r=0;t=3
	// "posts";q=10;w=60
	// retry after 3
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"the limit posts, 10 in 1m0s, has no room now","violated-policies":["posts"]}
}
