package api

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlimit/weir/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// openAPI describes the HTTP API.
//
//go:embed openapi/openapi.json
var openAPI []byte

// readStrictly sets how queries are read. The gateway has one way for the whole process.
var readStrictly = sync.OnceFunc(func() { runtime.SetQueryParameterParser(strictQuery{})(nil) })

// NewHTTPServer returns the server of the HTTP API, with every timeout and size
// bounded: the services as JSON by api/weir/v1/gateway.yaml, /auth for proxies, /metrics
// from gather, /healthz, /readyz, and /openapi.json, which describes all of them. The caller sets Addr or calls Serve.
func NewHTTPServer(l *Limiter, c *ConfigServer, s Status, gather prometheus.Gatherer) (*http.Server, error) {
	readStrictly()
	gateway := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &jsonBody{runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true},
			// Unknown fields are refused: a misspelt one must not limit nobody.
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
		}}),
		runtime.WithDisablePathLengthFallback(), // a form's POST is not a GET
		runtime.WithForwardResponseOption(l.forwardDecision),
		runtime.WithErrorHandler(handleError),
		runtime.WithRoutingErrorHandler(handleRoutingError),
	)
	ctx := context.Background() // the registrations only keep it
	for _, err := range []error{
		weirv1.RegisterRateLimiterHandlerServer(ctx, gateway, l.Server()),
		weirv1.RegisterRateLimiterConfigHandlerServer(ctx, gateway, c),
		weirv1.RegisterRateLimiterHealthHandlerServer(ctx, gateway, healthServer{limiter: l, status: s}),
		weirv1.RegisterClusterHandlerServer(ctx, gateway, clusterServer{status: s}),
	} {
		if err != nil {
			return nil, fmt.Errorf("register the HTTP API: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", http.MaxBytesHandler(gateway, MaxMessage))
	mux.Handle("/v1/rules:apply", atOnce(maxHTTPApplies, gateway, http.MaxBytesHandler(gateway, maxApply)))
	mux.Handle("GET /v1/rules:watch", watchHandler{config: c, gateway: gateway})
	auth := authHandler{l, new(atomic.Int64)}
	mux.Handle("/auth", auth)
	mux.Handle("/auth/{domain}", auth)
	mux.Handle("GET /metrics", promhttp.HandlerFor(gather, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openAPI) // a client that is gone does not matter
	})
	addEnvoyPaths(mux, l, s)
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

// strictQuery refuses unknown parameters, which the gateway would ignore: a misspelt
// revision must not delete whatever there is.
type strictQuery struct{ runtime.DefaultQueryParser }

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

// jsonBody is JSON as the gateway knows it, except that a body is read whole: what
// stands after its message is an error too, and errors say where in the body.
type jsonBody struct{ runtime.JSONPb }

// jsonError matches what protojson says; it puts a no-break space after "proto:"
// at random, to keep anybody from relying on the text.
var jsonError = regexp.MustCompile(`(?s)^proto:[\s\x{a0}]*(?:syntax error )?\(line (\d+):(\d+)\):[\s\x{a0}]*(.*)$`)

// bodyTooLarge begins the error that is known by its text: the gateway makes every
// error a new one.
const bodyTooLarge = "body: more than "

// NewDecoder implements runtime.Marshaler.
func (j *jsonBody) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		body, err := io.ReadAll(r)
		if err != nil {
			if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
				return fmt.Errorf("%s%d bytes", bodyTooLarge, large.Limit)
			}
			return fmt.Errorf("body: read: %w", err)
		}
		if len(bytes.TrimSpace(body)) == 0 {
			return errors.New("body: must not be empty")
		}
		err = j.UnmarshalOptions.Unmarshal(body, message(v))
		switch {
		case err == nil:
			return nil
		case strings.HasSuffix(err.Error(), io.ErrUnexpectedEOF.Error()):
			return fmt.Errorf("body: the JSON ends too early, after %d bytes", len(body))
		}
		return errors.New(describe(err.Error()))
	})
}

// message is what a body is read into. By gateway.yaml it is a message, or a field
// of one that has none yet.
func message(v any) proto.Message {
	if m, ok := v.(proto.Message); ok {
		return m
	}
	field := reflect.ValueOf(v).Elem()
	field.Set(reflect.New(field.Type().Elem()))
	return field.Interface().(proto.Message)
}

// describe turns what protojson says of a body into an error's message.
func describe(text string) string {
	where := "body: "
	if p := jsonError.FindStringSubmatch(text); p != nil {
		where, text = fmt.Sprintf("body: line %s, column %s: ", p[1], p[2]), p[3]
	}
	if len(text) > maxEcho {
		text = text[:maxEcho] + "..."
	}
	return where + strings.ToValidUTF8(text, "\uFFFD") // no answer can hold other bytes
}

// handleError answers with the gateway's own form of errors. A node without time for
// a check answers 503: the gateway's 429 would look like the limit's answer.
func handleError(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if strings.HasPrefix(status.Convert(err).Message(), bodyTooLarge) {
		err = &runtime.HTTPStatusError{HTTPStatus: http.StatusRequestEntityTooLarge, Err: err}
	}
	if status.Code(err) == codes.ResourceExhausted {
		w.Header().Set("Retry-After", retryOverloaded)
		err = &runtime.HTTPStatusError{HTTPStatus: http.StatusServiceUnavailable, Err: err}
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
}

// handleRoutingError answers 405, where the gateway would say 501, and names the
// methods that the path knows.
func handleRoutingError(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	if code != http.StatusMethodNotAllowed {
		runtime.DefaultRoutingErrorHandler(ctx, mux, m, w, r, code)
		return
	}
	allow := http.MethodGet
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/v1/check"), path == "/v1/status", path == "/v1/explain", path == "/v1/reset", path == "/v1/rules:apply",
		path == "/v1/view:import", strings.HasPrefix(path, "/v1/nodes/"):
		allow = http.MethodPost
	case path == "/v1/rules":
		allow = "GET, POST"
	case strings.HasPrefix(path, "/v1/rules/"):
		allow = "GET, PUT, DELETE"
	}
	w.Header().Set("Allow", allow)
	err := status.Errorf(codes.Unimplemented, "method: %s is not %s", r.Method, allow)
	handleError(ctx, mux, m, w, r, &runtime.HTTPStatusError{HTTPStatus: code, Err: err})
}
