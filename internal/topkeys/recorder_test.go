package topkeys

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// countingSource counts events of one rule as the API does, and draws by a Pace.
type countingSource struct {
	pace   *Pace
	counts [Outcomes]atomic.Uint64
	next   [Outcomes]atomic.Uint64
	renew  atomic.Int64
}

// user is the source of a key.
type user uint64

func (u user) KeyAttributes() []Attribute {
	return []Attribute{{Key: "user", Value: fmt.Sprint(uint64(u))}}
}

func newSource(r *Recorder, name string) *countingSource {
	s := &countingSource{pace: r.Assign([]Name{{"default", name}})[0].NewPace()}
	for i := range s.next {
		s.next[i].Store(1)
	}
	return s
}

// event counts an event of a key, whose outcome is also its order.
func (s *countingSource) event(r *Recorder, id uint64, o Order) {
	number := s.counts[o].Add(1)
	at := int64(r.now())
	if number < s.next[o].Load() && at < s.renew.Load() {
		return
	}
	s.pace.Lock()
	defer s.pace.Unlock()
	if at >= s.renew.Load() {
		for i := range s.next {
			events := s.counts[i].Load()
			if i == int(o) {
				events = number - 1
			}
			s.next[i].Store(s.pace.Renew(i, events))
		}
		s.renew.Store(at + int64(RenewEvery))
	}
	if s.next[o].Load() <= number {
		s.next[o].Store(s.pace.Draw(int(o), number, Event{ID: id, Outcome: o, Source: user(id)}))
	}
}

// A node that is asked little counts each check, in the windows in which it was made.
// A rule that stays must not keep the names alive of all rules of each set that it was in.
func TestAssignKeepsNoOtherNames(t *testing.T) {
	const sets = 2000
	r, kept := NewRecorder(nil), make([]*Group, 0, sets)
	names := make([]Name, 0, sets)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range sets {
		names = append(names, Name{"shop", strconv.Itoa(i)})
		kept = append(kept, r.Assign(slices.Clone(names))[i])
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 5<<20 {
		t.Errorf("%d rules, added one at a time, keep %d bytes", len(kept), grown)
	}
	runtime.KeepAlive(kept)
}

func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		s := newSource(r, "r")
		for range 3 {
			s.event(r, 1, Denied)
		}
		s.event(r, 2, Checks)
		s.event(r, 3, WouldDeny)
		time.Sleep(30 * time.Second)
		for range 2 {
			s.event(r, 2, Checks)
		}
		for _, tc := range []struct {
			after time.Duration
			order Order
			w     Window
			want  string
		}{
			{0, Checks, Minute, "user=1 3 user=2 3 user=3 1"},
			{0, Denied, Minute, "user=1 3"},
			{0, WouldDeny, Minute, "user=3 1"},
			{0, Checks, Hour, "user=1 3 user=2 3 user=3 1"},
			{25 * time.Second, Denied, Minute, "user=1 3"},
			{20 * time.Second, Denied, Minute, ""},
			{0, Checks, Minute, "user=2 2"},
			{0, Denied, Hour, "user=1 3"},
			{time.Minute, Checks, Minute, ""},
			{57 * time.Minute, Denied, Hour, "user=1 3"},
			{10 * time.Minute, Denied, Hour, ""},
		} {
			time.Sleep(tc.after)
			l := r.List(Query{Order: tc.order, Window: tc.w})
			if got := keysOf(l); got != tc.want {
				t.Errorf("after %v, %s over %s: %s, want %s", r.now(), OrderNames[tc.order], WindowNames[tc.w], got, tc.want)
			}
			for _, k := range l.Keys {
				if k.Least != k.Most || k.Variance != 0 {
					t.Errorf("%+v is not exact", k)
				}
			}
			longest := map[Window]uint32{Minute: 70, Hour: 3900}[tc.w]
			if shortest := min(uint32(r.now()/time.Second), longest-70); l.Seconds > longest || l.Seconds < shortest {
				t.Errorf("after %v: %d seconds", r.now(), l.Seconds)
			}
		}
	})
}

// After a flood a check of a quiet time is listed at once.
func TestQuietAfterFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		s := newSource(r, "r")
		for i := range 300 {
			for range 1000 {
				s.event(r, uint64(i), Checks)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if s.pace.strides[Checks].shift < 5 {
			t.Errorf("one of %d is drawn at 100,000 per second", 1<<s.pace.strides[Checks].shift)
		}
		time.Sleep(10 * time.Minute)
		s.event(r, 12345, Checks)
		if got := keysOf(r.List(Query{Window: Minute})); got != "user=12345 1" {
			t.Error(got)
		}
	})
}

