package snapshot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

var head = Head{Cluster: 0x123456789abcdef0, Partitions: 1021, Node: "a-1", Incarnation: 7, Time: 1_700_000_000_000_000_001,
	Members: []Life{{"a-1", 7}, {"b", 1 << 50}, {strings.Repeat("c", maxNode), 1}}}

var partitions = []Partition{
	{Number: 0, Term: 1 << 24, Sequence: 3, Records: []byte("records"), Grants: []byte{}},
	{Number: 1020, Term: 1<<63 + 5, Sequence: 1 << 62, Records: bytes.Repeat([]byte("x"), 100_000), Grants: []byte("grants")},
	{Number: 5, Records: []byte{}, Grants: []byte{}},
}

func encode(t testing.TB, h Head, partitions ...Partition) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range partitions {
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if w.Size() != int64(b.Len()) {
		t.Errorf("its size is said to be %d, not %d", w.Size(), b.Len())
	}
	return b.Bytes()
}

// decode returns what Read finds in b.
func decode(b []byte) (h Head, got []Partition, err error) {
	err = Read(bytes.NewReader(b), int64(len(b)), func(x Head) error { h = x; return nil }, func(p Partition) error {
		p.Records, p.Grants = append([]byte{}, p.Records...), append([]byte{}, p.Grants...)
		got = append(got, p)
		return nil
	})
	return h, got, err
}

func TestWrittenIsRead(t *testing.T) {
	h, got, err := decode(encode(t, head, partitions...))
	if err != nil || !reflect.DeepEqual(h, head) || !reflect.DeepEqual(got, partitions) {
		t.Errorf("%+v, %d partitions, %v", h, len(got), err)
	}
}

// No file is believed that ends early, at any byte.
func TestTorn(t *testing.T) {
	whole := encode(t, head, Partition{Number: 1, Records: []byte("abc"), Grants: []byte("d")}, Partition{Number: 2})
	for n := range whole {
		if _, _, err := decode(whole[:n]); !errors.Is(err, errTorn) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

// No file is believed of which one bit has changed, or that something was added to.
func TestDamaged(t *testing.T) {
	whole := encode(t, head, Partition{Number: 1, Records: []byte("abc"), Grants: []byte("d")}, Partition{Number: 2})
	for i := range 8 * len(whole) {
		damaged := bytes.Clone(whole)
		damaged[i/8] ^= 1 << (i % 8)
		if _, _, err := decode(damaged); err == nil {
			t.Fatalf("bit %d: no error", i)
		}
	}
	if _, _, err := decode(append(bytes.Clone(whole), 0)); err == nil {
		t.Error("one byte more: no error")
	}
	if _, _, err := decode(encode(t, Head{Partitions: 2}, Partition{Number: 2})); err == nil {
		t.Error("partition 2 of 2: no error")
	}
}

func TestOtherFormats(t *testing.T) {
	whole := encode(t, head)
	for _, tc := range []struct {
		begins string
		want   error
	}{{"weir snapshot 3\n", ErrTooNew}, {"weir snapshot 0\n", ErrTooOld}, {"weir state 1 00\n", nil}, {strings.Repeat("x", 1<<20), nil}} {
		_, _, err := decode(append([]byte(tc.begins), whole[len("weir snapshot 2\n"):]...))
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%.20q: %v", tc.begins, err)
		}
	}
}

// older is a file of format 1, as an earlier version has written it: node a-1 with partition 3 of 5.
func older() []byte {
	b, err := hex.DecodeString("7765697220736e617073686f7420310a" +
		"1f0000004f42e67d78caea9801f0debc9a7856341205000000070000000000000001002a36fe9c9717612d311c000000532a" +
		"fa3ab103cd45020300000009000000000000000400000000000000010000006461626308000000a7f6f5edd2a3df7d030100" +
		"000000000000")
	if err != nil {
		panic(err)
	}
	return b
}

// A file of format 1 is read. It has no members.
func TestFormatWithoutMembers(t *testing.T) {
	h, got, err := decode(older())
	wantHead := Head{Cluster: 0x123456789abcdef0, Partitions: 5, Node: "a-1", Incarnation: 7, Time: 1_700_000_000_000_000_001}
	wantParts := []Partition{{Number: 3, Term: 9, Sequence: 4, Records: []byte("abc"), Grants: []byte("d")}}
	if err != nil || !reflect.DeepEqual(h, wantHead) || !reflect.DeepEqual(got, wantParts) {
		t.Errorf("%+v, %+v, %v", h, got, err)
	}
}

// A head with more members than a view may have, or with a longer id, is not believed.
func TestHeadBounds(t *testing.T) {
	for want, members := range map[string][]Life{
		"more than 65536 members":         make([]Life, maxLives+1),
		"129 bytes is not of at most 128": {{ID: strings.Repeat("x", maxNode+1)}},
	} {
		if _, _, err := decode(encode(t, Head{Node: "a", Members: members})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if h, _, err := decode(encode(t, Head{Node: "a", Members: make([]Life, maxLives)})); err != nil || len(h.Members) != maxLives {
		t.Errorf("%d members: %v", len(h.Members), err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encode(f, head, partitions[0], partitions[2]))
	f.Add(older())
	f.Add([]byte("weir snapshot 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, got, err := decode(b)
		if err != nil {
			return
		}
		again := encode(t, h, got...)
		if h2, got2, err := decode(again); err != nil || !reflect.DeepEqual(h, h2) || !reflect.DeepEqual(got, got2) {
			t.Errorf("what was read is not what was written: %v", err)
		}
		if bytes.HasPrefix(b, []byte("weir snapshot 2\n")) && !bytes.Equal(again, b) {
			t.Error("what was written is not what was read")
		}
	})
}
