package node

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

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
	endpoint, err := n.opts.collector()
	if err != nil || endpoint == "" {
		return err
	}
	// Headers, timeouts and certificates are those of OTEL_EXPORTER_OTLP_*.
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	if err != nil {
		return fmt.Errorf("trace-endpoint: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "weir"), attribute.String("service.instance.id", n.opts.ID), attribute.String("service.version", Version()),
	), resource.WithFromEnv())
	if err != nil {
		return fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
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

// collector returns the URL of the collector, empty if there is none.
func (o Options) collector() (string, error) {
	if o.TraceEndpoint != "" {
		return o.TraceEndpoint, nil
	}
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return "", nil
	}
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if problem := badTraceEndpoint(endpoint); problem != "" {
		return "", &OptionError{Name: "trace-endpoint", Problem: "OTEL_EXPORTER_OTLP_ENDPOINT: " + problem}
	}
	return endpoint, nil
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
