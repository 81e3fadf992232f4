package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/tracing"
)

// otherCall is what metrics call a request whose path no part of the node serves.
const otherCall = "other"

// callBuckets are bounds in seconds. Calls wait for etcd and for other nodes, and so take longer than checks.
var callBuckets = []float64{250e-6, 1e-3, 5e-3, 25e-3, 100e-3, 500e-3, 2.5, 10}

// callMetrics count the calls of all services over gRPC but RateLimiter, and all requests over HTTP. Their labels are bounded: calls are those of
// needs.
type callMetrics struct {
	calls    *prometheus.CounterVec   // by call and code
	duration *prometheus.HistogramVec // by call
	paths    *http.ServeMux           // knows the patterns of needs
	traced   bool                     // the ids of callers' traces are exemplars
}

func newCallMetrics(r prometheus.Registerer, traced bool) *callMetrics {
	f := promauto.With(r)
	m := &callMetrics{
		traced: traced,
		calls: f.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_calls_total",
			Help: "Calls over gRPC, such as Cluster.ListNodes, by code of gRPC, except checks, which weir_check_duration_seconds has; and requests over HTTP, checks included, by path, such as GET /v1/nodes, and status. Paths that the node does not serve are other. Streams are in it when they have ended.",
		}, []string{"call", "code"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:                            "weir_call_duration_seconds",
			Help:                            "Time in which this node answered a call of weir_calls_total, streams left out. With tracing on, exemplars have the ids of the callers' traces.",
			Buckets:                         callBuckets,
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  160,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"call"}),
		paths: http.NewServeMux(),
	}
	for pattern := range needs {
		if !isMethod(pattern) {
			m.paths.Handle(pattern, http.NotFoundHandler())
		}
	}
	return m
}

// observe counts a call and observes the time since start. If the caller traces the call, the id of its trace is the exemplar.
func (m *callMetrics) observe(ctx context.Context, call, code string, start time.Time) {
	m.count(call, code)
	seconds, duration := time.Since(start).Seconds(), m.duration.WithLabelValues(call)
	if m.traced {
		exemplars, takes := duration.(prometheus.ExemplarObserver)
		if caller := tracing.Remote(ctx); takes && caller.IsSampled() {
			exemplars.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": caller.TraceID().String()})
			return
		}
	}
	duration.Observe(seconds)
}

func (m *callMetrics) count(call, code string) { m.calls.WithLabelValues(call, code).Inc() }

// measuredServer is a gRPC server whose calls of services are measured. Streams last, so that they are counted only, when they end.
type measuredServer struct {
	grpc.ServiceRegistrar
	metrics *callMetrics
}

// RegisterService implements grpc.ServiceRegistrar.
func (s measuredServer) RegisterService(service *grpc.ServiceDesc, implementation any) {
	measured := *service
	measured.Methods, measured.Streams = nil, nil
	for _, m := range service.Methods {
		measured.Methods = append(measured.Methods, s.metrics.method(service, m))
	}
	for _, st := range service.Streams {
		handle, call := st.Handler, callOfMethod(service, st.StreamName)
		st.Handler = func(server any, stream grpc.ServerStream) error {
			err := handle(server, stream)
			s.metrics.count(call, status.Code(err).String())
			return err
		}
		measured.Streams = append(measured.Streams, st)
	}
	s.ServiceRegistrar.RegisterService(&measured, implementation)
}

// method returns a method of a service that is measured.
func (m *callMetrics) method(service *grpc.ServiceDesc, method grpc.MethodDesc) grpc.MethodDesc {
	handle, call := method.Handler, callOfMethod(service, method.MethodName)
	method.Handler = func(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		start := time.Now()
		response, err := handle(server, ctx, decode, intercept)
		m.observe(ctx, call, status.Code(err).String(), start)
		return response, err
	}
	return method
}

// callOfMethod returns the label of a method of a service.
func callOfMethod(service *grpc.ServiceDesc, method string) string {
	return strings.TrimPrefix(service.ServiceName, "weir.v1.") + "." + method
}

// callOf returns the label of a request over HTTP: a pattern of needs, or otherCall. Some versions of ServeMux return a path instead of a pattern
// for requests that they redirect, and paths are neither bounded nor valid UTF-8.
func (m *callMetrics) callOf(r *http.Request) string {
	_, call := m.paths.Handler(r)
	if _, known := needs[call]; !known {
		return otherCall
	}
	return call
}

// handler measures what next answers over HTTP. Streams are counted when they end, and have no duration.
func (m *callMetrics) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := m.callOf(r)
		start, answer := time.Now(), &answerRecorder{ResponseWriter: w, code: http.StatusOK}
		next.ServeHTTP(answer, r)
		if code := strconv.Itoa(answer.code); answer.flushed {
			m.count(call, code)
		} else {
			m.observe(r.Context(), call, code, start)
		}
	})
}

// answerRecorder notes the status of an answer.
type answerRecorder struct {
	http.ResponseWriter
	code    int
	begun   bool // the status is sent
	flushed bool // it is a stream, which lasts
}

// WriteHeader implements http.ResponseWriter.
func (a *answerRecorder) WriteHeader(code int) {
	if !a.begun && code >= http.StatusOK { // else others follow
		a.begun, a.code = true, code
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answerRecorder) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController.
func (a *answerRecorder) FlushError() error {
	a.begun, a.flushed = true, true
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Flush implements http.Flusher, for handlers that know nothing else.
func (a *answerRecorder) Flush() { _ = a.FlushError() }

// Unwrap is for http.ResponseController.
func (a *answerRecorder) Unwrap() http.ResponseWriter { return a.ResponseWriter }
