package shard

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

func appendRangeOf(from, to uint64, slots ...slot) []byte {
	b := appendRange(nil)
	for _, e := range slots {
		b = appendSlot(b, &e)
	}
	setRange(b, from, to, len(slots))
	return b
}

// One damaged record fails the call, and none of its records is applied.
func TestApplyRefuses(t *testing.T) {
	one := newSlot(ring.Key{Hi: 5}, algorithms.State{A: 1}, usage{expires: 1 << 31})
	two := newSlot(ring.Key{Hi: 7}, algorithms.State{A: 1}, usage{expires: 1 << 31})
	none, marked := one, one
	none.expires, marked.share = 0, 1
	clock := func(latest int64) []byte { return appendClock(nil, &partition{latest: latest}) }
	slotOf := func(e slot) []byte {
		b := appendSlot([]byte{tagSlot}, &e)
		b[len(b)-4] = byte(e.share) // with its marks
		return b
	}
	long := &longEntry{key: ring.Key{Hi: 1, Lo: 2}, usage: usage{expires: 1}}
	limit := logPerHour(3)
	long.counter.Step(&limit, 1, 1, true)
	longs := appendLong(nil, long)
	elsewhere := appendLong(nil, &longEntry{key: ring.Key{Lo: 1 << 31}, usage: usage{expires: 1}})
	noLong := appendLong(nil, &longEntry{key: ring.Key{Lo: 2}})
	for _, tc := range []struct {
		records []byte
		want    string
	}{
		{[]byte{0}, "a record's tag of 0 is not between 1 and 8"},
		{[]byte{9}, "a record's tag of 9 is not between 1 and 8"},
		{clock(-1), "a record has the clock -1, which is below 0"},
		{clock(1)[:12], "a record ends early"},
		{slotOf(one)[:32], "a record ends early"},
		{slotOf(none), "a counter's record expires at second 0, which marks an empty slot"},
		{slotOf(marked), "a counter's record has the share 1, which is not a multiple of 4"},
		{appendGone(nil, ring.Key{})[:10], "a record ends early"},
		{appendRangeOf(0, 9, one, two)[:19+63], "a record ends early"},
		{appendRangeOf(0, 9, one)[:18], "a record ends early"},
		{appendRangeOf(0, 9, two, one), "a key of 5 is out of order, or not between 0 and 9"},
		{appendRangeOf(6, 9, one), "a key of 5 is out of order, or not between 6 and 9"},
		{appendRangeOf(0, 4, one), "a key of 5 is out of order, or not between 0 and 4"},
		{longs[:len(longs)-1], "a record ends early"},
		{longs[:10], "a record ends early"},
		{elsewhere, "a record of partition 0 has a key of partition 1"},
		{appendKey([]byte{tagLongGone}, ring.Key{Lo: 1 << 31}), "a record of partition 0 has a key of partition 1"},
		{noLong, "a counter's record expires at second 0, which marks an empty slot"},
		{append(bytes.Clone(longs[:27]), 0xff, 0xff, 0xff, 0xff), "a record ends early"},
	} {
		s := newShardOf(t, Config{Partitions: 2, MaxBytes: MinBytes(2)})
		s.Seal(0)
		good := slotOf(one)
		for _, records := range [][]byte{append(bytes.Clone(good), tc.records...), append(append([]byte{tagBeginLongs}, tc.records...), good...)} {
			err := s.Apply(0, records)
			if err == nil || !strings.HasPrefix(err.Error(), "shard: records of partition 0, at byte ") {
				t.Errorf("%x: %v", tc.records, err)
			}
			if s.Len() != 0 || s.partitions[0].copied != nil {
				t.Errorf("%x: something was laid down", tc.records)
			}
		}
		if err := s.Apply(0, append(bytes.Clone(good), tc.records...)); !strings.HasSuffix(fmt.Sprint(err), ": "+tc.want) {
			t.Errorf("%x: %v, want %s", tc.records, err, tc.want)
		}
	}
	s := newShardOf(t, Config{Partitions: 2, MaxBytes: MinBytes(2)})
	if err := s.Apply(2, nil); fmt.Sprint(err) != "shard: records: partition 2 is not below 2" {
		t.Error(err)
	}
	if err := s.Apply(0, slotOf(one)); fmt.Sprint(err) != "shard: records of partition 0: it is open" || s.Len() != 0 {
		t.Error(err)
	}
}

