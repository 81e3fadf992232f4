package shard

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

func newTestArena(t testing.TB, pages int) *arena {
	a, err := newArena(pages, extraPages)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The table is compared with a map, with some keys that crowd together, at both ends of it
// among other places, and with a clock at which some are over.
func TestTableAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pages = 40
		a, err := newArena(pages, extraPages)
		if err != nil {
			t.Fatal(err)
		}
		var table table
		twin := make(map[ring.Key]slot)
		now := uint32(1)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		crowds := []uint64{0, 1, math.MaxUint64 / 2, math.MaxUint64 - 1, math.MaxUint64}
		key := func() ring.Key {
			hi := r.Uint64()
			if r.IntN(2) == 0 {
				hi = crowds[r.IntN(len(crowds))] + uint64(r.IntN(3))
			}
			return ring.Key{Hi: hi, Lo: uint64(r.IntN(50)) << 48}
		}
		known := func() ring.Key { // one that may be there
			for k := range twin {
				return k
			}
			return key()
		}
		// Expired slots that were dropped are no loss.
		forget := func(dropped int) {
			for k, s := range twin {
				if s.expires <= now && table.find(a, k) == nil {
					delete(twin, k)
					dropped--
				}
			}
			if dropped != 0 {
				t.Fatalf("%d more dropped than were over", dropped)
			}
		}
		add := func(k ring.Key) {
			got, want := table.find(a, k), twin[k]
			if (got != nil) != (want.expires != 0) || got != nil && *got != want {
				t.Fatalf("%v: found %v, want %v", k, got, want)
			}
			s := newSlot(k, algorithms.State{}, usage{now + 1 + r.Uint32N(3), uint16(r.Uint32())})
			switch {
			case got != nil:
				*got = s
			case !table.room(a):
				if a.left > 0 && table.reserved < pages*growth/(growth+1) {
					t.Fatalf("no room, but %d pages are left of %d", a.left, table.reserved)
				}
				return
			default:
				dropped, ok := table.add(a, s, now)
				if !ok {
					t.Fatal("no page")
				}
				twin[k] = s
				forget(dropped)
			}
			twin[k] = s
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "action") {
			case 0:
				for range r.IntN(len(twin) + 1) {
					k := known()
					if table.remove(a, k) != (twin[k].expires != 0) {
						t.Fatalf("%v: removed what was not there, or not what was", k)
					}
					delete(twin, k)
				}
			case 1:
				table.tidy(a)
			case 2:
				if table.moving != nil {
					forget(table.move(a, r.IntN(1000), now))
				}
			case 3:
				now += r.Uint32N(3)
			default:
				for range r.IntN(1000) {
					add(key())
				}
			}
			checkTable(t, a, &table, twin)
		}
	})
}

// TestMoveWithoutPages takes all pages but one away from a table that moves keys of equal high halves, which do not fit in
// one page.
func TestMoveWithoutPages(t *testing.T) {
	const equal, others = pageSlots + pageSlots/2, 100
	a, err := newArena(8, extraPages)
	if err != nil {
		t.Fatal(err)
	}
	var table table
	var keys []ring.Key
	add := func(k ring.Key, expires uint32) {
		if !table.room(a) {
			t.Fatal("no room")
		}
		if _, ok := table.add(a, newSlot(k, algorithms.State{}, usage{expires: expires}), 1); !ok {
			t.Fatal("no page")
		}
		if keys = append(keys, k); table.moving != nil {
			table.move(a, math.MaxInt, 1)
		}
	}
	for i := range others {
		add(ring.Key{Hi: uint64(i)}, 2)
	}
	for i := range equal {
		add(ring.Key{Hi: others, Lo: uint64(i) << 48}, uint32(2+i%2))
	}
	all := func(step string, want func(i int) bool) {
		t.Helper()
		for i, k := range keys {
			if found := table.find(a, k) != nil; found != want(i) {
				t.Fatalf("%s: key %d is found: %v", step, i, found)
			}
		}
	}
	if !table.begin(a, table.reserved+1) {
		t.Fatal("no page is left")
	}
	var taken []uint32
	for p, ok := a.take(); ok; p, ok = a.take() {
		taken = append(taken, p)
	}
	a.give(pop(&taken))
	for range 3 {
		if n := table.move(a, math.MaxInt, 1); n != 0 || table.moving == nil {
			t.Fatalf("%d were dropped, or all were moved", n)
		}
		all("without pages", func(int) bool { return true })
	}
	for len(taken) > 0 {
		a.give(pop(&taken))
	}
	if n := table.move(a, math.MaxInt, 2); n != equal/2 || table.n != others+equal/2 { // the others were moved before
		t.Errorf("%d were dropped, %d are left", n, table.n)
	}
	all("with pages", func(i int) bool { return i < others || (i-others)%2 == 1 })
}

