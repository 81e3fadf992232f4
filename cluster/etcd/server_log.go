package etcd

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap/zapcore"
)

// An etcd that is slow or ill logs much. This is how many equal messages are passed on, and in which time.
const (
	loggedOf  = 3
	loggedPer = time.Minute
)

// logCore writes what the embedded etcd logs into the log of the node, in its form. What etcd
// calls an error is a warning there: whether the node is concerned, it says itself. What
// etcd warns of is for debugging, and the rest is dropped.
type logCore struct {
	log    *slog.Logger
	fields []zapcore.Field
}

// newLogCore returns a core that logs a bounded number of messages. log may be nil.
func newLogCore(log *slog.Logger) zapcore.Core {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return zapcore.NewSamplerWithOptions(logCore{log: log.With("component", "etcd")}, loggedPer, loggedOf, 0)
}

// levelOf returns the level of the node's log.
func levelOf(l zapcore.Level) slog.Level {
	if l >= zapcore.ErrorLevel {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Enabled implements zapcore.Core.
func (c logCore) Enabled(l zapcore.Level) bool {
	return l >= zapcore.WarnLevel && c.log.Enabled(context.Background(), levelOf(l))
}

// With implements zapcore.Core.
func (c logCore) With(fields []zapcore.Field) zapcore.Core {
	c.fields = slices.Concat(c.fields, fields)
	return c
}

// Check implements zapcore.Core.
func (c logCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core.
func (c logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(c.fields, fields) {
		f.AddTo(values)
	}
	var attributes []slog.Attr
	for _, key := range slices.Sorted(maps.Keys(values.Fields)) {
		attributes = append(attributes, slog.Any(key, values.Fields[key]))
	}
	c.log.LogAttrs(context.Background(), levelOf(e.Level), e.Message, attributes...)
	return nil
}

// Sync implements zapcore.Core.
func (logCore) Sync() error { return nil }
