package api

import (
	"io"
	"net/http"

	"github.com/weirlimit/weir/api/internal/jsonbody"
)

// countedBodies has what has arrived of a request's body count as unfinished until the request is answered. What is more than a node
// may hold is refused.
func countedBodies(budget *unfinishedBudget, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			body := &countedBody{ReadCloser: r.Body, budget: budget}
			defer func() { budget.used.Add(-body.held) }()
			r.Body = body
		}
		next.ServeHTTP(w, r)
	})
}

type countedBody struct {
	io.ReadCloser
	budget *unfinishedBudget
	held   int64
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.held += int64(n)
	if used := b.budget.used.Add(int64(n)); tooMuchUnfinished(used, b.held) {
		b.budget.ended.Inc()
		return 0, jsonbody.ErrNoRoom
	}
	return n, err
}
