package httplimit

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlimit/weir/client/internal/middleware"
	"github.com/weirlimit/weir/internal/clientip"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Option changes what New would do by default.
type Option = middleware.Option[*http.Request]

// By names the caller of a request, in an attribute of that name, of 1 to 64 bytes. A request for which of
// returns "" does not have it. Up to 13 may be given; of several with one name the first that is not empty
// counts.
func By(name string, of func(*http.Request) string) Option { return middleware.By(name, of) }

// User is By("user", of). Give it a function that knows who has logged in, not one that
// believes what a client says.
func User(of func(*http.Request) string) Option { return By("user", of) }

// APIKey is By("api_key", …) with the value of a header field, such as "X-Api-Key". Nodes
// and their tools see it as it is: where it is a secret, use By with a function that
// hashes it.
func APIKey(header string) Option {
	return By("api_key", func(r *http.Request) string { return r.Header.Get(header) })
}

// IP is By("ip", …) with the address of the client. X-Forwarded-For is believed as far as
// it was written by proxies with addresses in trusted; without any, the address is that
// of the connection. The attribute is there without this option as well, behind all others.
func IP(trusted ...netip.Prefix) Option {
	proxies := clientip.Proxies(trusted)
	return func(c *middleware.Config[*http.Request]) error {
		if slices.ContainsFunc(trusted, func(block netip.Prefix) bool { return !block.IsValid() }) {
			return errors.New("ip: a block of trusted proxies is invalid")
		}
		return By("ip", func(r *http.Request) string {
			return proxies.Client(r.RemoteAddr, r.Header["X-Forwarded-For"], clientip.List)
		})(c)
	}
}

// Route says how the router in use names the route of a request, such as "/posts/{id}"; "" if
// it does not know. Routers other than http.ServeMux need it: those of gorilla/mux, or of chi
// where the middleware stands before the route is found.
func Route(of func(*http.Request) string) Option { return middleware.Route(of) }

// Endpoint replaces the route and the path as what is asked for. It is not shortened.
func Endpoint(of func(*http.Request) string) Option { return middleware.Endpoint(of) }

// Cost says how many tokens a request costs, instead of 1. Less than 1 counts as 1.
func Cost(of func(*http.Request) int64) Option { return middleware.Cost(of) }

// Domain chooses the rules, instead of "default".
func Domain(name string) Option { return middleware.Domain[*http.Request](name) }

// WithTimeout bounds how long a decision may take, instead of client.DefaultTimeout.
func WithTimeout(timeout time.Duration) Option { return middleware.Timeout[*http.Request](timeout) }

// WithFailClosed denies requests not decided in time, instead of allowing them.
func WithFailClosed() Option { return middleware.FailClosed[*http.Request]() }

// WithStyle chooses the header fields, instead of DefaultStyle.
func WithStyle(style Style) Option { return middleware.Style[*http.Request](style) }

// OnAnswer calls told with every answer, for logs and metrics, before the request goes on. The answer may
// be shared: it must not be changed.
func OnAnswer(told func(*http.Request, *weirv1.RateLimitResponse)) Option {
	return middleware.OnAnswer(told)
}

// OnError calls told with every error of a check, for logs: what is invalid, for what there is no time, and a *client.AccessError if
// nodes refuse this server, whose reason clients do not see.
func OnError(told func(*http.Request, error)) Option { return middleware.OnError(told) }
