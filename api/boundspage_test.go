package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// bound is a row of the table "Under way" in docs/reference/bounds.md.
type bound struct {
	what, most string
	beyond     string // what is answered one beyond, as in the table, where it stands in `code`
	size       int
	ask        func(t *testing.T, n int) (answer string) // of the last of n that are under way at once; "ok" if all are
}

var bounds = []bound{
	{"Messages of one stream that are decided", "8", "waits until one ends", maxUnderWay, messagesUnderWay},
	{"Changes of rules", "64", "`RESOURCE_EXHAUSTED`", maxWriters, changesUnderWay},
	{"Requests to `/auth` that wait for their turn", "1,024", "`429`", maxAuthWaiting, turnsUnderWay},
}

func messagesUnderWay(t *testing.T, n int) (answer string) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		var underWay atomic.Int32
		gate := make(chan struct{})
		f.checks.Decider = deciderFunc{f, func(context.Context, []shard.Group) {
			underWay.Add(1)
			<-gate
		}}
		s := f.stream(t)
		for id := range uint64(n) {
			s.send(id, "user=a")
		}
		synctest.Wait()
		answer = "ok"
		if int(underWay.Load()) == n-1 {
			answer = "waits until one ends"
		}
		close(gate)
		for range n {
			s.receive()
		}
		s.closed()
		if got := int(underWay.Load()); got != n {
			t.Errorf("%d messages are decided in the end, want %d", got, n)
		}
	})
	return answer
}

// changesUnderWay makes each kind of change while n-1 others are under way, over gRPC and HTTP. All are answered the same.
func changesUnderWay(t *testing.T, n int) (answer string) {
	f, _, c := newConfig(t)
	for range n - 1 {
		if _, err := f.config.startWriting(); err != nil {
			return err.Error()
		}
	}
	_, created := c.CreateRateLimit(t.Context(), &weirv1.CreateRateLimitRequest{RateLimit: simple("r", 1)})
	changed := simple("r", 2)
	_, updated := c.UpdateRateLimit(t.Context(), &weirv1.UpdateRateLimitRequest{RateLimit: changed})
	_, deleted := c.DeleteRateLimit(t.Context(), &weirv1.DeleteRateLimitRequest{Domain: "d", Id: "r"})
	answer = code.Code(status.Code(created)).String()
	for what, err := range map[string]error{"update": updated, "delete": deleted} {
		if got := code.Code(status.Code(err)).String(); got != answer {
			t.Errorf("%s: %v, want %s", what, err, answer)
		}
	}
	want := http.StatusOK
	if answer == code.Code_RESOURCE_EXHAUSTED.String() {
		want = http.StatusServiceUnavailable
	}
	h := f.handler(t)
	for _, ask := range [][3]string{
		{http.MethodPost, "/v1/rules", `{"domain":"d","id":"s","limit":1,"window_seconds":60}`},
		{http.MethodPut, "/v1/rules/d/s", `{"limit":2,"window_seconds":60}`},
		{http.MethodDelete, "/v1/rules/d/s", ""},
	} {
		if w := send(h, ask[0], ask[1], ask[2]); w.Code != want || (w.Header().Get("Retry-After") == "1") != (want != http.StatusOK) {
			t.Errorf("%s %s: %d %s, want %d", ask[0], ask[1], w.Code, w.Body, want)
		}
	}
	return strings.Replace(answer, "OK", "ok", 1)
}

// turnsUnderWay asks while n-1 other requests wait for their turn.
func turnsUnderWay(t *testing.T, n int) (answer string) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, "domain: default\nrules: [{id: slow, limits: [{limit: 1, window: 1s, burst: 1000000, algorithm: leaky_bucket}]}]\n")
		f.auth = trustingAuth(t, "X-Forwarded-For")
		f.auth.MaxDelay = time.Hour
		h := f.handler(t)
		ctx, cancel := context.WithCancel(t.Context())
		ask := func() (w *httptest.ResponseRecorder, ended bool) {
			w = httptest.NewRecorder()
			h.ServeHTTP(w, authRequest(proxy, "GET /auth").WithContext(ctx))
			return w, ctx.Err() == nil
		}
		if w, _ := ask(); w.Code != http.StatusOK { // it does not wait
			t.Errorf("the first request: %d", w.Code)
		}
		var wg sync.WaitGroup
		for range n - 1 {
			wg.Go(func() {
				if w, ended := ask(); ended {
					t.Errorf("one before the last: %d", w.Code)
				}
			})
		}
		synctest.Wait()
		answer = "ok"
		wg.Go(func() {
			if w, ended := ask(); ended {
				answer = fmt.Sprint(w.Code)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
	})
	return answer
}

// What docs/reference/bounds.md permits to be under way at once is, and one more is answered as it says.
func TestDocumentedBounds(t *testing.T) {
	doc, err := os.ReadFile("../docs/reference/bounds.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| Under way at once | At most | One more |\n| --- | --- | --- |\n"
	for _, b := range bounds {
		table += fmt.Sprintf("| %s | %s | %s |\n", b.what, b.most, b.beyond)
		if got := b.ask(t, b.size); got != "ok" {
			t.Errorf("%s: %d: %s", b.what, b.size, got)
		}
		if got := b.ask(t, b.size+1); got != strings.Trim(b.beyond, "`") {
			t.Errorf("%s: %d: %s, want %s", b.what, b.size+1, got, b.beyond)
		}
		if got := strings.ReplaceAll(b.most, ",", ""); got != fmt.Sprint(b.size) {
			t.Errorf("%s: %s in the table, %d in the code", b.what, b.most, b.size)
		}
	}
	if !strings.Contains(string(doc), table) {
		t.Errorf("docs/reference/bounds.md has not this table:\n%s", table)
	}
}
