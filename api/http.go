package api

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlimit/weir/api/internal/jsonbody"
	"github.com/weirlimit/weir/internal/headers"
	"github.com/weirlimit/weir/internal/tracing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// openAPI describes the HTTP API.
//
//go:embed openapi/openapi.json
var openAPI []byte

// HTTPConfig is what a server of the HTTP API consists of, in addition to its services.
type HTTPConfig struct {
	// Gather are the metrics of /metrics.
	Gather prometheus.Gatherer
	// Guard refuses requests of web pages.
	Guard Guard
	// Permits says which callers may make which calls.
	Permits *Access
	// UI are the pages of the dashboard; nil is none.
	UI Dashboard
	// Profiles are what /debug/pprof/ serves; nil is nothing.
	Profiles http.Handler
	// GRPC answers gRPC calls on the same port; nil: it serves HTTP only. Permits admits its calls.
	GRPC *grpc.Server
}

// NewHTTPServer returns the server of the HTTP API, with every timeout and size bounded: the services as
// JSON by api/weir/v1/gateway.yaml, /auth for proxies, /metrics, /healthz, /readyz, and
// /openapi.json, which describes all of them. Requests that the guard refuses are a 403, except for /auth and
// health checks; those that are not permitted are a 401 or 403, or a 404 if they are served at another port. The
// caller sets Addr or calls Serve.
func NewHTTPServer(l *Limiter, c *ConfigServer, s Status, cfg HTTPConfig) (*http.Server, error) {
	readStrictly()
	gateway, mux, err := newRoutes(l, c, s, cfg)
	if err != nil {
		return nil, err
	}
	handler := patient(l.calls.handler(protect(cfg.Guard, gateway, cfg.Permits.Protect(countedBodies(l.unfinished, mux), cfg.UI))))
	if l.checks.Tracing != nil || l.checks.Decisions != nil {
		handler = tracing.Handler(handler)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      bodyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       connContext,
	}
	if cfg.GRPC != nil {
		addGRPC(server, cfg.GRPC, cfg.Permits, l.unfinished)
	}
	return server, nil
}

// routes is a ServeMux that knows its patterns, all of which needs must have.
type routes struct {
	*http.ServeMux
	patterns []string
}

// Handle adds a handler.
func (r *routes) Handle(pattern string, handler http.Handler) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.Handle(pattern, handler)
}

// HandleFunc adds a handler.
func (r *routes) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	r.Handle(pattern, http.HandlerFunc(handler))
}

// newRoutes returns the handlers of all paths. Those below /v1 are the gateway's unless they are routes.
func newRoutes(l *Limiter, c *ConfigServer, s Status, cfg HTTPConfig) (*runtime.ServeMux, *routes, error) {
	methods, err := newPathMethods()
	if err != nil {
		return nil, nil, err
	}
	gateway := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &jsonbody.Marshaler{JSONPb: runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true},
			// Unknown fields are refused: a misspelt one must not disable a limit.
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
		}}),
		runtime.WithDisablePathLengthFallback(), // a form's POST is not a GET
		runtime.WithForwardResponseOption(l.forwardDecision),
		runtime.WithErrorHandler(handleError),
		runtime.WithRoutingErrorHandler(methods.handleRoutingError),
	)
	if err := bind(gateway, l.Server(), auditedConfig{c, l.audit}, healthServer{limiter: l, status: s, port: cfg.Permits.port()},
		clusterServer{status: s, rules: c.store, checks: l.checks, audit: l.audit, port: cfg.Permits.port(), tokens: cfg.Permits.store()}); err != nil {
		return nil, nil, err
	}
	mux := &routes{ServeMux: http.NewServeMux()}
	mux.Handle("/v1/", ofCluster(s, gateway, http.MaxBytesHandler(headAsGet(gateway), MaxMessage)))
	refuse := func(w http.ResponseWriter, r *http.Request, err error) {
		_, json := runtime.MarshalerForRequest(gateway, r)
		runtime.HTTPError(r.Context(), gateway, json, w, r, err)
	}
	checks := ofCluster(s, gateway, l.accepting(http.MaxBytesHandler(gateway, MaxMessage), refuse))
	mux.Handle("POST /v1/check", checks)
	mux.Handle("POST /v1/check:batch", checks)
	mux.Handle("/v1/rules:apply", atOnce(maxHTTPApplies, gateway, atMostFor(applyTimeout, http.MaxBytesHandler(gateway, maxApply))))
	mux.Handle("GET /v1/rules:watch", watchHandler{config: c, gateway: gateway})
	auth := l.accepting(authHandler{l, new(atomic.Int64)}, refuseProblem)
	mux.Handle("/auth", auth)
	mux.Handle("/auth/{domain}", auth)
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Gather, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openAPI) // a client that is gone does not matter
	})
	if cfg.UI != nil {
		for pattern := range needs {
			if isUI(pattern) {
				most := int64(MaxMessage)
				if pattern == backtestPattern {
					most = maxBacktest
				}
				mux.Handle(pattern, http.MaxBytesHandler(cfg.UI, most))
			}
		}
	}
	if cfg.Profiles != nil {
		mux.Handle("/debug/pprof/", unhurried(cfg.Profiles))
	}
	l.envoy.AddPaths(mux, s.Ready, refuseDenied)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.Ready() {
			writeText(w, http.StatusServiceUnavailable, "not ready")
			return
		}
		writeText(w, http.StatusOK, "ready")
	})
	return gateway, mux, nil
}