// Slots not in a range are deleted from it, and only from it.
func TestRangeReplacesSlots(t *testing.T) {
	s := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1)})
	put := func(hi uint64, lo uint16) slot {
		return newSlot(ring.Key{Hi: hi, Lo: uint64(lo) << 48}, algorithms.State{A: hi}, usage{expires: 1 << 31})
	}
	s.Seal(0)
	for _, r := range [][]byte{
		appendRangeOf(0, 1<<64-1, put(3, 0), put(5, 0), put(5, 1), put(5, 2), put(7, 0), put(1<<64-1, 9)),
		appendRangeOf(4, 6, put(5, 3), put(5, 1)),
		appendRangeOf(6, 6),
		appendRangeOf(8, 1<<64-1, put(8, 0)),
	} {
		if err := s.Apply(0, r); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for c := s.partitions[0].table.seek(s.arena, 0); ; c.i++ {
		e := c.next(s.arena)
		if e == nil {
			break
		}
		got = append(got, fmt.Sprintf("%d.%d", ^e.hi, e.lo))
	}
	slices.Sort(got)
	if fmt.Sprint(got) != "[3.0 5.1 5.3 7.0 8.0]" || s.Len() != 5 {
		t.Errorf("%v, %d counters", got, s.Len())
	}
}

// A copy that has less memory than the owner keeps those that have used the most.
func TestApplyKeepsTheMostUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		copied := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1), MaxLongBytes: 3 * longOverhead})
		copied.Seal(0)
		for i := range 8 * smallest {
			ask(s, key("k", i), perHour(1000), 1+int64(i%8)*100)
		}
		for i := range 5 {
			ask(s, key("long", i), logPerHour(10), 1)
		}
		s.Follow(0, ToSuccessor)
		drain(t, s, copied, 0, ToSuccessor)
		if copied.Len() < smallest || copied.partitions[0].table.crowded() || copied.longBytes.Load() > copied.maxLong || len(copied.partitions[0].long) == 0 {
			t.Errorf("%d counters, %d bytes of long ones", copied.Len(), copied.longBytes.Load())
		}
		used := 0
		for i := range 8 * smallest {
			if e := copied.partitions[0].table.find(copied.arena, key("k", i)); e != nil && i%8 >= 6 {
				used++
			}
		}
		if used < copied.Count(0)*3/4 {
			t.Errorf("%d of the %d that are left are of those that have used the most", used, copied.Count(0))
		}
		if d := consistent(copied); d != "" {
			t.Error(d)
		}
	})
}

// A copy can be followed, too.
func TestCopyOfACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var chain [3]*Shard
		for i := range chain {
			chain[i] = newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		}
		s, last := chain[0], chain[2]
		give := func() {
			drain(t, s, chain[1], 0, ToSuccessor)
			drain(t, chain[1], last, 0, ToSuccessor)
		}
		var takes []Take
		for i, l := range everyLimit(10) {
			takes = append(takes, Take{Key: key("k", i), Limit: l, Cost: 2})
		}
		for _, x := range chain[:2] {
			x.Follow(0, ToSuccessor)
		}
		chain[1].Seal(0)
		last.Seal(0)
		give()
		s.Decide([]Group{{Takes: takes}})
		give()
		s.Decide([]Group{{Takes: takes}})
		s.Decide([]Group{{Takes: []Take{takes[0], takes[5]}, Reset: true}})
		s.Seal(0)
		give()
		if d := difference(s, last, 0, func(ring.Key) bool { return false }); d != "" || last.Len() != len(takes)-2 {
			t.Errorf("%s; %d counters", d, last.Len())
		}
	})
}

func TestClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, copied := newShardOf(t, Config{Partitions: 2, MaxBytes: 1 << 20}), newShardOf(t, Config{Partitions: 2, MaxBytes: 1 << 20})
		copied.Seal(0)
		limits := followLimits()
		for i := range 5000 {
			l := i % len(limits)
			ask(s, ring.Key{Hi: key("k", i).Hi, Lo: uint64(l)<<48 | uint64(i%2)<<31}, limits[l], 1)
		}
		s.Follow(0, ToSuccessor)
		drain(t, s, copied, 0, ToSuccessor)
		before := s.Count(1)
		s.Clear(0)
		if s.Count(0) != 0 || s.Count(1) != before || s.Len() != before || s.IsSealed(0) || !s.IsFollowing(0, ToSuccessor) {
			t.Errorf("%d and %d counters", s.Count(0), s.Count(1))
		}
		ask(s, ring.Key{Hi: 1}, limits[0], 1)
		drain(t, s, copied, 0, ToSuccessor)
		if s.Seal(0); copied.Count(0) != 1 {
			t.Errorf("the follower has %d counters", copied.Count(0))
		}
		drain(t, s, copied, 0, ToSuccessor)
		for _, x := range []*Shard{s, copied} {
			if d := consistent(x); d != "" {
				t.Error(d)
			}
		}
		if d := difference(s, copied, 0, func(ring.Key) bool { return false }); d != "" {
			t.Error(d)
		}
		if s.Clear(1); s.partitions[1].table.reserved != 0 || s.partitions[1].long == nil && s.longBytes.Load() != 0 {
			t.Error("it keeps its memory")
		}
	})
}

// Any bytes are refused or applied, and applied ones can be decided from and sent on.
func FuzzApply(f *testing.F) {
	s := newShardOf(f, Config{Partitions: 1, MaxBytes: 1 << 20})
	limits := followLimits()
	for i := range 20 {
		l := i % len(limits)
		ask(s, ring.Key{Hi: key("k", i).Hi, Lo: uint64(l) << 48}, limits[l], 1)
	}
	s.Follow(0, ToSuccessor)
	all, _ := s.Changes(0, ToSuccessor, nil, 1<<20)
	ask(s, ring.Key{Hi: key("k", 0).Hi}, limits[0], 1)
	s.Decide([]Group{{Reset: true, Takes: []Take{{Key: ring.Key{Hi: key("k", 4).Hi, Lo: 4 << 48}, Limit: limits[4]}, {Key: ring.Key{Hi: key("k", 2).Hi, Lo: 2 << 48}, Limit: limits[2]}}}})
	changes, _ := s.Changes(0, ToSuccessor, nil, 1<<20)
	f.Add(all)
	f.Add(changes)
	f.Fuzz(func(t *testing.T, b []byte) {
		to, again := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1)}), newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		to.Seal(0)
		again.Seal(0)
		if err := to.Apply(0, b); err != nil {
			if to.Len() != 0 {
				t.Fatal("refused, and laid down")
			}
			return
		}
		to.Follow(0, ToSuccessor)
		drain(t, to, again, 0, ToSuccessor)
		if d := consistent(to) + consistent(again); d != "" {
			t.Fatal(d)
		}
		var keys []ring.Key
		for c := to.partitions[0].table.seek(to.arena, 0); ; c.i++ {
			e := c.next(to.arena)
			if e == nil {
				break
			}
			keys = append(keys, e.key())
		}
		for k := range to.partitions[0].long {
			keys = append(keys, k)
		}
		to.Unseal(0)
		for _, k := range keys {
			for _, l := range limits {
				ask(to, k, l, 1)
				ask(to, k, l, -1)
			}
		}
	})
}
