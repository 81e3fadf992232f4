package node

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/weirlimit/weir/internal/tracing"
)

// lastSpans is how long a node that stops waits for the collector.
const lastSpans = time.Second

// openTracing begins to send spans, if there is a collector. It connects in the background.
func (n *node) openTracing(ctx context.Context) error {
	endpoint := n.opts.TraceEndpoint
	if endpoint == "" { // what the environment has for all programs must not keep this one from its work
		var problem string
		if endpoint, problem = collectorOf(os.Getenv); problem != "" {
			n.log.Warn("no check is traced", "because", problem)
		}
	}
	if endpoint == "" {
		return nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { n.log.Warn("spans were not sent", "error", err) }))
	// Headers, timeouts and certificates are those of OTEL_EXPORTER_OTLP_*.
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	if err != nil {
		return fmt.Errorf("trace-endpoint: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "weir"), attribute.String("service.instance.id", n.opts.ID), attribute.String("service.version", Version()),
	), resource.WithFromEnv())
	if err != nil { // the others are in it
		n.log.Warn("attributes of spans are missing", "because", fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithResource(about))
	n.tracing = tracing.New(provider, n.opts.TraceSample)
	n.closers = append(n.closers, func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			n.log.Warn("the last spans were not sent", "error", err)
		}
	})
	n.log.Info("tracing", "endpoint", endpoint, "sample", n.opts.TraceSample)
	return nil
}

// collectorOf returns the URL of the collector that the environment names, empty if it names none that can be used. The problem says
// why not.
func collectorOf(env func(string) string) (endpoint, problem string) {
	if env("OTEL_SDK_DISABLED") == "true" || env("OTEL_TRACES_EXPORTER") == "none" {
		return "", ""
	}
	endpoint = cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), env("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" {
		return "", ""
	}
	if protocol := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), env("OTEL_EXPORTER_OTLP_PROTOCOL"), "grpc"); protocol != "grpc" {
		return "", fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL is %q, and spans are sent by grpc only", protocol)
	}
	if problem := badTraceEndpoint(endpoint); problem != "" {
		return "", "OTEL_EXPORTER_OTLP_ENDPOINT: " + problem
	}
	return endpoint, ""
}

func badTraceEndpoint(endpoint string) string {
	if endpoint == "" {
		return ""
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Sprintf("%q is not the URL of a collector, such as http://127.0.0.1:4317", endpoint)
	}
	return ""
}
