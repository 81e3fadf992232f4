package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"
)

// maxEndpoint is the longest endpoint that nodes take, in bytes.
const maxEndpoint = 256

// Path returns the path of a request in one spelling of those that routers take for the
// same, without repeated slashes and dots. Of a path of more than 256 bytes, which nodes
// would refuse, it keeps the first and the last 111 bytes, or a few less, and has 32 digits
// of its SHA-256 hash between them. So different paths stay different, and conditions
// on how a path begins or ends hold.
func Path(r *http.Request) string {
	clean := path.Clean("/" + r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") && clean != "/" {
		clean += "/"
	}
	return shorten(strings.ToValidUTF8(clean, "\uFFFD"))
}

// shorten returns a text of at most maxEndpoint bytes, which differs if text does.
func shorten(text string) string {
	if len(text) <= maxEndpoint {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	hash := "~" + hex.EncodeToString(sum[:16]) + "~"
	keep := (maxEndpoint - len(hash)) / 2
	head, tail := keep, len(text)-keep
	for !utf8.RuneStart(text[head]) {
		head--
	}
	for !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + hash + text[tail:]
}

// router is what an http.ServeMux says of a request that it has not served yet.
type router interface {
	Handler(r *http.Request) (h http.Handler, pattern string)
}

// endpoint returns what is asked for by default: the route that the hook names, else the
// route in the patterns of net/http, else the path.
func endpoint(hook func(*http.Request) string, next http.Handler, r *http.Request) string {
	if hook != nil {
		if name := hook(r); name != "" {
			return shorten(strings.ToValidUTF8(name, "\uFFFD"))
		}
	}
	if mux, ok := next.(router); ok {
		if _, pattern := mux.Handler(r); isRoute(pattern) {
			return routeOf(pattern)
		}
	}
	if isRoute(r.Pattern) {
		return routeOf(r.Pattern)
	}
	return Path(r)
}

// isRoute reports whether a pattern of net/http stands for one route. One that ends in a
// slash or in "...}" stands for all paths below, about which rules may differ.
func isRoute(pattern string) bool {
	return strings.Contains(pattern, "/") && !strings.HasSuffix(pattern, "/") && !strings.HasSuffix(pattern, "...}")
}

// routeOf returns the path of a pattern, such as "/posts/{id}" of "GET example.com/posts/{id}".
func routeOf(pattern string) string {
	route := strings.TrimSuffix(pattern[strings.IndexByte(pattern, '/'):], "{$}")
	return shorten(strings.ToValidUTF8(route, "\uFFFD"))
}
