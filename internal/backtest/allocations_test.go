//go:build !race

package backtest

import (
	"bytes"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// A line whose counters are there makes no memory.
func TestLinesDoNotAllocate(t *testing.T) {
	set, err := rules.Load("../../docs/samples/api-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for format, log := range map[string][]byte{Combined: apiLog(), JSON: loginLog()} {
		run, err := New(Config{Rules: set, Format: format})
		if err != nil {
			t.Fatal(err)
		}
		line := log[:bytes.IndexByte(log, '\n')+1]
		if n := testing.AllocsPerRun(1000, func() {
			if f := run.line(line); f != fine {
				t.Fatal(f)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations per line", format, n)
		}
	}
}

// A line whose keys are measured already makes no memory.
func TestSuggestedLinesDoNotAllocate(t *testing.T) {
	for format, log := range map[string][]byte{Combined: apiLog(), JSON: loginLog()} {
		s, err := NewSuggester(SuggestConfig{Config: Config{Format: format}, Touch: 1})
		if err != nil {
			t.Fatal(err)
		}
		line := log[:bytes.IndexByte(log, '\n')+1]
		if n := testing.AllocsPerRun(1000, func() {
			if f := s.run.line(line); f != fine {
				t.Fatal(f)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations per line", format, n)
		}
	}
}
