package backtest

import (
	"bytes"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// BenchmarkReplay replays samples again and again. It says how many lines go through in a second.
func BenchmarkReplay(b *testing.B) {
	set, err := rules.Load("../../docs/samples/api-rules.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for format, log := range map[string][]byte{Combined: apiLog(), JSON: loginLog()} {
		b.Run(format, func(b *testing.B) {
			run, err := New(Config{Rules: set, Format: format})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(log)))
			b.ReportAllocs()
			for b.Loop() {
				run.latest, run.first = 0, 0
				if err := run.Read("log", bytes.NewReader(log)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(run.lines)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}

// BenchmarkSuggest measures the keys of samples again and again, each line for two rules.
func BenchmarkSuggest(b *testing.B) {
	for format, log := range map[string][]byte{Combined: apiLog(), JSON: loginLog()} {
		b.Run(format, func(b *testing.B) {
			s, err := NewSuggester(SuggestConfig{Config: Config{Format: format}, Touch: 1})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(log)))
			b.ReportAllocs()
			for b.Loop() {
				s.run.latest, s.run.first = 0, 0
				if err := s.Read("log", bytes.NewReader(log)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(s.run.lines)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
