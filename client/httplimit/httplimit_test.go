package httplimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/client/embedded"
	"github.com/weirlimit/weir/client/httplimit"
	"github.com/weirlimit/weir/internal/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// deciding is a client.Checker that decides by a function.
type deciding func(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error)

func (f deciding) Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	return f(ctx, req)
}

// embed returns a Limiter of the rules of the domain default, one per line.
func embed(t testing.TB, rules ...string) *embedded.Limiter {
	t.Helper()
	l, err := embedded.New("domain: default\nrules:\n- " + strings.Join(rules, "\n- ") + "\n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

const perUser = "{id: per-user, per: [user], limits: [{limit: 2, window: 1m, algorithm: sliding_window_log}]}"

// user believes what clients say.
var user = httplimit.User(func(r *http.Request) string { return r.Header.Get("User") })

// server is a handler behind a middleware.
type server struct {
	t       testing.TB
	handler http.Handler
	mu      sync.Mutex
	served  int                       // guarded by mu
	answer  *weirv1.RateLimitResponse // guarded by mu; of the last request that was served
}

func serve(t testing.TB, c client.Checker, opts ...httplimit.Option) *server {
	t.Helper()
	limit, err := httplimit.New(c, opts...)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t}
	s.handler = limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.served++
		s.answer = httplimit.Answer(r.Context())
		w.WriteHeader(http.StatusNoContent)
	}))
	return s
}

// get asks for a path as a user.
func (s *server) get(ctx context.Context, path, user string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	r.RemoteAddr = "192.0.2.1:1234"
	if user != "" {
		r.Header.Set("User", user)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// field returns a header field in the spelling in which it was set.
func field(r *httptest.ResponseRecorder, name string) string {
	return strings.Join(r.Header()[name], ",")
}

// problem returns the problem document of a response.
func problem(t testing.TB, r *httptest.ResponseRecorder) (p headers.Problem) {
	t.Helper()
	if got := r.Header().Get("Content-Type"); got != headers.ProblemType {
		t.Errorf("Content-Type %q", got)
	}
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		t.Error(err)
	}
	return p
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, embed(t, perUser), user)
		for left := range 2 {
			r := s.get(t.Context(), "/", "alice")
			if got, want := field(r, "RateLimit"), fmt.Sprintf(`"per-user";r=%d;t=60`, 1-left); r.Code != http.StatusNoContent || got != want {
				t.Errorf("%d, %v, want 204, %s", r.Code, got, want)
			}
		}
		r := s.get(t.Context(), "/", "alice")
		if r.Code != http.StatusTooManyRequests || r.Header().Get("Retry-After") == "" {
			t.Errorf("%d, %v", r.Code, r.Header())
		}
		if p := problem(t, r); p.Status != 429 || !strings.HasSuffix(p.Type, "#quota-exceeded") || fmt.Sprint(p.Violated) != "[per-user]" {
			t.Errorf("%+v", p)
		}
		if s.served != 2 || s.answer.GetRuleId() != "per-user" {
			t.Errorf("%d served, the last by %v", s.served, s.answer)
		}
		if r := s.get(t.Context(), "/", "bob"); r.Code != http.StatusNoContent {
			t.Errorf("bob pays for alice: %d", r.Code)
		}
	})
}

