package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weirlimit/weir/client/embedded"
	"github.com/weirlimit/weir/client/httplimit"
)

func Example() {
	// In production client.New("10.0.0.1:9090").
	weir, err := embedded.New("domain: default\nrules:\n- {id: per-key, per: [api_key], limits: [{limit: 2, window: 1d}]}\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = weir.Close() }()
	limit, err := httplimit.New(weir, httplimit.APIKey("X-Api-Key"))
	if err != nil {
		fmt.Println(err)
		return
	}
	server := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
	}))

	for range 3 {
		r, w := httptest.NewRequest(http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		r.Header.Set("X-Api-Key", "secret")
		server.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Content-Type"))
	}
	// Output:
	// 200 text/plain
	// 200 text/plain
	// 429 application/problem+json
}
