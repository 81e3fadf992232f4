package shard

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/ring"
)

// The table is compared with a map, with keys that crowd around both ends of it, so
// that searches lead around the end.
func TestTableAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table table
		twin := make(map[ring.Key]entry)
		key := rapid.Custom(func(t *rapid.T) ring.Key {
			hi := rapid.SampledFrom([]uint64{0, 1, math.MaxUint64 / 2, math.MaxUint64 - 1, math.MaxUint64}).Draw(t, "hi")
			return ring.Key{Hi: hi, Lo: rapid.Uint64Range(0, 5).Draw(t, "lo")}
		})
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			k := key.Draw(t, "key")
			got := table.find(k)
			want, found := twin[k]
			if (got != nil) != found || found && *got != want {
				t.Fatalf("%v: found %v, want %v %t", k, got, want, found)
			}
			switch rapid.IntRange(0, 3).Draw(t, "action") {
			case 0:
				if found {
					table.remove(k)
					delete(twin, k)
				}
			case 1:
				table.tidy()
			default:
				e := entry{usage: usage{expires: 1, used: uint32(i)}}
				if found {
					*got = e
				} else {
					table.add(k, e)
				}
				twin[k] = e
			}
			checkTable(t, &table, twin)
		}
	})
}

func checkTable(t *rapid.T, table *table, twin map[ring.Key]entry) {
	if table.n != len(twin) || table.n*fullDen > len(table.slots)*fullNum {
		t.Fatalf("%d of %d slots used, want %d", table.n, len(table.slots), len(twin))
	}
	for k, want := range twin {
		if e := table.find(k); e == nil || *e != want {
			t.Fatalf("%v: %v, want %v", k, e, want)
		}
	}
	used := 0
	for i := range table.slots {
		if table.slots[i].expires != 0 {
			used++
		} else if table.slots[i] != (slot{}) {
			t.Fatalf("slot %d is empty and holds %v", i, table.slots[i])
		}
	}
	if used != table.n {
		t.Fatalf("%d slots used, %d counted", used, table.n)
	}
}

// What the sweeper leaves is as small as what it holds.
func TestTableShrinks(t *testing.T) {
	var table table
	k := func(i int) ring.Key { return ring.Hasher{}.Key([]byte{byte(i), byte(i >> 8)}) }
	for i := range 10_000 {
		table.add(k(i), entry{usage: usage{expires: 1}})
	}
	for i := range 9_990 {
		table.remove(k(i))
	}
	table.tidy()
	if len(table.slots) != 20 || table.n != 10 {
		t.Errorf("%d slots of which %d are used, want 20 and 10", len(table.slots), table.n)
	}
	for i := range 10_000 {
		if found := table.find(k(i)) != nil; found != (i >= 9_990) {
			t.Errorf("%d found: %t", i, found)
		}
	}
}
