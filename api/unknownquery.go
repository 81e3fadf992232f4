package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
)

// queries are the paths that read a query, with what it may have; nil is for those whose
// readers refuse what they do not know. A path with a slash at the end is all below it.
// Proxies may hand on the queries of their clients to /auth, which reads none.
var queries = []struct {
	method, path string
	parameters   []string
}{
	{http.MethodGet, "/v1/ring", nil},
	{http.MethodGet, "/v1/top", nil},
	{http.MethodGet, "/v1/rules", nil},
	{http.MethodGet, "/v1/rules:watch", nil},
	{http.MethodDelete, "/v1/rules/", nil},
	{http.MethodGet, "/metrics", []string{"name[]"}},
	{http.MethodGet, "/ui/live", []string{"after"}},
	{http.MethodGet, "/ui/rules", []string{"q"}},
	{http.MethodGet, "/ui/top", []string{"by", "window", "domain", "rule", "part"}},
	{http.MethodGet, "/ui/backtest", []string{"domain", "id"}},
	{http.MethodGet, "/ui/ring", []string{"node", "part", "seen"}},
	{http.MethodGet, "/ui/inspect", []string{"domain", "q"}},
	{http.MethodGet, "/ui/static/", []string{"v"}},
	{http.MethodGet, "/ui/sign-in", []string{"to"}},
	{"", "/debug/pprof/", nil},
	{"", "/auth", nil},
	{"", "/auth/", nil},
}

// unreadQuery returns an error that names a parameter of r that nothing reads, nil if there is
// none: a revision in the wrong place must not be as good as none.
func unreadQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var read []string
	for _, q := range queries {
		below := strings.HasSuffix(q.path, "/") && strings.HasPrefix(r.URL.Path, q.path)
		if q.method != "" && q.method != method || q.path != r.URL.Path && !below {
			continue
		}
		if q.parameters == nil {
			return nil
		}
		read = q.parameters
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(read, name) {
			return fmt.Errorf("query: nothing reads %q: %s %s takes no such parameter", clip(name), method, clip(r.URL.Path))
		}
	}
	return nil
}

// readStrictly sets how queries are read. The gateway has one way for the whole process.
var readStrictly = sync.OnceFunc(func() { runtime.SetQueryParameterParser(strictQuery{})(nil) })

// strictQuery refuses unknown parameters, which the gateway would ignore: a misspelt revision must not
// delete a rule unconditionally.
type strictQuery struct{ runtime.DefaultQueryParser }
