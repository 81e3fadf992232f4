package examples

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/weirlimit/weir/client/httplimit"
	"github.com/weirlimit/weir/embedded"
)

// newLimit returns a middleware that lets every user ask for /posts/… twice a day.
func newLimit(t testing.TB) func(http.Handler) http.Handler {
	t.Helper()
	weir, err := embedded.New("domain: default\nrules:\n- {id: posts, when: {endpoint: /posts/*}, per: [user], limits: [{limit: 2, window: 1d}]}\n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = weir.Close() })
	limit, err := httplimit.New(weir, httplimit.User(func(r *http.Request) string { return r.Header.Get("User") }))
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
