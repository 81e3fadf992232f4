package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

// fakeNode takes a millisecond for each call, and stalls once.
type fakeNode struct {
	stallFrom, stallFor time.Duration // since its start
	hang                bool          // never answer

	started time.Time
	mu      sync.Mutex
	calls   int              // guarded by mu
	sizes   map[int]struct{} // guarded by mu; of batches
}

func (f *fakeNode) Ask(ctx context.Context, keys []uint64) (Answers, error) {
	f.mu.Lock()
	f.calls++
	if f.sizes == nil {
		f.sizes = make(map[int]struct{})
	}
	f.sizes[len(keys)] = struct{}{}
	f.mu.Unlock()
	wait := time.Millisecond
	if now := time.Since(f.started); now >= f.stallFrom && now < f.stallFrom+f.stallFor {
		wait = f.stallFrom + f.stallFor - now
	}
	if f.hang {
		wait = time.Hour
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return Answers{}, status.FromContextError(ctx.Err()).Err()
	}
	var answers Answers
	for _, key := range keys {
		switch key {
		case 0:
			answers.Denied++
		case 1:
			answers.Allowed++
			answers.FailOpen++
		default:
			answers.Allowed++
		}
	}
	return answers, nil
}

// testRun runs the load on the node in a bubble, whose time costs nothing.
func testRun(t *testing.T, node *fakeNode, l Load, f func(Report)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		node.started = time.Now()
		l.Conns = []Conn{node}
		l.Keys = newTestKeys(t, Sequential, 4)
		l.Duration, l.Timeout = 10*time.Second, 4*time.Second
		report, err := l.Run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		f(report)
	})
}

// TestOpenLoopShowsStall: a server that stands still for one of ten seconds makes a tenth
// of all calls late, by up to that second, however few callers wait for it.
func TestOpenLoopShowsStall(t *testing.T) {
	for _, callers := range []int{2, 50, 1000} {
		stalled := &fakeNode{stallFrom: 4 * time.Second, stallFor: time.Second}
		testRun(t, stalled, Load{Callers: callers, Rate: 1000}, func(r Report) {
			if r.Checks != 10_000 || r.Unsent != 0 {
				t.Errorf("%d callers: %d checks, %d unsent, want 10000 and 0", callers, r.Checks, r.Unsent)
			}
			// A call that was due in the stall is late by what was left of it, and with few
			// callers by what it takes to make good for it.
			for _, p := range []struct {
				name          string
				got, low, top float64 // in ms
			}{
				{"p50", r.Latency.P50, 0.9, 1.1},
				{"p99", r.Latency.P99, 850, 1010},
				{"p99.9", r.Latency.P999, 980, 1010},
				{"max", r.Latency.Max, 998, 1010},
			} {
				if p.got < p.low*1000 || p.got > p.top*1000 {
					t.Errorf("%d callers: %s is %.0fµs, want %.0f to %.0fms", callers, p.name, p.got, p.low, p.top)
				}
			}
		})
	}
}

// TestClosedLoopHidesStall is why there is an open one.
func TestClosedLoopHidesStall(t *testing.T) {
	stalled := &fakeNode{stallFrom: 4 * time.Second, stallFor: time.Second}
	testRun(t, stalled, Load{Callers: 2}, func(r Report) {
		if r.Latency.P999 > 1100 || r.Latency.Max < 998_000 || r.SendDelay != nil {
			t.Errorf("got %+v", r)
		}
	})
}

// TestOpenLoopKeepsItsRate: calls are sent by the clock, and what could not be sent is told.
func TestOpenLoopKeepsItsRate(t *testing.T) {
	tests := []struct {
		load           Load
		checks, unsent int64
	}{
		{Load{Callers: 10, Rate: 1}, 10, 0},
		{Load{Callers: 10, Rate: 333}, 3330, 0},
		{Load{Callers: 10, Rate: 5000, Batch: 100}, 50_000, 0},
		{Load{Callers: 10, Rate: 10, Batch: 1000}, 1000, 0},   // at once; the next is due in 100 s
		{Load{Callers: 1, Rate: 2000}, 10_000, 10_000},        // it can do half of that
		{Load{Callers: 1, Rate: MaxRate}, 10_000, 99_990_000}, // nothing overflows
		{Load{Callers: 2, Rate: 1000, Batch: 1}, 10_000, 0},   // a batch of one
		{Load{Callers: 3, Rate: 3000, Batch: 7}, 30_000, 0},   // not a whole number of calls
	}
	for _, test := range tests {
		node := &fakeNode{}
		testRun(t, node, test.load, func(r Report) {
			calls := int64(max(1, test.load.Batch))
			if r.Checks < test.checks || r.Checks >= test.checks+2*calls || r.Unsent > test.unsent || r.Unsent < test.unsent-2*calls {
				t.Errorf("%+v: %d checks and %d unsent, want %d and %d", test.load, r.Checks, r.Unsent, test.checks, test.unsent)
			}
			if _, ok := node.sizes[int(calls)]; !ok || len(node.sizes) != 1 || int64(node.calls)*calls != r.Checks {
				t.Errorf("%+v: %d calls of sizes %v", test.load, node.calls, node.sizes)
			}
		})
	}
}

