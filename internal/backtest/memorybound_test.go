package backtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// A log with more keys than there is memory for ends the replay, whether counters or their long histories need it.
func TestBoundOfMemory(t *testing.T) {
	const keys = 2 * measureEvery
	var log strings.Builder
	for i := range keys {
		fmt.Fprintf(&log, `{"time":%d,"user":"u%d","ip":"192.0.2.1"}`+"\n", 1_700_000_000+i/1000, i)
	}
	for _, row := range []struct {
		rules string
		most  int64
		large bool
	}{
		{"per: [user]\n    limits: [{limit: 1, window: 1h}]", 0, false},
		{"per: [user]\n    limits: [{limit: 1, window: 1h}]", 1 << 30, false},
		{"per: [user]\n    limits: [{limit: 1, window: 1h}]", 8 << 20, true},
		{"per: [ip]\n    limits: [{limit: 1000000, window: 1h}]", 8 << 20, false},
	} {
		set, err := rules.Parse("rules", []byte("domain: default\nrules:\n  - id: a\n    "+row.rules+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		run, err := New(Config{Rules: set, Against: set, Format: JSON, MaxBytes: row.most})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Read("log", strings.NewReader(log.String())); errors.Is(err, ErrTooLarge) != row.large || err != nil && !row.large {
			t.Errorf("%s with %d bytes: %v", row.rules, row.most, err)
		}
	}
}