// What is asked of nodes.
func TestRequest(t *testing.T) {
	proxies := netip.MustParsePrefix("192.0.2.0/24")
	for _, tc := range []struct {
		name, path string
		opts       []httplimit.Option
		fields     []string
		want       string // identifier, endpoint, tokens, domain, attributes
	}{
		{"by default", "/a/b?c", nil, nil, "ip=192.0.2.1 /a/b 0 map[method:GET]"},
		{"one spelling", "/a/..//b/%2e%2e/c/", nil, nil, "ip=192.0.2.1 /c/ 0 map[method:GET]"},
		{"user", "/", []httplimit.Option{user}, []string{"User", "alice"}, "user=alice / 0 map[ip:192.0.2.1 method:GET]"},
		{"no user", "/", []httplimit.Option{user}, nil, "ip=192.0.2.1 / 0 map[method:GET]"},
		{"not UTF-8", "/%ff", []httplimit.Option{user}, []string{"User", "\xff"}, "user=\uFFFD /\uFFFD 0 map[ip:192.0.2.1 method:GET]"},
		{
			"several", "/", []httplimit.Option{httplimit.APIKey("x-api-key"), user}, []string{"User", "alice", "X-Api-Key", "k"},
			"api_key=k / 0 map[ip:192.0.2.1 method:GET user:alice]",
		},
		{
			"one after the other", "/", []httplimit.Option{user, httplimit.By("user", func(*http.Request) string { return "unknown" })},
			[]string{"User", "alice"}, "user=alice / 0 map[ip:192.0.2.1 method:GET]",
		},
		{
			"the first counts", "/", []httplimit.Option{user, httplimit.APIKey("First"), httplimit.APIKey("Second")},
			[]string{"User", "alice", "First", "1", "Second", "2"}, "user=alice / 0 map[api_key:1 ip:192.0.2.1 method:GET]",
		},
		{"not trusted", "/", nil, []string{"X-Forwarded-For", "198.51.100.7"}, "ip=192.0.2.1 / 0 map[method:GET]"},
		{"trusted", "/", []httplimit.Option{httplimit.IP(proxies)}, []string{"X-Forwarded-For", "198.51.100.7"}, "ip=198.51.100.7 / 0 map[method:GET]"},
		{
			"cost", "/", []httplimit.Option{httplimit.Cost(func(r *http.Request) int64 { return int64(len(r.Header.Get("N"))) })},
			[]string{"N", "123"}, "ip=192.0.2.1 / 3 map[method:GET]",
		},
		{"nothing is given back", "/", []httplimit.Option{httplimit.Cost(func(*http.Request) int64 { return -1 })}, nil, "ip=192.0.2.1 / 1 map[method:GET]"},
		{
			"others", "/", []httplimit.Option{httplimit.Endpoint(func(*http.Request) string { return "route" }), httplimit.Domain("shop")}, nil,
			"ip=192.0.2.1 route 0 shop map[method:GET]",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got string
			s := serve(t, deciding(func(_ context.Context, r *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
				got = fmt.Sprintf("%s=%s %s %d %s", r.GetIdentifierType(), r.GetIdentifier(), r.GetEndpoint(), r.GetTokensRequested(), r.GetDomain())
				got = strings.TrimSuffix(got, " ") + fmt.Sprintf(" %v", r.GetAttributes())
				return &weirv1.RateLimitResponse{Allowed: true}, nil
			}), tc.opts...)
			s.get(t.Context(), tc.path, "", tc.fields...)
			if got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Requests wait for the turns that a rule has booked; a request that cannot wait takes no turn.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, embed(t, "{id: queue, limits: [{limit: 1, window: 1s, burst: 9, algorithm: leaky_bucket}]}"))
		begin := time.Now()
		got := make(map[time.Duration]int)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				r := s.get(t.Context(), "/", "")
				mu.Lock()
				defer mu.Unlock()
				got[time.Since(begin)] = r.Code
			})
		}
		synctest.Wait()
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for range 9 {
			r := s.get(soon, "/", "")
			if p := problem(t, r); p.Status != http.StatusTooManyRequests || fmt.Sprint(p.Violated) != "[queue]" || r.Header().Get("Retry-After") == "" || time.Since(begin) != 0 {
				t.Errorf("%+v, %v after %v, want to know at once", p, r.Header(), time.Since(begin))
			}
		}
		wg.Wait()
		if want := map[time.Duration]int{0: 204, time.Second: 204, 2 * time.Second: 204}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		s.get(t.Context(), "/", "") // so that the next has to wait
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, leave)
		if r := s.get(gone, "/", ""); r.Code != http.StatusServiceUnavailable || s.served != 4 {
			t.Errorf("%d, %d served, want no request served whose client has gone", r.Code, s.served)
		}
	})
}

// Requests are answered in time after any failure of the limiter.
func TestWithoutAnswer(t *testing.T) {
	silent := deciding(func(ctx context.Context, _ *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	failing := func(err error) deciding {
		return func(context.Context, *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) { return nil, err }
	}
	for _, tc := range []struct {
		name   string
		c      client.Checker
		opts   []httplimit.Option
		status int
		took   time.Duration
		source weirv1.Source
	}{
		{"silent", silent, nil, 204, client.DefaultTimeout, weirv1.Source_SOURCE_FAIL_OPEN},
		{"own deadline", silent, []httplimit.Option{httplimit.WithTimeout(3 * time.Millisecond)}, 204, 3 * time.Millisecond, weirv1.Source_SOURCE_FAIL_OPEN},
		{"fail closed", silent, []httplimit.Option{httplimit.WithFailClosed()}, 429, client.DefaultTimeout, weirv1.Source_SOURCE_FAIL_CLOSED},
		{"broken", failing(status.Error(codes.Unavailable, "down")), nil, 204, 0, weirv1.Source_SOURCE_FAIL_OPEN},
		{"closed", failing(client.ErrClosed), nil, 204, 0, weirv1.Source_SOURCE_FAIL_OPEN},
		{"overloaded", failing(status.Error(codes.ResourceExhausted, "overloaded")), nil, 503, 0, 0},
		{"refused", failing(&client.AccessError{Address: "a:1", Reason: status.Error(codes.PermissionDenied, "no role")}), nil, 500, 0, 0},
		{"refused, fail closed", failing(status.Error(codes.Unauthenticated, "no token")), []httplimit.Option{httplimit.WithFailClosed()}, 500, 0, 0},
		{"invalid", failing(status.Error(codes.InvalidArgument, "identifier: 300 bytes are more than 256")), nil, 400, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var source weirv1.Source
				s := serve(t, tc.c, append(tc.opts, httplimit.OnAnswer(func(_ *http.Request, answer *weirv1.RateLimitResponse) {
					source = answer.GetSource()
				}))...)
				begin := time.Now()
				r := s.get(t.Context(), "/", "")
				if r.Code != tc.status || time.Since(begin) != tc.took || source != tc.source {
					t.Errorf("%d by %v after %v, want %d by %v after %v", r.Code, source, time.Since(begin), tc.status, tc.source, tc.took)
				}
				if tc.status == http.StatusNoContent {
					if s.served != 1 || s.answer.GetSource() != tc.source {
						t.Errorf("%d served, by %v", s.served, s.answer)
					}
					return
				}
				if p := problem(t, r); s.served != 0 || p.Status != tc.status || p.Detail == "" {
					t.Errorf("%d served, %+v", s.served, p)
				}
			})
		})
	}
}

