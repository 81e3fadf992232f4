package api

import (
	"context"
	"fmt"
	"net/http"
	"regexp"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// NewHTTPServer returns the server of the HTTP API, with every timeout and size
// bounded: the services as JSON by api/weir/v1/gateway.yaml, /metrics from gather,
// /healthz and /readyz. The caller sets Addr or calls Serve.
func NewHTTPServer(l *Limiter, s Status, gather prometheus.Gatherer) (*http.Server, error) {
	gateway := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true},
			// Unknown fields are refused: a misspelt one must not limit nobody.
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
		}),
		runtime.WithForwardResponseOption(forwardDecision),
		runtime.WithErrorHandler(handleError),
	)
	ctx := context.Background() // the registrations only keep it
	for _, err := range []error{
		weirv1.RegisterRateLimiterHandlerServer(ctx, gateway, rateLimiter{Limiter: l}),
		weirv1.RegisterRateLimiterHealthHandlerServer(ctx, gateway, healthServer{status: s}),
		weirv1.RegisterClusterHandlerServer(ctx, gateway, clusterServer{status: s}),
	} {
		if err != nil {
			return nil, fmt.Errorf("register the HTTP API: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", http.MaxBytesHandler(gateway, MaxMessage))
	mux.Handle("GET /metrics", promhttp.HandlerFor(gather, promhttp.HandlerOpts{}))
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
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      bodyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}, nil
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text) // a client that is gone does not matter
}

// forwardDecision adds the headers to a decision, and makes a denial a 429.
func forwardDecision(_ context.Context, w http.ResponseWriter, m proto.Message) error {
	resp, ok := m.(*weirv1.RateLimitResponse)
	if !ok {
		return nil
	}
	if err := setHeaders(w.Header(), resp); err != nil {
		return err
	}
	if !resp.GetAllowed() {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	return nil
}

// jsonError matches what protojson says; it puts a no-break space after "proto:"
// at random, to keep anybody from relying on the text.
var jsonError = regexp.MustCompile(`^proto:[\s\x{a0}]*(?:syntax error )?\(line (\d+):(\d+)\):[\s\x{a0}]*(.*)$`)

// handleError answers with the gateway's own form of errors, and names the body
// where the body is at fault.
func handleError(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if st := status.Convert(err); st.Code() == codes.InvalidArgument {
		if p := jsonError.FindStringSubmatch(st.Message()); p != nil {
			err = status.Errorf(codes.InvalidArgument, "body: line %s, column %s: %s", p[1], p[2], p[3])
		}
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
}
