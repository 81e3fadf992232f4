package sim

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// These are tests of the checks: each must find what it is there for.

// Counters that are lost in peace are found, whatever the algorithm.
func TestLostCountersAreFound(t *testing.T) {
	p := Draw(1)
	p.Faults, p.Hot = nil, false
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
		if !strings.Contains(strings.Join(r.Inexact, "\n"), rule.Name+"/user-") {
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
		if err := w.begins(Plan{Start: []string{"a", "b", "c"}}); err != nil {
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
		heal := w.divide([]string{"a"}, []string{etcdHost})
		w.launch("d")
		time.Sleep(healing)
		if d := w.differences(); len(d) == 0 {
			t.Errorf("node a knows of d without etcd:\n%v", w.Timeline)
		}
		heal()
		time.Sleep(healing)
		if d := w.differences(); len(d) > 0 {
			t.Errorf("after healing: %v\n%v", d, w.Timeline)
		}
		w.Kill("b")
		if d := w.differences(); len(d) == 0 {
			t.Error("a member that does not run is not found")
		}
		w.launch("b")
		time.Sleep(healing)
		if d := w.differences(); len(d) > 0 {
			t.Errorf("after a restart: %v\n%v", d, w.Timeline)
		}
	})
}

// held is a Holders that knows the answer.
type held map[string][]uint32

// Holds implements Holders.
func (h held) Holds(_ context.Context, id string) ([]uint32, error) {
	if partitions, known := h[id]; known {
		return partitions, nil
	}
	return nil, errors.New("no answer")
}

func TestPartitionsThatAreNotHeldOnceAreFound(t *testing.T) {
	inWorld(t, func(t *testing.T, w *World) {
		ring, err := w.ring("a")
		if err != nil {
			t.Fatal(err)
		}
		h := make(held)
		for p, owner := range ring.GetOwners() {
			id := ring.GetShares()[owner].GetId()
			h[id] = append(h[id], uint32(p))
		}
		if problems := w.notHeldOnce(h); len(problems) > 0 {
			t.Errorf("false alarm: %v", problems)
		}
		twice := h["b"][0]
		h["a"] = append(h["a"], twice)
		h["b"] = h["b"][:len(h["b"])-1]
		if problems := w.notHeldOnce(h); len(problems) != 2 {
			t.Errorf("%v", problems)
		}
		delete(h, "c")
		if problems := w.notHeldOnce(h); len(problems) < 100 {
			t.Errorf("%v", problems)
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
