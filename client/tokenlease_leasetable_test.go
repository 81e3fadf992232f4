package client

import (
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// A key with a lease keeps its place; one without makes room.
func TestLeaseTableIsBounded(t *testing.T) {
	table := &leaseTable{}
	const hash, now = 5, 1000
	named := func(name string) *weirv1.RateLimitRequest { return &weirv1.RateLimitRequest{Identifier: name} }
	var entries []*entry
	for i := range leaseWays {
		e := table.insert(hash, now, named(string(rune('a'+i))))
		if e == nil || table.find(hash, named(string(rune('a'+i)))) != e {
			t.Fatalf("no place for key %d", i)
		}
		e.add(newLease(lent(5, time.Second), now, 5))
		entries = append(entries, e)
	}
	if table.insert(hash, now, named("z")) != nil || table.find(hash, named("z")) != nil {
		t.Error("a key with a lease has lost its place")
	}
	entries[2].lease.Store(nil)
	entries[2].asking.Store(true)
	if table.insert(hash, now, named("z")) != nil {
		t.Error("a key that is asked for has lost its place")
	}
	entries[2].asking.Store(false)
	if table.insert(hash, now, named("z")) == nil || table.find(hash, named("c")) != nil {
		t.Error("a key without a lease has kept its place")
	}
	if table.insert(hash, now+int64(mostHeld), named("y")) == nil {
		t.Error("a key whose lease is over has kept its place")
	}
}

// Only what is asked for often is lent for: 8 times in an interval.
func TestHot(t *testing.T) {
	table := &leaseTable{}
	const hash, interval = 9 << 32, 1 << hotInterval
	for i := range int64(50) {
		if table.hot(hash, i*interval/4) { // 4 in an interval
			t.Fatalf("hot after %d", i+1)
		}
	}
	for i := range 20 {
		if got := table.hot(hash, 100*interval); got != (i+1 >= hotAfter) {
			t.Errorf("%d in one interval: %t", i+1, got)
		}
	}
	if table.hot(hash, 101*interval) {
		t.Error("still hot")
	}
}
