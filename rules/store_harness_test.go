package rules

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/internal/inmemory"
)

// This is the harness of tests of Store: a backend in memory, and open, which runs a Store on it until the
// test ends. Several stores of one backend are those of several nodes.

const testMaxSize = 1 << 20

// memoryBackend is a Backend in memory, whose stores hear of every change.
type memoryBackend struct {
	inmemory.Rules
	known []byte // by the stores that are opened
}

// runningStore is a Store that runs until the bubble's test ends.
type runningStore struct {
	*Store
	logs logs
	reg  *prometheus.Registry
	sets []*Set // that OnChange was called with
}

func (b *memoryBackend) config(r *runningStore) StoreConfig {
	r.logs, r.reg = make(logs, 1000), prometheus.NewRegistry()
	return StoreConfig{Backend: b, Name: "test", Node: "n1:9090", MaxSize: testMaxSize, Known: b.known, Logger: slog.New(r.logs), Metrics: r.reg}
}

// open runs a store. It must be called in a bubble.
func (b *memoryBackend) open(t *testing.T) *runningStore {
	t.Helper()
	r := &runningStore{}
	s, err := OpenStore(t.Context(), b.config(r))
	if err != nil {
		t.Fatal(err)
	}
	r.Store = s
	s.OnChange(func(set *Set) {
		if s.Set() != set {
			t.Error("OnChange comes before Set")
		}
		r.sets = append(r.sets, set)
	})
	b.Subscribe(s.Update)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *runningStore) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// said returns how often the log has a part, and forgets it.
func (r *runningStore) said(part string) int {
	n := 0
	for len(r.logs) > 0 {
		if strings.Contains(<-r.logs, part) {
			n++
		}
	}
	return n
}

// change makes a change that must not fail, and returns the revision after it.
func (r *runningStore) change(t *testing.T, edit Edit) int64 {
	t.Helper()
	_, next, err := r.Change(t.Context(), false, edit)
	if err != nil {
		t.Fatal(err)
	}
	return next.Revision
}

func spec(id string, limit int64) Spec {
	return Spec{ID: id, Limits: []LimitSpec{{Limit: limit, Window: "1m"}}}
}

// briefState tells the revision, and each rule with its limit and its revision.
func briefState(s *State) string {
	parts := []string{fmt.Sprint(s.Revision)}
	for r := range s.Set.Rules() {
		var limit int64 // of an unlimited rule
		if len(r.Limits) > 0 {
			limit = r.Limits[0].Limit
		}
		parts = append(parts, fmt.Sprintf("%s/%s=%d@%d", r.Domain, r.ID, limit, s.RuleRevision(r.Domain, r.ID)))
	}
	return strings.Join(parts, " ")
}
