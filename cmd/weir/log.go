package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"google.golang.org/grpc/grpclog"

	"github.com/weirlimit/weir/internal/asciijson"
)

// newLogger writes text for people and JSON for programs. Values in both may come from callers: no character of them directs a terminal that
// shows the log, or ends a line.
func newLogger(w io.Writer, level string) *slog.Logger {
	options := &slog.HandlerOptions{}
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err == nil {
		options.Level = least
	}
	if isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(asciiWriter{w}, options))
}

// asciiWriter writes JSON in printable ASCII, a whole text with each call.
type asciiWriter struct{ to io.Writer }

func (w asciiWriter) Write(text []byte) (int, error) {
	if _, err := w.to.Write(asciijson.ASCII(make([]byte, 0, len(text)), text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// isTerminal takes any character device for a terminal, which is good enough to
// choose a format by.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// anyLevel is a handler of records of any level.
type anyLevel struct{ slog.Handler }

func (anyLevel) Enabled(context.Context, slog.Level) bool { return true }

// logLibraries has log take what libraries write to loggers of the whole process: the
// standard one, as HTTP servers do, and that of gRPC, which has not been used yet.
func logLibraries(log *slog.Logger) {
	slog.SetDefault(log)
	slog.SetLogLoggerLevel(slog.LevelWarn)
	grpclog.SetLoggerV2(grpcLog{log.With("component", "grpc")})
}

// grpcLog is the logger of gRPC. What it calls errors are warnings here, as calls and
// connections end by them, not nodes; its warnings are for debugging, and the rest is dropped.
type grpcLog struct{ log *slog.Logger }

func (grpcLog) Info(...any)           {}
func (grpcLog) Infoln(...any)         {}
func (grpcLog) Infof(string, ...any)  {}
func (l grpcLog) Warning(args ...any) { l.write(slog.LevelDebug, fmt.Sprint, args) }
func (l grpcLog) Warningln(args ...any) {
	l.write(slog.LevelDebug, fmt.Sprintln, args)
}
func (l grpcLog) Warningf(format string, args ...any) {
	l.write(slog.LevelDebug, sprintf(format), args)
}
func (l grpcLog) Error(args ...any)   { l.write(slog.LevelWarn, fmt.Sprint, args) }
func (l grpcLog) Errorln(args ...any) { l.write(slog.LevelWarn, fmt.Sprintln, args) }
func (l grpcLog) Errorf(format string, args ...any) {
	l.write(slog.LevelWarn, sprintf(format), args)
}

// Fatal, Fatalln and Fatalf end the process, as gRPC wants it; gRPC has no such case left.
func (l grpcLog) Fatal(args ...any) { l.fatal(fmt.Sprint, args) }

// Fatalln implements grpclog.LoggerV2.
func (l grpcLog) Fatalln(args ...any) { l.fatal(fmt.Sprintln, args) }

// Fatalf implements grpclog.LoggerV2.
func (l grpcLog) Fatalf(format string, args ...any) { l.fatal(sprintf(format), args) }

// V implements grpclog.LoggerV2: nothing verbose is wanted.
func (grpcLog) V(level int) bool { return level <= 0 }

func (l grpcLog) write(level slog.Level, text func(...any) string, args []any) {
	if ctx := context.Background(); l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, strings.TrimSpace(text(args...)))
	}
}

func (l grpcLog) fatal(text func(...any) string, args []any) {
	l.write(slog.LevelError, text, args)
	os.Exit(1)
}

func sprintf(format string) func(...any) string {
	return func(args ...any) string { return fmt.Sprintf(format, args...) }
}
