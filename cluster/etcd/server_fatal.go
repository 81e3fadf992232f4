package etcd

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// lastWords is a core of etcd's logger. It writes nothing; it keeps the first
// message with which etcd would have ended the process, and ends the goroutine
// that said it instead: a full disk must stop etcd, not the rate limiter.
type lastWords struct {
	spoken chan struct{} // closed after said is set

	once sync.Once
	said error
}

func newLastWords() *lastWords { return &lastWords{spoken: make(chan struct{})} }

// logger returns etcd's logger, which also writes to log.
func (w *lastWords) logger(log *slog.Logger) *zap.Logger {
	return zap.New(zapcore.NewTee(w, newLogCore(log)), zap.WithFatalHook(zapcore.WriteThenGoexit), zap.WithPanicHook(zapcore.WriteThenGoexit))
}

// err returns the words. It may be called when spoken is closed.
func (w *lastWords) err() error { return w.said }

// Enabled, With, Check, Write and Sync implement zapcore.Core.
func (w *lastWords) Enabled(l zapcore.Level) bool { return l >= zapcore.PanicLevel }

func (w *lastWords) With([]zapcore.Field) zapcore.Core { return w }

func (w *lastWords) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if w.Enabled(e.Level) {
		return ce.AddCore(e, w)
	}
	return ce
}

func (w *lastWords) Write(e zapcore.Entry, fields []zapcore.Field) error {
	w.once.Do(func() {
		w.said = errors.New(e.Message)
		for _, f := range fields {
			if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
				w.said = fmt.Errorf("%s: %w", e.Message, err)
			}
		}
		close(w.spoken)
	})
	return nil
}

func (w *lastWords) Sync() error { return nil }
