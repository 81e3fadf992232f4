package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/client/embedded"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ client.Checker = (*embedded.Limiter)(nil)

// twoPerMinute lets every user do two things a minute.
const twoPerMinute = "domain: default\nrules:\n- {id: per-user, per: [user], limits: [{limit: 2, window: 1m, algorithm: sliding_window_log}]}\n"

func open(t *testing.T, rules string, opts ...embedded.Option) *embedded.Limiter {
	t.Helper()
	l, err := embedded.New(rules, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func of(user string) *weirv1.RateLimitRequest {
	return &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: user}
}

// check returns a decision that is no error.
func check(t *testing.T, l *embedded.Limiter, user string) *weirv1.RateLimitResponse {
	t.Helper()
	answer, err := l.Check(t.Context(), of(user))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// It decides, by the clock of the bubble.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, twoPerMinute)
		for left := range 2 {
			if r := check(t, l, "alice"); !r.GetAllowed() || r.GetRemainingTokens() != uint32(1-left) || r.GetSource() != weirv1.Source_SOURCE_OWNER {
				t.Fatalf("%v", r)
			}
			time.Sleep(10 * time.Second)
		}
		r := check(t, l, "alice")
		if r.GetAllowed() || r.GetRuleId() != "per-user" || r.GetRetryAfter().AsDuration() != 40*time.Second {
			t.Fatalf("%v, want a denial for 40 s", r)
		}
		time.Sleep(40*time.Second - time.Nanosecond)
		if check(t, l, "alice").GetAllowed() {
			t.Error("allowed a nanosecond too early")
		}
		time.Sleep(time.Nanosecond)
		if !check(t, l, "alice").GetAllowed() {
			t.Error("denied although its time has come")
		}
	})
}

func TestCheckBatch(t *testing.T) {
	l := open(t, twoPerMinute)
	answers, err := l.CheckBatch(t.Context(), []*weirv1.RateLimitRequest{of("alice"), of("alice"), of("alice"), of("bob")})
	var got []bool
	for _, a := range answers {
		got = append(got, a.GetAllowed())
	}
	if want := "[true true false true]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
	if answers, err = l.CheckBatch(t.Context(), []*weirv1.RateLimitRequest{of("carol"), of("")}); answers != nil || status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v, %v, want an error about the second", answers, err)
	}
	if left := check(t, l, "carol").GetRemainingTokens(); left != 1 {
		t.Errorf("%d left, want 1: the refused batch was counted", left)
	}
}

func TestStatusExplainReset(t *testing.T) {
	l := open(t, twoPerMinute)
	check(t, l, "alice")
	state, err := l.Status(t.Context(), &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: "alice"})
	if err != nil || len(state.GetLimits()) != 1 || state.GetLimits()[0].GetRemainingTokens() != 1 {
		t.Errorf("%v, %v", state, err)
	}
	why, err := l.Explain(t.Context(), of("alice"))
	if err != nil || len(why.GetRules()) != 1 || !why.GetRules()[0].GetApplies() {
		t.Errorf("%v, %v", why, err)
	}
	if _, err := l.Reset(t.Context(), &weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: "alice"}); err != nil {
		t.Error(err)
	}
	if left := check(t, l, "alice").GetRemainingTokens(); left != 1 {
		t.Errorf("%d left after a reset, want 1", left)
	}
}

func TestClosed(t *testing.T) {
	l := open(t, twoPerMinute)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Check(canceled, of("alice")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the caller has gone", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"Check":      func() error { _, err := l.Check(t.Context(), of("alice")); return err },
		"CheckBatch": func() error { _, err := l.CheckBatch(t.Context(), nil); return err },
		"Wait":       func() error { _, err := l.Wait(t.Context(), of("alice")); return err },
		"Status":     func() error { _, err := l.Status(t.Context(), nil); return err },
		"Explain":    func() error { _, err := l.Explain(t.Context(), of("alice")); return err },
		"Reset":      func() error { _, err := l.Reset(t.Context(), nil); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s: %v, want %v", name, err, client.ErrClosed)
		}
	}
}

func TestRefused(t *testing.T) {
	registry := prometheus.NewRegistry()
	open(t, twoPerMinute, embedded.WithMetrics(registry))
	if families, err := registry.Gather(); err != nil || len(families) == 0 {
		t.Errorf("no metrics, %v", err)
	}
	for _, tc := range []struct {
		rules string
		opt   embedded.Option
		want  string
	}{
		{"rules: 3", embedded.WithMemory(1 << 20), "rules:1:8: rules"},
		{"", embedded.WithMemory(1 << 20), "the file is empty"},
		{twoPerMinute, embedded.WithMemory(1), "max bytes: 1 is not at least"},
		{twoPerMinute, embedded.WithMetrics(nil), "metrics: the registerer is nil"},
		{twoPerMinute, embedded.WithLogger(nil), "logger: it is nil"},
	} {
		if _, err := embedded.New(tc.rules, tc.opt); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %q", tc.rules, err, tc.want)
		}
	}
	if _, err := embedded.Open(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that there is no file", err)
	}
}

// Files are followed; bad ones are refused.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(rules string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(twoPerMinute)
	logged := make(logs, 16)
	l, err := embedded.Open(path, embedded.WithLogger(slog.New(logged)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	check(t, l, "alice")
	for _, step := range []struct {
		rules, logs string
		limit       uint32
	}{
		{strings.Replace(twoPerMinute, "limit: 2", "limit: 5", 1), "rules loaded", 5},
		{"nonsense", "rules refused, the last good ones stay", 5},
	} {
		write(step.rules)
		if got := <-logged; got != step.logs {
			t.Errorf("logged %q, want %q", got, step.logs)
		}
		if r := check(t, l, "alice"); r.GetLimit() != step.limit {
			t.Errorf("limit %d, want %d", r.GetLimit(), step.limit)
		}
	}
}

// logs is a slog.Handler that passes the messages on.
type logs chan string

func (logs) Enabled(context.Context, slog.Level) bool        { return true }
func (l logs) Handle(_ context.Context, r slog.Record) error { l <- r.Message; return nil }
func (l logs) WithAttrs([]slog.Attr) slog.Handler            { return l }
func (l logs) WithGroup(string) slog.Handler                 { return l }

func BenchmarkCheck(b *testing.B) {
	l, err := embedded.New(strings.Replace(twoPerMinute, "sliding_window_log", "gcra", 1))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	req := of("alice")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Check(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
