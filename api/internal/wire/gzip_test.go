package wire

import (
	"bytes"
	"compress/gzip"
	"slices"
	"testing"
	"testing/synctest"
)

func packed(tb testing.TB, text []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// A message that says at its end how long it is is unpacked into as much memory, again and again, and no other one is.
func TestGzip(t *testing.T) {
	text := bytes.Repeat([]byte("weir"), 100_000)
	good := packed(t, text)
	shorter, longer := slices.Clone(good), slices.Clone(good)
	shorter[len(good)-4] ^= 0x80 // it is 400,000, which ends with 0x80
	longer[len(good)-4] ^= 1
	for name, tc := range map[string]struct {
		message []byte
		want    []byte // nil if it is refused
	}{
		"one member":          {good, text},
		"no text":             {packed(t, nil), []byte{}},
		"two members":         {append(slices.Clone(good), good...), nil},
		"four bytes more":     {append(slices.Clone(good), good[len(good)-4:]...), nil},
		"a smaller size":      {shorter, nil},
		"a larger size":       {longer, nil},
		"cut":                 {good[:len(good)-1], nil},
		"no header":           {good[10:], nil},
		"the beginning of it": {good[:5], nil},
		"nothing":             {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 1 << 20
			c := newOneMember(most, 2)
			for range 5 { // more often than may be unpacked at once
				got, err := c.Do(bytes.NewReader(tc.message))
				if len(got) > most && tc.want == nil {
					continue // gRPC refuses it
				}
				if (tc.want != nil) != (err == nil) || !bytes.Equal(got, tc.want) || cap(got) != len(tc.want) && tc.want != nil {
					t.Fatalf("%d bytes in %d, %v", len(got), cap(got), err)
				}
			}
		})
	}
	for most, ok := range map[int64]bool{int64(len(text)): true, int64(len(text)) - 1: false} {
		got, err := newOneMember(most, 1).Do(bytes.NewReader(good))
		if err != nil || (int64(len(got)) <= most) != ok {
			t.Errorf("at most %d: %d bytes, %v", most, len(got), err)
		}
	}
}

// A few messages are unpacked at a time; the next one waits.
func TestGzipWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newOneMember(1<<20, 2)
		message := packed(t, []byte("weir"))
		c.unpacking <- struct{}{}
		c.unpacking <- struct{}{}
		done := make(chan error)
		go func() {
			_, err := c.Do(bytes.NewReader(message))
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("a third message is unpacked: %v", err)
		default:
		}
		<-c.unpacking
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// What it costs to unpack a batch.
func BenchmarkGzip(b *testing.B) {
	c, message := newOneMember(1<<20, 2), packed(b, bytes.Repeat([]byte("user alice /api/v1/posts "), 200))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Do(bytes.NewReader(message)); err != nil {
			b.Fatal(err)
		}
	}
}