// protect has guard refuse in the gateway's form, after what has a query that nothing
// reads. Proxies ask /auth with the header fields of
// their clients, Host and Origin among them, and it changes no more than any request of these
// does; health checks ask under any name, and hear nothing else.
func protect(guard Guard, gateway *runtime.ServeMux, next http.Handler) http.Handler {
	refuse := func(code codes.Code, w http.ResponseWriter, r *http.Request, err error) {
		_, json := runtime.MarshalerForRequest(gateway, r)
		runtime.HTTPError(r.Context(), gateway, json, w, r, status.Error(code, err.Error()))
	}
	protected := guard.Protect(next, func(w http.ResponseWriter, r *http.Request, err error) {
		refuse(codes.PermissionDenied, w, r, err)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := unreadQuery(r); err != nil {
			refuse(codes.InvalidArgument, w, r, err)
			return
		}
		switch path := r.URL.Path; {
		case path == "/auth", strings.HasPrefix(path, "/auth/"), path == "/healthz", path == "/readyz", path == "/healthcheck":
			next.ServeHTTP(w, r)
		default:
			protected.ServeHTTP(w, r)
		}
	})
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text) // a client that is gone does not matter
}

// forwardDecision adds the headers to a decision, and makes a denial a 429.
func (l *Limiter) forwardDecision(_ context.Context, w http.ResponseWriter, m proto.Message) error {
	resp, ok := m.(*weirv1.RateLimitResponse)
	if !ok {
		return nil
	}
	if err := l.style.Set(w.Header(), headers.Of(resp)); err != nil {
		return err
	}
	if !resp.GetAllowed() {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	return nil
}

// Parse implements runtime.QueryParameterParser.
func (q strictQuery) Parse(m proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	fields := m.ProtoReflect().Descriptor().Fields()
	for name := range values {
		if n := protoreflect.Name(name); fields.ByName(n) == nil && fields.ByJSONName(name) == nil {
			return fmt.Errorf("query: unknown parameter %q", name)
		}
	}
	return q.DefaultQueryParser.Parse(m, values, filter)
}

// handleError answers with the gateway's own form of errors. A node without time for
// a check answers 503: the gateway's 429 would look like the limit's answer.
func handleError(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if strings.HasPrefix(status.Convert(err).Message(), jsonbody.TooLarge) {
		err = &runtime.HTTPStatusError{HTTPStatus: http.StatusRequestEntityTooLarge, Err: err}
	}
	if status.Code(err) == codes.ResourceExhausted || strings.HasSuffix(status.Convert(err).Message(), jsonbody.ErrNoRoom.Error()) {
		w.Header().Set("Retry-After", retryOverloaded)
		err = &runtime.HTTPStatusError{HTTPStatus: http.StatusServiceUnavailable, Err: err}
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
}

// headAsGet has next answer HEAD as it answers GET; the server leaves the body out.
func headAsGet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			get := *r
			get.Method = http.MethodGet
			r = &get
		}
		next.ServeHTTP(w, r)
	})
}
