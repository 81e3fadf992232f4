package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gatewayv1 "github.com/weirlimit/weir/api/internal/gateway/weir/v1"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// bind has the gateway serve the methods of these servers on the paths of gateway.yaml.
func bind(gateway *runtime.ServeMux, l weirv1.RateLimiterServer, c weirv1.RateLimiterConfigServer, h weirv1.RateLimiterHealthServer, s weirv1.ClusterServer) error {
	ctx := context.Background() // the registrations only keep it
	for _, err := range []error{
		gatewayv1.RegisterRateLimiterHandlerServer(ctx, gateway, l),
		gatewayv1.RegisterRateLimiterConfigHandlerServer(ctx, gateway, c),
		gatewayv1.RegisterRateLimiterHealthHandlerServer(ctx, gateway, h),
		gatewayv1.RegisterClusterHandlerServer(ctx, gateway, s),
	} {
		if err != nil {
			return fmt.Errorf("register the HTTP API: %w", err)
		}
	}
	return nil
}

// pathMethods finds the HTTP methods of a path: those that a gateway with the same paths would serve. Its calls do nothing.
type pathMethods struct {
	gateway *runtime.ServeMux
}

func newPathMethods() (pathMethods, error) {
	p := pathMethods{runtime.NewServeMux(
		runtime.WithDisablePathLengthFallback(),
		runtime.WithMiddlewares(func(runtime.HandlerFunc) runtime.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request, _ map[string]string) { w.WriteHeader(http.StatusOK) }
		}),
		runtime.WithRoutingErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, code int) {
			w.WriteHeader(code)
		}),
	)}
	return p, bind(p.gateway, weirv1.UnimplementedRateLimiterServer{}, weirv1.UnimplementedRateLimiterConfigServer{},
		weirv1.UnimplementedRateLimiterHealthServer{}, weirv1.UnimplementedClusterServer{})
}

// of returns the methods of a path as the header field Allow names them.
func (p pathMethods) of(path string) string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		var code statusCode
		p.gateway.ServeHTTP(&code, &http.Request{Method: method, URL: &url.URL{Path: path}})
		if code == http.StatusOK {
			methods = append(methods, method)
			if method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
	}
	return strings.Join(methods, ", ")
}

// statusCode is a response of which only the status is kept.
type statusCode int

// Header implements http.ResponseWriter.
func (*statusCode) Header() http.Header { return make(http.Header) }

// Write implements http.ResponseWriter.
func (*statusCode) Write(body []byte) (int, error) { return len(body), nil }

// WriteHeader implements http.ResponseWriter.
func (c *statusCode) WriteHeader(code int) { *c = statusCode(code) }

// handleRoutingError answers 405, where the gateway would say 501, and names the
// methods that the path knows.
func (p pathMethods) handleRoutingError(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	if code != http.StatusMethodNotAllowed {
		runtime.DefaultRoutingErrorHandler(ctx, mux, m, w, r, code)
		return
	}
	allow := p.of(r.URL.Path)
	w.Header().Set("Allow", allow)
	err := status.Errorf(codes.Unimplemented, "method: %s is not %s", r.Method, allow)
	handleError(ctx, mux, m, w, r, &runtime.HTTPStatusError{HTTPStatus: code, Err: err})
}
