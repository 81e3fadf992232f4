package algorithms

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestLongBinary(t *testing.T) {
	log := &Limit{Algorithm: SlidingWindowLog, Limit: 900, Window: minute}
	buckets := &Limit{Algorithm: SlidingWindowBuckets, Limit: 900, Window: int64(MinWindow), Buckets: 10} // of 1 ms
	for _, tc := range []struct {
		limit *Limit
		takes []hit
		want  string
	}{
		{log, nil, "00 00 00"},
		{log, []hit{{5, 0}}, "00 05 00"},
		{log, []hit{{5, 1}, {5, 1}, {300, 200}}, "00 ac02 02 05 02 a702 c801"},
		{log, []hit{{5, 1}, {7, 300}, {minute + 6, 0}}, "00 86b09dc2df01 01 07 ac02"}, // the first is over
		{buckets, []hit{{0, 3}, {2e6, 1}, {2999999, 1}}, "0a bf8db701 02 00 03 02 02"},
	} {
		var x, y Long
		for _, h := range tc.takes {
			x.Step(tc.limit, h.window, h.tokens, true)
		}
		got := x.AppendBinary([]byte{1, 2})
		if want := append([]byte{1, 2}, unhex(t, tc.want)...); !bytes.Equal(got, want) {
			t.Errorf("%+v: %x, want %x", tc.takes, got, want)
		}
		if err := y.UnmarshalBinary(got[2:]); err != nil || !(&counter{long: x}).equal(&counter{long: y}) || x.buckets != y.buckets {
			t.Errorf("%x: %v, %+v, want %+v", got, err, y, x)
		}
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLongBinaryRefuses(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", "buckets:  is not a whole number of 64 bits"},
		{"00 00", "entries:  is not a whole number of 64 bits"},
		{"8000 00 00", "buckets: 0 is written in 2 bytes, more than it takes"},
		{"911c 00 00", "buckets: 3601 is not between 0 and 3600"},
		{"00 ffffffffffffffffff01 00", "latest: 18446744073709551615 is not between 0 and 9223372036854775807"},
		{"00 ffffffffffffffffffff01", "latest: ffffffffffffffffffff is not a whole number of 64 bits"},
		{"00 09 914e 00 01", "entries: 10001 is not between 0 and 10000"},
		{"0a 09 0c 00 01", "entries: 12 is not between 0 and 11"},
		{"00 09 01 0a 01", "entry 0: tick: 10 is not between 0 and 9"},
		{"00 09 02 05 01 05 01", "entry 1: tick: 5 is not between 1 and 4"},
		{"00 09 02 05 01 00 01", "entry 1: tick: 0 is not between 1 and 4"},
		{"00 09 01 05 00", "entry 0: tokens: 0 is not between 1 and 4294967295"},
		{"00 09 02 05 02 01 feffffff0f", "entry 1: tokens: 4294967294 is not between 1 and 4294967293"},
		{"00 09 02 05 02 01", "entry 1: tokens:  is not a whole number of 64 bits"},
		{"00 09 01 05 02 00 00", "bytes: 2 are left over after 1 entries"},
		{strings.Repeat("00", MaxLongBytes+1), "bytes: 160001 are more than 160000"},
	} {
		x := Long{latest: 7}
		if err := x.UnmarshalBinary(unhex(t, tc.in)); err == nil || err.Error() != tc.want {
			t.Errorf("%.30s: %v, want %v", tc.in, err, tc.want)
		}
		if x.latest != 7 || x.ring != nil {
			t.Errorf("%.30s: left %+v", tc.in, x)
		}
	}
}

func TestLongBinaryRoundTrips(t *testing.T) {
	for _, a := range []Algorithm{SlidingWindowLog, SlidingWindowBuckets} {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := drawLimit(t, a)
				x := drawCount(t, l, drawStart(t, l), MaxCost)
				var y counter
				if err := y.long.UnmarshalBinary(x.long.AppendBinary(nil)); err != nil {
					t.Fatal(err)
				}
				same(t, "decoded", &y, x)
				now, cost := max(0, x.long.latest+drawMove(t, l)), drawCost(t, l)
				if got, want := y.step(l, now, cost), x.step(l, now, cost); got != want {
					t.Fatalf("%+v, want %+v", got, want)
				}
			})
		})
	}
}

// The most that there can be fits: as many entries, as far apart, as many tokens.
func TestLongBinaryIsBounded(t *testing.T) {
	l := &Limit{Algorithm: SlidingWindowLog, Limit: MaxLog, Window: int64(MaxWindow)}
	var x, y Long
	for i := range int64(MaxLog + 1) {
		x.Charge(l, 0, math.MaxInt64-(MaxLog-i)*(l.Window/MaxLog), maxUsed/MaxLog+1)
	}
	b := x.AppendBinary(nil)
	if x.count != MaxLog || x.used() != maxUsed || len(b) > MaxLongBytes {
		t.Errorf("%d entries of %d tokens in %d bytes", x.count, x.used(), len(b))
	}
	if err := y.UnmarshalBinary(b); err != nil || y.Bytes() > MaxLongBytes || !(&counter{long: x}).equal(&counter{long: y}) {
		t.Errorf("decoded into %d bytes: %v", y.Bytes(), err)
	}
}

// Only outputs of AppendBinary decode. Under any limit, no operation on them panics or leaves a value that
// does not decode.
func FuzzLongBinary(f *testing.F) {
	for _, seed := range []string{"000000", "00ac02020502a702c801", "0abf8db7010200030202", "9001ff010a0001010101010101010101010101010101010101"} {
		b, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint16(0), int64(MinWindow), int64(10), int64(5))
		f.Add(b, uint16(10), minute, int64(1), int64(-3))
	}
	f.Fuzz(func(t *testing.T, b []byte, buckets uint16, window, now, cost int64) {
		var c counter
		if c.long.UnmarshalBinary(b) != nil {
			return
		}
		if again := c.long.AppendBinary(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		l := &Limit{Algorithm: SlidingWindowLog, Limit: MaxLog, Window: window}
		if buckets > 0 {
			l = &Limit{Algorithm: SlidingWindowBuckets, Limit: MaxLimit, Window: window, Buckets: int64(buckets)}
		}
		if l.Validate() != nil || now < 0 || cost < -MaxCost || cost > MaxCost {
			return
		}
		for _, do := range []func(*counter){
			func(c *counter) { c.step(l, now, cost) },
			func(c *counter) { c.giveBack(l, now, c.long.latest, max(0, cost)) },
			func(c *counter) { c.merge(l, c, now) },
			func(c *counter) { c.charge(l, now, max(0, now-window/2), max(0, cost)) },
		} {
			d := c.clone()
			do(d)
			d.step(l, now, 1)
			var again Long
			if err := again.UnmarshalBinary(d.long.AppendBinary(nil)); err != nil {
				t.Fatalf("%+v: %v", d, err)
			}
		}
	})
}
