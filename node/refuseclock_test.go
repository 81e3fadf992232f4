package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// apart runs a node whose clock is that far from the right one, and returns its error if it ends before it is ready.
func apart(t *testing.T, opts Options, by time.Duration) (Info, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done, ready, gone := make(chan error, 1), make(chan Info, 1), make(chan struct{})
	network := Network{Wall: func() time.Time { return time.Now().Add(by) }}
	go func() {
		defer close(gone)
		done <- RunOn(ctx, network, opts, quiet(), func(i Info) { ready <- i })
	}()
	t.Cleanup(func() {
		cancel()
		<-gone
	})
	select {
	case info := <-ready:
		return info, nil
	case err := <-done:
		return Info{}, err
	}
}

func clockHealthOf(t *testing.T, i Info) string {
	t.Helper()
	return fmt.Sprint(healthOf(t, i))
}

// A node whose clock is more than a second from most members' does not join, and says why. One that differs from fewer joins, and health names
// the clocks.
func TestClockOfANodeThatJoins(t *testing.T) {
	t.Parallel()
	first := testOptions(t)
	first.ID = "a"
	a, err := apart(t, first, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := func(id string) Options {
		return Options{ID: id, GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Etcd: []string{a.Etcd}, DataDir: t.TempDir()}
	}
	for by, want := range map[time.Duration]string{
		time.Hour: "behind this node's, more than 1s", -time.Minute: "ahead of this node's, more than 1s",
	} {
		_, err := apart(t, options("x"), by)
		if err == nil || !strings.HasPrefix(err.Error(), "clock: this node may not join: node a's clock is ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v apart: %v", by, err)
		}
		if h := clockHealthOf(t, a); strings.Contains(h, `"x"`) || strings.Contains(h, "clock") {
			t.Errorf("%v apart: health of node a is %s", by, h)
		}
	}
	b, err := apart(t, options("b"), 900*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	// It is refused by those that answer within clockPatience, which may be node a alone on a busy machine. Then it is started again.
	c, err := apart(t, options("c"), 1800*time.Millisecond)
	for hung := time.Now().Add(time.Minute); err != nil && strings.HasPrefix(err.Error(), "clock: ") && time.Now().Before(hung); {
		c, err = apart(t, options("c"), 1800*time.Millisecond)
	}
	if err != nil {
		t.Fatalf("apart from one of two: %v", err)
	}
	// What the way of a comparison takes is no difference, so that one that is late names no clock: the next will.
	await := func(what string, reads func() string, want string) {
		t.Helper()
		hung := time.After(time.Minute)
		again := time.NewTicker(lookEvery)
		defer again.Stop()
		for {
			got := reads()
			if strings.Contains(got, want) {
				return
			}
			select {
			case <-again.C:
			case <-hung:
				t.Fatalf("%s: %s, want %q", what, got, want)
			}
		}
	}
	for i, want := range map[Info]string{a: "node c's clock is 1.", c: "node a's clock is 1."} {
		await("health of node "+i.ID, func() string { return clockHealthOf(t, i) }, want)
		await("metrics of node "+i.ID, func() string { return grep(metricsOf(t, i), "clock") }, "weir_clock_difference_seconds 1.")
	}
	if h := clockHealthOf(t, b); strings.Contains(h, "clock") {
		t.Errorf("health of node b is %s", h)
	}
}

// Of nodes that start at the same instant, before there is a view, the one whose clock is an hour ahead does not join, unless it founds the cluster: then
// the others do not.
func TestClocksOfNodesThatStartAtOnce(t *testing.T) {
	t.Parallel()
	first := testOptions(t)
	first.ID = "none"
	etcd, err := apart(t, first, 0) // runs the etcd, for another cluster
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		id  string
		by  time.Duration
		err error
	}
	ends := make(chan end, 3)
	for id, by := range map[string]time.Duration{"a": 0, "b": 0, "c": time.Hour} {
		opts := Options{ID: id, Cluster: "at-once", GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Etcd: []string{etcd.Etcd}, DataDir: t.TempDir()}
		go func() {
			_, err := apart(t, opts, by)
			ends <- end{id, by, err}
		}()
	}
	joined := make(map[time.Duration][]string)
	for range cap(ends) {
		e := <-ends
		if e.err == nil {
			joined[e.by] = append(joined[e.by], e.id)
		} else if !strings.HasPrefix(e.err.Error(), "clock: this node may not join: ") {
			t.Error(e.err)
		}
	}
	if len(joined) != 1 || len(joined[0])+2*len(joined[time.Hour]) != 2 {
		t.Errorf("members by clock: %v", joined)
	}
}

func metricsOf(t *testing.T, i Info) string {
	t.Helper()
	resp, err := http.Get("http://" + i.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func grep(text, word string) (lines string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			lines += fmt.Sprintln(strings.TrimSpace(line))
		}
	}
	return lines
}

// An examination names the member whose clock is wrong. What its way takes is no difference, so that a late answer says less than a
// minute.
func TestExamineNamesClocks(t *testing.T) {
	t.Parallel()
	first := testOptions(t)
	a, err := apart(t, first, -time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	findings := Examine(t.Context(), Options{ID: "b", GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Etcd: []string{a.Etcd}, DataDir: t.TempDir()})
	for _, f := range findings {
		_, text, _ := strings.Cut(f.Text, "node a's clock is ")
		text, _, _ = strings.Cut(text, " behind this node's")
		behind, err := time.ParseDuration(text)
		if f.Severity == Bad && f.Subject == "node a" && err == nil && behind > 30*time.Second && behind <= time.Minute {
			return
		}
	}
	t.Errorf("got %v", findings)
}
