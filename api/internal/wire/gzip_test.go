package wire

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"google.golang.org/grpc/encoding"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
)

func packed(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := encoding.GetCompressor(grpcgzip.Name).Compress(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpack(r io.Reader) ([]byte, error) {
	m, err := encoding.GetCompressor(grpcgzip.Name).Decompress(r)
	if err != nil {
		return nil, err
	}
	defer m.(io.Closer).Close()
	return io.ReadAll(m)
}

// A message that says at its end how long it is is unpacked, again and again, and no other one is.
func TestGzip(t *testing.T) {
	text := bytes.Repeat([]byte("weir"), 100_000)
	good := packed(t, text)
	short := slices.Clone(good)
	short[len(short)-4] ^= 1
	for name, tc := range map[string]struct {
		message []byte
		ok      bool
	}{
		"one member":          {good, true},
		"two members":         {append(slices.Clone(good), packed(t, text)...), false},
		"four bytes more":     {append(slices.Clone(good), 0, 0, 0, 0), false},
		"another size":        {short, false},
		"cut":                 {good[:len(good)-1], false},
		"no header":           {good[10:], false},
		"the beginning of it": {good[:5], false},
		"nothing":             {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 { // more often than may be unpacked at once
				for _, r := range []io.Reader{bytes.NewReader(tc.message), iotest.OneByteReader(bytes.NewReader(tc.message))} {
					got, err := unpack(r)
					if tc.ok != (err == nil) || tc.ok && !bytes.Equal(got, text) {
						t.Fatalf("%d bytes, %v", len(got), err)
					}
				}
			}
		})
	}
	if got := UnpackedSize([4]byte(good[len(good)-4:])); got != int64(len(text)) {
		t.Errorf("says %d bytes, has %d", got, len(text))
	}
}

// A few messages are unpacked at a time; the next one waits.
func TestGzipWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &oneMember{Compressor: encoding.GetCompressor(grpcgzip.Name), unpacking: make(chan struct{}, 2)}
		message := packed(t, []byte("weir"))
		var open []io.Reader
		for range 2 {
			r, err := c.Decompress(bytes.NewReader(message))
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, r)
		}
		done := make(chan error)
		go func() {
			_, err := c.Decompress(bytes.NewReader(message))
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("a third message is unpacked: %v", err)
		default:
		}
		if err := open[0].(io.Closer).Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// What it costs to unpack a batch.
func BenchmarkGzip(b *testing.B) {
	var w bytes.Buffer
	z := gzip.NewWriter(&w)
	_, _ = z.Write(bytes.Repeat([]byte("user alice /api/v1/posts "), 200)) // into memory
	_ = z.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := unpack(bytes.NewReader(w.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

// A short message does not keep the long buffer into which it was unpacked.
func TestUnpackedFits(t *testing.T) {
	for _, size := range []int{0, 1, 1000, 10_000, 20_000, 40_000} {
		r, err := encoding.GetCompressor(grpcgzip.Name).Decompress(bytes.NewReader(packed(t, make([]byte, size))))
		if err != nil {
			t.Fatal(err)
		}
		data, err := mem.ReadAll(r, mem.DefaultBufferPool())
		if err := errors.Join(err, r.(io.Closer).Close()); err != nil {
			t.Fatal(err)
		}
		var m Encoded
		if err := Codec().Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		data.Free()
		if got := m.ReadOnlyData(); len(got) != size || size <= 10_000 && cap(got) > 16<<10 {
			t.Errorf("%d bytes of %d, %d are kept", len(got), size, cap(got))
		}
		m.Free()
	}
}