// TestDueAndDueChecksAgree: a turn is among those due as soon as its instant is past.
func TestDueAndDueChecksAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &run{Load: &Load{Rate: rapid.Int64Range(1, MaxRate).Draw(t, "rate")}, perCall: rapid.IntRange(1, MaxBatch).Draw(t, "batch")}
		turn := rapid.Int64Range(0, int64(MaxDuration/time.Second)*r.Rate/int64(r.perCall)).Draw(t, "turn")
		want := float64(turn) * float64(r.perCall) / float64(r.Rate) // seconds
		due := r.due(turn)
		if math.Abs(due.Seconds()-want) > 1e-6 {
			t.Fatalf("turn %d is due after %v, want %.9fs", turn, due, want)
		}
		before, after := r.dueChecks(due-1), r.dueChecks(due+1)
		if checks := turn * int64(r.perCall); due > 0 && before >= checks+int64(r.perCall) || after < checks {
			t.Fatalf("turn %d after %v: %d checks were due just before, %d just after", turn, due, before, after)
		}
	})
}

// TestCountsAnswers: two of four keys have answers of their own.
func TestCountsAnswers(t *testing.T) {
	testRun(t, &fakeNode{}, Load{Callers: 4, Batch: 4}, func(r Report) {
		quarter := r.Checks / 4
		if r.Checks == 0 || r.Denied != quarter || r.Allowed != 3*quarter || r.FailOpen != quarter || r.Errors != 0 {
			t.Errorf("got %+v", r.Counts)
		}
	})
}

// TestTimeout: a node that never answers costs errors, and no more time than the last call's.
func TestTimeout(t *testing.T) {
	testRun(t, &fakeNode{hang: true}, Load{Callers: 3, Batch: 2}, func(r Report) {
		want := Counts{Errors: 18, Failures: map[string]int64{codes.DeadlineExceeded.String(): 18}}
		if fmt.Sprint(r.Counts) != fmt.Sprint(want) || r.Seconds != 12 {
			t.Errorf("got %+v in %.1fs, want %+v", r.Counts, r.Seconds, want)
		}
	})
}

// TestCancel: a run that is stopped lets the calls under way end and reports what was.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &fakeNode{started: time.Now()}
		keys := newTestKeys(t, Uniform, 10)
		l := Load{
			Conns: []Conn{node}, Keys: keys, Callers: 5, Rate: 1000, Duration: time.Hour, Timeout: time.Second,
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		var told []time.Duration
		report, err := l.Run(ctx, func(p Progress) { told = append(told, p.Elapsed) })
		if err != nil || report.Checks < 2499 || report.Checks > 2501 || report.Errors != 0 || report.Unsent > 1 {
			t.Errorf("got %+v, %v", report, err)
		}
		if fmt.Sprint(told) != "[1s 2s]" {
			t.Errorf("progress was told at %v", told)
		}
	})
}

func TestRunRefusesForeignProcess(t *testing.T) {
	l := Load{PIDs: []int{-1}}
	if _, err := l.Run(t.Context(), nil); err == nil {
		t.Error("a server that cannot be measured is no error")
	}
}

// TestTimedSome: of a caller's calls some are measured, and all are counted.
func TestTimedSome(t *testing.T) {
	node := &fakeNode{}
	testRun(t, node, Load{Callers: 2, Timed: 16}, func(r Report) {
		if r.Checks != int64(node.calls) || r.Checks < 19_900 || r.Checks > 20_002 || r.Timed != 16 || r.Latency.P50 < 900 || r.Latency.Max > 1100 {
			t.Errorf("%d calls: %+v", node.calls, r)
		}
	})
}

// TestProgress: progress is reported every second, until the end.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		end := Tell(func(text string) { told = append(told, text) }).every(func() string { return "going" })
		time.Sleep(3500 * time.Millisecond)
		end()
		time.Sleep(5 * time.Second)
		if len(told) != 3 || told[0] != "going" {
			t.Errorf("told %q", told)
		}
	})
	Tell(nil).every(nil)()
}
