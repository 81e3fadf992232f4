package grpclimit

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/client/internal/middleware"
	"github.com/weirlimit/weir/internal/clientip"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Option changes what New would do by default. The functions that options take are given
// the context of the call, from which grpc.Method, peer.FromContext and
// metadata.FromIncomingContext tell more.
type Option = middleware.Option[context.Context]

// By names the caller of a request, in an attribute of that name, of 1 to 64 bytes. A request for which of
// returns "" does not have it. Up to 13 may be given; of several with one name the first that is not empty
// counts.
func By(name string, of func(context.Context) string) Option { return middleware.By(name, of) }

// User is By("user", of). Give it a function that knows who has logged in, not one that
// believes what a client says.
func User(of func(context.Context) string) Option { return By("user", of) }

// APIKey is By("api_key", …) with the value of a key of the metadata, such as "x-api-key".
// Nodes and their tools see it as it is: where it is a secret, use By with a function that
// hashes it.
func APIKey(key string) Option {
	return By("api_key", func(ctx context.Context) string {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			return values[0]
		}
		return ""
	})
}

// IP is By("ip", …) with the address of the client. x-forwarded-for is believed as far as
// it was written by proxies with addresses in trusted; without any, the address is that
// of the connection. The attribute is there without this option as well, behind all others.
func IP(trusted ...netip.Prefix) Option {
	proxies := clientip.Proxies(trusted)
	return func(c *middleware.Config[context.Context]) error {
		if slices.ContainsFunc(trusted, func(block netip.Prefix) bool { return !block.IsValid() }) {
			return errors.New("ip: a block of trusted proxies is invalid")
		}
		return By("ip", func(ctx context.Context) string {
			p, ok := peer.FromContext(ctx)
			if !ok || p.Addr == nil {
				return ""
			}
			return proxies.Client(p.Addr.String(), metadata.ValueFromIncomingContext(ctx, "x-forwarded-for"), clientip.List)
		})(c)
	}
}

// Endpoint replaces the full method as what is asked for.
func Endpoint(of func(context.Context) string) Option { return middleware.Endpoint(of) }

// Cost says how many tokens a request costs, instead of 1. Less than 1 counts as 1.
func Cost(of func(context.Context) int64) Option { return middleware.Cost(of) }

// Domain chooses the rules, instead of "default".
func Domain(name string) Option { return middleware.Domain[context.Context](name) }

// WithTimeout bounds how long a decision may take, instead of client.DefaultTimeout.
func WithTimeout(timeout time.Duration) Option { return middleware.Timeout[context.Context](timeout) }

// WithFailClosed denies requests not decided in time, instead of allowing them.
func WithFailClosed() Option { return middleware.FailClosed[context.Context]() }

// WithStyle chooses the fields of the header metadata and the jitter, instead of
// DefaultStyle.
func WithStyle(style Style) Option { return middleware.Style[context.Context](style) }

// OnAnswer calls told with every answer, for logs and metrics, before the request goes on. The answer may
// be shared: it must not be changed.
func OnAnswer(told func(context.Context, *weirv1.RateLimitResponse)) Option {
	return middleware.OnAnswer(told)
}

// OnError calls told with every error of a check, for logs: what is invalid, for what there is no time, and a *client.AccessError if
// nodes refuse this server, whose reason clients do not see.
func OnError(told func(context.Context, error)) Option { return middleware.OnError(told) }