func checkTable(t *rapid.T, a *arena, table *table, twin map[ring.Key]slot) {
	if table.n != len(twin) || table.crowded() {
		t.Fatalf("%d of %d slots used, want %d", table.n, table.size(), len(twin))
	}
	for k, want := range twin {
		if e := table.find(a, k); e == nil || *e != want {
			t.Fatalf("%v: %v, want %v", k, e, want)
		}
	}
	walked, last := 0, uint64(math.MaxUint64)
	for c := table.seek(a, 0); ; c.i++ {
		s := c.next(a)
		if s == nil {
			break
		}
		if walked++; s.hi > last {
			t.Fatalf("slot %d holds %x, after %x", c.i, ^s.hi, ^last)
		}
		last = s.hi
	}
	if walked != table.n {
		t.Fatalf("%d slots used, %d counted", walked, table.n)
	}
	held := len(table.pages) - table.given()
	if table.moving != nil {
		held += len(table.moving.pages)
	}
	if held > max(1, table.reserved)+extraPages-1 {
		t.Fatalf("%d pages, promised are %d", held, table.reserved)
	}
	if used := a.fresh - len(a.idle) - len(a.returned); held != used {
		t.Fatalf("the table has %d pages, the arena lacks %d", held, used)
	}
	if promised := max(1, table.reserved) - 1; a.left+promised != len(a.pages)-extraPages {
		t.Fatalf("%d pages promised and %d left, of %d", promised, a.left, len(a.pages)-extraPages)
	}
}

// A table takes little more than its counters do, however many there are: 32 bytes, of slots
// that are 70 to 80 % full.
func TestTableIsDense(t *testing.T) {
	a := newTestArena(t, 10_000)
	var table table
	r := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 300_000; n++ {
		if !table.room(a) {
			t.Fatalf("no room for %d", n)
		}
		if _, ok := table.add(a, newSlot(ring.Key{Hi: r.Uint64()}, algorithms.State{}, usage{expires: 1}), 0); !ok {
			t.Fatal("no page")
		}
		// The last term: a table of few pages grows by a whole one.
		if bytes := (a.fresh - len(a.idle)) * pageBytes; float64(bytes) > 46*float64(n)+2*float64(pageBytes) {
			t.Fatalf("%d counters take %d bytes", n, bytes)
		}
	}
}

// The sweeper leaves a table as small as its contents allow.
func TestTableShrinks(t *testing.T) {
	a := newTestArena(t, 1000)
	var table table
	k := func(i int) ring.Key { return ring.Hasher{}.Key([]byte{byte(i), byte(i >> 8)}) }
	fill := func() {
		for i := range 50_000 {
			if table.find(a, k(i)) == nil && table.room(a) {
				table.add(a, newSlot(k(i), algorithms.State{}, usage{expires: 1}), 0)
			}
		}
	}
	fill()
	for i := range 49_990 {
		table.remove(a, k(i))
	}
	table.tidy(a)
	for table.moving != nil {
		table.move(a, 100, 0)
	}
	if len(table.pages) != 1 || table.n != 10 || table.reserved != 1 || a.left != 1000 {
		t.Errorf("%d pages of which %d slots are used, %d promised, want 1, 10 and 1", len(table.pages), table.n, table.reserved)
	}
	for i := range 50_000 {
		if found := table.find(a, k(i)) != nil; found != (i >= 49_990) {
			t.Errorf("%d found: %t", i, found)
		}
	}
	fill()
	for i := range 50_000 {
		table.remove(a, k(i))
	}
	table.tidy(a)
	for more := true; more; {
		_, more = a.trim()
	}
	if len(table.pages) != 0 || a.bytes() != keepIdle*pageBytes || a.left != 1000 {
		t.Errorf("an empty table has %d pages, the arena %d bytes", len(table.pages), a.bytes())
	}
	fill() // with memory that was given back
	if table.n != 50_000 {
		t.Errorf("%d counters, want 50000", table.n)
	}
}
