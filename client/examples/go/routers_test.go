package examples

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/labstack/echo/v4"

	"github.com/weirlimit/weir/client/embedded"
	"github.com/weirlimit/weir/client/httplimit"
)

// newLimit returns a middleware that lets every user ask for /posts/… twice a day.
func newLimit(t testing.TB) func(http.Handler) http.Handler {
	t.Helper()
	return newLimitOf(t, "/posts/*")
}

// newLimitOf is newLimit for another endpoint.
func newLimitOf(t testing.TB, endpoint string, opts ...httplimit.Option) func(http.Handler) http.Handler {
	t.Helper()
	weir, err := embedded.New("domain: default\nrules:\n- {id: posts, when: {endpoint: '" + endpoint + "'}, per: [user], limits: [{limit: 2, window: 1d}]}\n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = weir.Close() })
	limit, err := httplimit.New(weir, append(opts, httplimit.User(func(r *http.Request) string { return r.Header.Get("User") }))...)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// Of chi a middleware is one of net/http.
func TestChi(t *testing.T) {
	r := chi.NewRouter()
	r.Use(newLimit(t))
	r.Get("/posts/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, chi.URLParam(r, "id"), httplimit.Answer(r.Context()).GetRuleId())
	})
	check(t, r)
}

// Behind the router, or by a look into its table, the route is what is asked for.
func TestRouteOfChi(t *testing.T) {
	const route = "/posts/{id}"
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, chi.URLParam(r, "id"), httplimit.Answer(r.Context()).GetRuleId())
	}
	behind := chi.NewRouter()
	found := httplimit.Route(func(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() })
	behind.With(newLimitOf(t, "re:/posts/[{]id[}]", found)).Get(route, handler)
	check(t, behind)

	before := chi.NewRouter()
	lookup := httplimit.Route(func(r *http.Request) string { return before.Find(chi.NewRouteContext(), r.Method, r.URL.Path) })
	before.Use(newLimitOf(t, "re:/posts/[{]id[}]", lookup))
	before.Get(route, handler)
	check(t, before)
}

// Likewise that of gorilla/mux, whose middlewares stand behind the router.
func TestRouteOfGorilla(t *testing.T) {
	r := mux.NewRouter()
	r.Use(newLimitOf(t, "re:/posts/[{]id[}]", httplimit.Route(func(r *http.Request) string {
		template, _ := mux.CurrentRoute(r).GetPathTemplate() // "" if it has none
		return template
	})))
	r.HandleFunc("/posts/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, mux.Vars(r)["id"], httplimit.Answer(r.Context()).GetRuleId())
	})
	check(t, r)
}

// Echo wraps it.
func TestEcho(t *testing.T) {
	e := echo.New()
	e.Use(echo.WrapMiddleware(newLimit(t)))
	e.GET("/posts/:id", func(c echo.Context) error {
		return c.String(http.StatusOK, c.Param("id")+httplimit.Answer(c.Request().Context()).GetRuleId())
	})
	check(t, e)
}

// Gin needs the adapter below.
func TestGin(t *testing.T) {
	gin.SetMode(gin.TestMode)
	g := gin.New()
	g.Use(forGin(newLimit(t)))
	g.GET("/posts/:id", func(c *gin.Context) {
		c.String(http.StatusOK, c.Param("id")+httplimit.Answer(c.Request.Context()).GetRuleId())
	})
	check(t, g)
}

// forGin makes a middleware of net/http one of gin.
func forGin(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed, c.Request = true, r
			c.Next()
		})
		middleware(next).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// check asks a server: twice is allowed, the third time is not, another user is.
func check(t *testing.T, server http.Handler) {
	t.Helper()
	for i, want := range []struct {
		user, body string
		status     int
	}{
		{"alice", "7posts", 200}, {"alice", "7posts", 200}, {"alice", "quota-exceeded", 429}, {"bob", "7posts", 200},
	} {
		r, w := httptest.NewRequest(http.MethodGet, "/posts/7", http.NoBody), httptest.NewRecorder()
		r.Header.Set("User", want.user)
		server.ServeHTTP(w, r)
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.body) || len(w.Header()["RateLimit"]) == 0 {
			t.Errorf("request %d: %d, %q, %v, want %+v", i, w.Code, w.Body, w.Header(), want)
		}
		if want.status != 200 && strings.Contains(w.Body.String(), "7posts") {
			t.Errorf("request %d: the handler was called", i)
		}
	}
}
