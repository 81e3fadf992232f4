package sim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// These are tests of the checks: each must find what it is there for.

// Lost counters without a fault are found, for each algorithm.
func TestLostCountersAreFound(t *testing.T) {
	p := Draw(1)
	p.Faults, p.Clocks, p.Hot = nil, nil, false
	r := run(t, p, Hooks{During: func(w *World) {
		w.sleepUntil(settle + 7*time.Second)
		conn, err := w.connect(p.Start[0])
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		health := weirv1.NewRateLimiterHealthClient(conn)
		for user := range usersPerRule {
			if _, err := health.ResetRateLimit(context.Background(), &weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: userName(user)}); err != nil {
				t.Error(err)
			}
		}
	}})
	for _, rule := range Rules[:hotKey.Rule] {
		if !strings.Contains(strings.Join(r.Exceeded, "\n"), rule.Name+"/user-") {
			t.Errorf("%s: lost counters are not found", rule.Name)
		}
	}
	if len(r.Broken) > 0 {
		t.Error(r.Broken)
	}
}

// inWorld runs a test on three nodes without a load.
func inWorld(t *testing.T, test func(t *testing.T, w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := NewWorld()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := w.startNodes(Plan{Start: []string{"a", "b", "c"}}); err != nil {
			t.Fatal(err)
		}
		test(t, w)
		if len(w.failures) > 0 {
			t.Error(w.failures)
		}
	})
}

func TestDifferentViewsAreFound(t *testing.T) {
	inWorld(t, func(t *testing.T, w *World) {
		if d := w.differences(); len(d) > 0 {
			t.Errorf("false alarm: %v", d)
		}
		heal := w.divide([]string{"a"}, []string{etcdHost, "b", "c", "d"})
		w.launch("d")
		time.Sleep(2 * time.Second) // less than an etcd lease lasts
		if d := w.differences(); len(d) == 0 {
			t.Errorf("node a, which is cut off, knows of d:\n%v", w.RunLog)
		}
		heal()
		time.Sleep(healing)
		if d := w.differences(); len(d) > 0 {
			t.Errorf("after healing: %v\n%v", d, w.RunLog)
		}
		w.Kill("b")
		if d := w.differences(); len(d) == 0 {
			t.Error("a member that does not run is not found")
		}
		w.launch("b")
		time.Sleep(healing)
		if d := w.differences(); len(d) > 0 {
			t.Errorf("after a restart: %v\n%v", d, w.RunLog)
		}
	})
}

func TestPartitionsWithoutOneOwnerAreFound(t *testing.T) {
	inWorld(t, func(t *testing.T, w *World) {
		time.Sleep(healing) // until each node has partitions: all are members, and views give them some a second apart
		now := w.deciding()
		if problems := append(notHeldOnce(now), heldTwice(now, w.deciding())...); len(now) != 3 || len(problems) > 0 {
			t.Errorf("%d nodes; false alarm: %v", len(now), problems)
		}
		p := slices.IndexFunc(now[1].by, func(term uint64) bool { return term != 0 })
		now[0].by[p] = now[1].by[p] + 1
		if problems := notHeldOnce(now); len(problems) != 1 {
			t.Errorf("two hold partition %d: %v", p, problems)
		}
		if problems := heldTwice(now, now); len(problems) != 1 {
			t.Errorf("two hold partition %d: %v", p, problems)
		}
		if problems := heldTwice(now, w.deciding()); len(problems) > 0 {
			t.Errorf("partition %d has left the first of the two meanwhile: %v", p, problems)
		}
		now[0].by[p], now[1].by[p] = 0, 0
		if problems := notHeldOnce(now); len(problems) != 1 {
			t.Errorf("no node owns partition %d: %v", p, problems)
		}
	})
}

// Two nodes that decide for a partition are found while they do, here by a node that is counted twice.
func TestTwoOwnersAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := NewWorld()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := w.startNodes(Plan{Start: []string{"a", "b", "c"}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		w.watchDeciders(ctx)
		if len(w.failures) > 0 {
			t.Errorf("false alarm: %v", w.failures)
		}
		w.hold(&Node{ID: "x"}, w.built[0].ownership)
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		w.watchDeciders(ctx)
		if len(w.failures) == 0 {
			t.Error("not found")
		}
	})
}

// A goroutine that outlives its run is found, and the seed is told.
func TestLeftoversAreFound(t *testing.T) {
	defer func() {
		if left, _ := recover().(string); !strings.HasPrefix(left, "seed 4711: ") {
			t.Errorf("%q", left)
		}
	}()
	p := Plan{Seed: 4711, Start: []string{"a"}, Calm: settle}
	run(t, p, Hooks{During: func(*World) { go stay() }})
}

// stay never returns. The leak check of the tests knows it.
func stay() { select {} }
