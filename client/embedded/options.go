package embedded

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultMemory is the most bytes that counters take, unless WithMemory says otherwise:
// room for some hundred thousand. It is taken as it is needed.
const DefaultMemory = 64 << 20

type options struct {
	memory  int
	metrics prometheus.Registerer
	log     *slog.Logger
}

// Option changes what New and Open would do by default.
type Option func(*options) error

// WithMemory bounds the memory of the counters, in bytes, at least 256 KiB. A new counter
// beyond it takes the place of one that is over, or has used little of its limit.
func WithMemory(bytes int) Option {
	return func(o *options) error {
		o.memory = bytes
		return nil
	}
}

// WithMetrics registers the metrics that a node would have, once per registry. By default they are not
// registered.
func WithMetrics(r prometheus.Registerer) Option {
	return func(o *options) error {
		if r == nil {
			return errors.New("metrics: the registerer is nil")
		}
		o.metrics = r
		return nil
	}
}

// WithLogger is told of changes of the files that were given to Open, instead of
// slog.Default.
func WithLogger(log *slog.Logger) Option {
	return func(o *options) error {
		if log == nil {
			return errors.New("logger: it is nil")
		}
		o.log = log
		return nil
	}
}

func readOptions(opts []Option) (options, error) {
	o := options{memory: DefaultMemory, metrics: prometheus.NewRegistry(), log: slog.Default()}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return o, fmt.Errorf("embedded: %w", err)
		}
	}
	return o, nil
}
