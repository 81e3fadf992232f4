package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
)

// This is the harness of tests of Source: run opens a Source and runs it until the test ends, becomes waits for
// its rules, and logs has what it logs.

// logs is a slog.Handler that sends each record as a line.
type logs chan string

func (l logs) Enabled(context.Context, slog.Level) bool { return true }
func (l logs) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l logs) WithGroup(string) slog.Handler            { return l }
func (l logs) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l <- line
	return nil
}

// running is a Source under test, while its Run runs.
type running struct {
	*Source
	changes chan *Set
	logs    logs
	reg     *prometheus.Registry
}

// run opens and runs a Source until the test ends. It polls only if blind.
func run(t *testing.T, path string, blind bool) running {
	t.Helper()
	r := running{changes: make(chan *Set, 100), logs: make(logs, 100), reg: prometheus.NewRegistry()}
	var err error
	if r.Source, err = Open(path, Options{}, slog.New(r.logs), r.reg); err != nil {
		t.Fatal(err)
	}
	r.OnChange(func(s *Set) { r.changes <- s })
	open := fsnotify.NewWatcher
	if blind {
		open = func() (*fsnotify.Watcher, error) { return nil, errors.New("no watches left") }
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.run(ctx, open) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// receive waits for the first value that is good.
func receive[T any](t *testing.T, what string, c <-chan T, good func(T) bool) T {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case v := <-c:
			if good(v) {
				return v
			}
		case <-timeout:
			t.Fatalf("no %s", what)
		}
	}
}

// becomes waits for a set with these rules.
func (r running) becomes(t *testing.T, names string) {
	t.Helper()
	got := receive(t, "set of "+names, r.changes, func(s *Set) bool { return ruleNames(s) == names })
	if r.Set() != got {
		t.Errorf("%s was told but is not in force", names)
	}
}

// says waits for a line of the log that contains text.
func (r running) says(t *testing.T, text string) string {
	t.Helper()
	return receive(t, "log with "+text, r.logs, func(line string) bool { return strings.Contains(line, text) })
}

// metric returns the value of a metric and its only label.
func (r running) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s %s", name, label)
	return 0
}

func ruleFile(ids ...string) string {
	text := "domain: d\nrules:\n"
	for _, id := range ids {
		text += "- {id: " + id + ", " + oneLimit + "}\n"
	}
	return text
}

// must fails the test on the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
