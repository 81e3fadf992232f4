package sim

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var sizes = flag.String("scale", "12", "play TestScale with these `NUMBERS` of members, with commas between them")

// Times of TestScale.
const (
	// still is how long no view comes when all is done: planned views are a second apart.
	still = 3 * time.Second
	// ownedWithin is within what a death leaves each partition with an owner.
	ownedWithin = 8 * time.Second
	// mostSettling is how long views may come after a join or a death. Each view waits for the copies of the one before.
	mostSettling = 5 * time.Minute
)

// A node joins a cluster of many, and one dies. What that costs stands in a table of docs/performance.md.
func TestScale(t *testing.T) {
	for _, size := range strings.Split(*sizes, ",") {
		members, err := strconv.Atoi(size)
		if err != nil || members < 2 {
			t.Fatalf("-scale: %q is no number of members", size)
		}
		t.Run(size, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { scale(t, members) }) })
	}
}

func scale(t *testing.T, members int) {
	w, err := NewWorld()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.size = max(partitions, 8*(members+1)) // as many as the ring needs for one more
	var ids []string
	for i := range members {
		ids = append(ids, fmt.Sprintf("n%03d", i))
	}
	if err := w.startNodes(Plan{Seed: 1, Start: ids}); err != nil {
		t.Fatal(err)
	}
	w.settle(t)
	t.Logf("%d members, %d partitions: settled %.1f s after the start", members, w.size, w.now().Seconds())

	sent := w.network.Sent()
	time.Sleep(still)
	idle := float64(w.network.Sent()-sent) / still.Seconds() / float64(members)

	number, written := w.newest(), w.etcd.Written()
	w.launch("new")
	took := w.settle(t)
	views := w.newest() - number
	t.Logf("a node joins: %d views, %d KiB written to etcd, done after %.1f s; at rest each node sends %.0f KiB/s", views, (w.etcd.Written()-written)>>10, took.Seconds(), idle/1024)

	number, written = w.newest(), w.etcd.Written()
	began := time.Now()
	w.Kill(ids[len(ids)/2])
	for len(notHeldOnce(w.deciding())) > 0 {
		time.Sleep(10 * time.Millisecond)
		if since := time.Since(began); since > ownedWithin {
			t.Fatalf("%v after a death: %v", since, notHeldOnce(w.deciding()))
		}
	}
	owned := time.Since(began)
	took = w.settle(t) + owned
	t.Logf("a node dies: all partitions have owners after %.1f s, all copies are complete after %.1f s; %d views, %d KiB written to etcd",
		owned.Seconds(), took.Seconds(), w.newest()-number, (w.etcd.Written()-written)>>10)
	if len(w.failures) > 0 {
		t.Error(w.failures)
	}
}

// settle waits until the nodes that run are the members of one view, which decide in one partition each, and no view comes any more. It returns
// how long that took, without the time in which nothing came.
func (w *World) settle(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	last, since := w.newest(), began
	for time.Since(since) < still {
		time.Sleep(100 * time.Millisecond)
		if now := w.newest(); now != last || !w.agree(now) {
			last, since = now, time.Now()
		}
		if time.Since(began) > mostSettling {
			t.Fatalf("not settled after %v: view %d; %v", mostSettling, last, notHeldOnce(w.deciding()))
		}
	}
	return since.Sub(began)
}

// newest returns the number of the newest view by which a node routes.
func (w *World) newest() (number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.built {
		if v := b.ownership.Newest(); !b.node.dead.Load() && v != nil {
			number = max(number, v.Number)
		}
	}
	return number
}

// agree reports whether all nodes that run are the members of view number, go by it, and decide in all partitions, one in each.
func (w *World) agree(number uint64) bool {
	ids := w.ids()
	w.mu.Lock()
	for _, b := range w.built {
		if b.node.dead.Load() {
			continue
		}
		v := b.ownership.Newest()
		if v == nil || v.Number != number {
			w.mu.Unlock()
			return false
		}
		var members []string
		for _, m := range v.Present() {
			members = append(members, m.ID)
		}
		if !slices.Equal(members, ids) {
			w.mu.Unlock()
			return false
		}
	}
	w.mu.Unlock()
	return len(notHeldOnce(w.deciding())) == 0
}