// What a node would refuse is no way around the limits.
func TestTooLong(t *testing.T) {
	s := serve(t, embed(t, perUser), user)
	for name, r := range map[string]*httptest.ResponseRecorder{
		"key":      s.get(t.Context(), "/", strings.Repeat("a", 257)),
		"endpoint": serve(t, embed(t, perUser), httplimit.Endpoint(func(*http.Request) string { return strings.Repeat("a", 257) })).get(t.Context(), "/", "alice"),
	} {
		if p := problem(t, r); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "257 bytes are more than 256") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if s.served != 0 {
		t.Errorf("%d served", s.served)
	}
}

func TestStyle(t *testing.T) {
	s := serve(t, embed(t, perUser), user, httplimit.WithStyle(httplimit.Style{Forms: []httplimit.Form{httplimit.Draft6}}))
	r := s.get(t.Context(), "/", "alice")
	if field(r, "RateLimit-Limit") != "2" || field(r, "RateLimit") != "" || field(r, "X-RateLimit-Limit") != "" {
		t.Errorf("%v", r.Header())
	}
}

func TestOptions(t *testing.T) {
	nothing := func(*http.Request) string { return "" }
	many := make([]httplimit.Option, 15)
	for i := range many {
		many[i] = httplimit.By(string(rune('a'+i)), nothing)
	}
	for want, opts := range map[string][]httplimit.Option{
		`by: the name "" has 0 bytes`:            {httplimit.By("", nothing)},
		`by: the name "aaaaaaaaaaaaaaaa" has 65`: {httplimit.By(strings.Repeat("a", 65), nothing)},
		`by: "endpoint" is what is asked for`:    {httplimit.By("endpoint", nothing)},
		`by "user": the function is nil`:         {httplimit.User(nil)},
		`by "o": is one more than 14`:            many,
		`ip: a block of trusted proxies`:         {httplimit.IP(netip.Prefix{})},
		`endpoint: the function is nil`:          {httplimit.Endpoint(nil)},
		`route: the function is nil`:             {httplimit.Route(nil)},
		`route: not together with endpoint`:      {httplimit.Route(nothing), httplimit.Endpoint(nothing)},
		`cost: the function is nil`:              {httplimit.Cost(nil)},
		`domain: the name "" has 0 bytes`:        {httplimit.Domain("")},
		`timeout: 0s is not positive`:            {httplimit.WithTimeout(0)},
		`on answer: the function is nil`:         {httplimit.OnAnswer(nil)},
		`style: forms: "Form(9)" is not one of`:  {httplimit.WithStyle(httplimit.Style{Forms: []httplimit.Form{9}})},
		`style: jitter: 101 is not between`:      {httplimit.WithStyle(httplimit.Style{Jitter: 101})},
	} {
		if _, err := httplimit.New(embed(t, perUser), opts...); err == nil || !strings.HasPrefix(err.Error(), "httplimit: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := httplimit.New(nil); err == nil {
		t.Error("no error without a limiter")
	}
	if _, err := httplimit.New(embed(t, perUser), many[:13]...); err != nil {
		t.Error(err)
	}
}

// What the middleware itself costs: the decision is a constant.
func BenchmarkLimit(b *testing.B) {
	answer := &weirv1.RateLimitResponse{
		Allowed: true, Limit: 100, RemainingTokens: 99, RuleId: "per-user", Source: weirv1.Source_SOURCE_OWNER,
		Window: durationpb.New(time.Minute), ResetAfter: durationpb.New(time.Second),
	}
	limit, err := httplimit.New(deciding(func(context.Context, *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) { return answer, nil }), user)
	if err != nil {
		b.Fatal(err)
	}
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest(http.MethodGet, "/posts", http.NoBody)
	r.Header.Set("User", "alice")
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
}