// A flood of one rule takes no places of another, unless there are more rules than groups.
func TestRulesDoNotFlushEachOther(t *testing.T) {
	r := NewRecorder(nil)
	groups := r.Assign([]Name{{"default", "flooded"}, {"default", "quiet"}})
	record := func(g *Group, id uint64) {
		g.record(Event{ID: id, Outcome: Denied, Source: user(id)}, 0)
	}
	record(groups[1], 7)
	for i := range uint64(100_000) {
		record(groups[0], 1000+i)
	}
	l := r.List(Query{Order: Denied, Domain: "default", Rule: "quiet"})
	if keysOf(l) != "user=7 1" || l.Keys[0].Most != 1 || l.Others != 0 {
		t.Errorf("%+v", l)
	}
	all := r.List(Query{Order: Denied})
	if len(all.Keys) != Capacity+1 || all.Others != 100_000/Capacity {
		t.Errorf("%d keys, others %d", len(all.Keys), all.Others)
	}
}

// While rules change, those that stay keep their group, and new ones go where the fewest are.
func TestAssign(t *testing.T) {
	r := NewRecorder(nil)
	var names []Name
	for i := range Groups {
		names = append(names, Name{"d", fmt.Sprint(i)})
	}
	first := r.Assign(names)
	seen := make(map[*groupLists]bool)
	for _, g := range first {
		seen[g.lists] = true
	}
	if len(seen) != Groups {
		t.Errorf("%d rules have %d groups", Groups, len(seen))
	}
	again := r.Assign(append([]Name{{"d", "new"}}, names[3:]...))
	for i, g := range again[1:] {
		if g.lists != first[i+3].lists {
			t.Errorf("rule %d has another group", i+3)
		}
	}
}

// Hostile texts stay within the bound, are UTF-8, and do not run into each other.
func TestText(t *testing.T) {
	long := strings.Repeat("ä", 300)
	r := NewRecorder(nil)
	for _, tc := range []struct{ in, want []Attribute }{
		{nil, nil},
		{[]Attribute{{Key: "user", Value: "alice"}}, []Attribute{{Key: "user", Value: "alice"}}},
		{[]Attribute{{Key: "user", Value: ""}, {Key: "a", Value: "\x00\n\x1b[2J\u202e"}}, []Attribute{{Key: "user", Value: ""}, {Key: "a", Value: "\x00\n\x1b[2J\u202e"}}},
		{[]Attribute{{Key: "user", Value: "a\xffb"}}, []Attribute{{Key: "user", Value: "a\uFFFDb"}}},
		{[]Attribute{{Key: "user", Value: long}}, []Attribute{{Key: "user", Value: strings.Repeat("ä", 59), Cut: true}}},
		{[]Attribute{{Key: strings.Repeat("k", 64), Value: long}, {Key: "b", Value: "c"}}, []Attribute{{Key: strings.Repeat("k", 64), Value: strings.Repeat("ä", 29), Cut: true}}},
	} {
		text := r.encode(tc.in)
		if got := Attributes(text); !reflect.DeepEqual(got, tc.want) || len(text) > maxText {
			t.Errorf("%+v became %+v of %d bytes, want %+v", tc.in, got, len(text), tc.want)
		}
	}
}

// FuzzText reads texts of other nodes, which may be anything.
func FuzzText(f *testing.F) {
	f.Add("user", "alice", []byte{1, 'a', 2, 'b'})
	r := NewRecorder(nil)
	f.Fuzz(func(t *testing.T, key, value string, raw []byte) {
		for _, a := range Attributes(string(raw)) {
			if !utf8.ValidString(a.Key) || !utf8.ValidString(a.Value) {
				t.Errorf("%+q", a.Key+a.Value)
			}
		}
		text := r.encode([]Attribute{{Key: key, Value: value}})
		if len(text) > maxText {
			t.Errorf("%d bytes", len(text))
		}
		if got := Attributes(text); len(got) == 1 && !got[0].Cut && got[0].Value != strings.ToValidUTF8(value, "\uFFFD") {
			t.Errorf("%q became %q", value, got[0].Value)
		}
	})
}

// Any number of goroutines record and read at once.
func TestConcurrentUse(t *testing.T) {
	r := NewRecorder(nil)
	s := newSource(r, "r")
	var running sync.WaitGroup
	const each = 20_000
	for g := range 4 {
		running.Go(func() {
			for i := range each {
				s.event(r, uint64(g), Checks)
				if i%5000 == 0 {
					r.List(Query{Window: Hour})
				}
			}
		})
	}
	running.Wait()
	l := r.List(Query{Window: Hour})
	if len(l.Keys) != 4 {
		t.Fatalf("%+v", l.Keys)
	}
	for _, k := range l.Keys {
		if d := math.Abs(float64(k.Least) - each); d > 6*math.Sqrt(k.Variance)+1 {
			t.Errorf("key %d: %d, standard error %.0f", k.ID, k.Least, math.Sqrt(k.Variance))
		}
	}
}
