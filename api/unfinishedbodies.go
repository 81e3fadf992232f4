package api

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/api/internal/jsonbody"
)

// countedBodies has what has arrived of a request's body count as unfinished until the request is answered. Pages count what they receive
// by themselves.
func countedBodies(budget *unfinishedBudget, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && !strings.HasPrefix(r.URL.Path, "/ui/") {
			defer countBody(budget, w, r, false).release()
		}
		next.ServeHTTP(w, r)
	})
}

// countBody has the body of r count until it is released. Call says that it is the body of a gRPC call.
func countBody(budget *unfinishedBudget, w http.ResponseWriter, r *http.Request, call bool) *countedBody {
	b := &countedBody{ReadCloser: r.Body, budget: budget, answer: http.NewResponseController(w), call: call, since: time.Now()}
	budget.add(b)
	r.Body = b
	return b
}

// countedBody is a body that is being read.
type countedBody struct {
	io.ReadCloser
	budget *unfinishedBudget
	answer *http.ResponseController
	call   bool // the body is that of a gRPC call
	since  time.Time

	mu    sync.Mutex
	held  int64 // guarded by mu
	ended bool  // guarded by mu
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.budget.relieve(b.hold(b.kept(n)))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return 0, jsonbody.ErrNoRoom
	}
	return n, err
}

// kept is what is kept of a part that was read: that of a gRPC call has a buffer of its own.
func (b *countedBody) kept(part int) int64 {
	if !b.call {
		return int64(part)
	}
	return keptBytes(callPart)
}

func (b *countedBody) hold(n int64) (held int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held += n
	b.budget.used.Add(n)
	return b.held
}

// holds implements unfinishedHolder.
func (b *countedBody) holds() (int64, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held, b.since
}

// end implements unfinishedHolder: what waits for more of the body goes on with an error. A gRPC call keeps what has arrived until it ends, so it has
// little time to say why.
func (b *countedBody) end() {
	b.mu.Lock()
	b.ended = true
	b.budget.used.Add(-b.held)
	b.held = 0
	b.mu.Unlock()
	_ = b.answer.SetReadDeadline(time.Now()) // a server that cannot waits for its own
	if b.call {
		_ = b.answer.SetWriteDeadline(time.Now().Add(endedCallWait)) // likewise
	}
}

func (b *countedBody) release() {
	b.budget.remove(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.budget.used.Add(-b.held)
	b.held = 0
}
