package wire

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
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

// decode returns what the codec of a server with g passes on of a message that a client has sent.
func (g *gunzip) decode(message []byte, into any) error {
	data, err := g.Do(mem.BufferSlice{mem.SliceBuffer(message)}.Reader())
	if err != nil {
		return err
	}
	return packedCodec{Codec(), g}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, into)
}

// Messages that wait to be unpacked have a bound of their bytes. One beyond is refused at once, and others wait on. Messages of more than 1 KiB for which there is
// no room are not even kept. Those whose calls have not ended yet take none, as their end may never come.
func TestGzipRefusesWhatWouldWait(t *testing.T) {
	for name, size := range map[string]int{"short": 2000, "long": 200_000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := make([]byte, size)
				_, _ = rand.Read(text[:size/20]) // never fails
				message := packed(t, text)
				each := waitOf(len(message))
				g := newGunzip(1<<20, int64(size), 1)
				g.waiting = semaphore.NewWeighted(3*each - 1)
				decoded := func() *Request {
					r := new(Request)
					if err := g.decode(message, r); err != nil {
						t.Error(err)
					}
					return r
				}
				for range 10 {
					decoded() // and its call does not end
				}
				first := decoded()
				if err := first.Unpack(t.Context()); err != nil {
					t.Fatal(err)
				}
				done := make(chan error)
				for range 2 {
					go func() {
						r := decoded()
						defer r.Free()
						done <- r.Unpack(t.Context())
					}()
				}
				synctest.Wait()
				third := decoded()
				if err := third.Unpack(t.Context()); status.Code(err) != codes.ResourceExhausted {
					t.Errorf("a third one: %v", err)
				}
				if len(message) >= minCounted && third.Len() > droppedBytes {
					t.Errorf("%d bytes of it are kept", third.Len())
				}
				if err := g.decode(message, new(emptypb.Empty)); status.Code(err) != codes.ResourceExhausted {
					t.Errorf("a third one, of another kind: %v", err)
				}
				third.Free()
				first.Free()
				for range 2 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if !g.waiting.TryAcquire(3*each - 1) {
					t.Error("some wait that do not")
				}
			})
		})
	}
}

// A message that unpacks to much more than it has, or that is refused as too long, is charged to the connection of its call.
func TestGzipIsCharged(t *testing.T) {
	random := make([]byte, 100_000)
	_, _ = rand.Read(random) // never fails
	bomb := packed(t, make([]byte, 2<<20))
	for name, tc := range map[string]struct {
		message []byte
		want    int
	}{
		"what clients send": {packed(t, append(random, make([]byte, 1_000_000)...)), 0},
		"packed zeros":      {packed(t, make([]byte, 1<<20)), 64},
		"too long":          {bomb, 1 + len(bomb)/1024},
	} {
		t.Run(name, func(t *testing.T) {
			g, got := newGunzip(2<<20-1, 4<<20, 1), 0
			g.charge = func(_ context.Context, frames int) { got += frames }
			for _, waiting := range []int64{math.MaxInt64, 0} { // if it may not wait, too
				g.waiting, got = semaphore.NewWeighted(waiting), 0
				var r Request
				if err := g.decode(tc.message, &r); err != nil {
					t.Fatal(err)
				}
				if err := r.Unpack(t.Context()); waiting == 0 && status.Code(err) != codes.ResourceExhausted {
					t.Errorf("a message that may not wait: %v", err)
				}
				r.Free()
				if got != tc.want {
					t.Errorf("%d frames are charged, want %d; room for %d", got, tc.want, waiting)
				}
			}
		})
	}
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
		want    []byte
		code    codes.Code
	}{
		"one member":          {good, text, codes.OK},
		"no text":             {packed(t, nil), []byte{}, codes.OK},
		"two members":         {append(slices.Clone(good), good...), nil, codes.Internal},
		"four bytes more":     {append(slices.Clone(good), good[len(good)-4:]...), nil, codes.Internal},
		"a smaller size":      {shorter, nil, codes.Internal},
		"a larger size":       {longer, nil, codes.Internal},
		"cut":                 {good[:len(good)-1], nil, codes.ResourceExhausted},
		"no header":           {good[10:], nil, codes.Internal},
		"the beginning of it": {good[:5], nil, codes.Internal},
		"nothing":             {nil, nil, codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGunzip(1<<20, 1<<20, 2)
			for range 5 { // more often than there is room for at once
				var r Request
				if err := g.decode(tc.message, &r); err != nil || !bytes.Equal(r.ReadOnlyData(), tc.message) {
					t.Fatalf("the message is not passed on as it came: %v", err)
				}
				err := r.Unpack(t.Context())
				if got := status.Code(err); got != tc.code {
					t.Fatalf("%v, want %v", err, tc.code)
				}
				if got := r.ReadOnlyData(); err == nil && (!bytes.Equal(got, tc.want) || cap(got) != len(tc.want)) {
					t.Fatalf("%d bytes in %d", len(got), cap(got))
				}
				r.Free()
			}
		})
	}
}

// The bound of a message is that of its server or of its service, the lesser of the two.
func TestLongestMessage(t *testing.T) {
	const size = 1000
	good := packed(t, make([]byte, size))
	for name, tc := range map[string]struct {
		server, service int
		code            codes.Code
	}{
		"at the server's":      {size, 0, codes.OK},
		"beyond the server's":  {size - 1, 0, codes.ResourceExhausted},
		"at the service's":     {2 * size, size, codes.OK},
		"beyond the service's": {2 * size, size - 1, codes.ResourceExhausted},
		"beyond one of both":   {size - 1, 2 * size, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			var r Request
			if err := newGunzip(int64(tc.server), 1<<20, 1).decode(good, &r); err != nil {
				t.Fatal(err)
			}
			defer r.Free()
			if tc.service > 0 {
				if err := r.Limit(tc.service); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Unpack(t.Context()); status.Code(err) != tc.code {
				t.Errorf("%v, want %v", err, tc.code)
			}
		})
	}
}

// What looks like the mark of a packed message is none.
func TestUnmarkedMessages(t *testing.T) {
	g := newGunzip(1<<20, 1<<20, 1)
	other := make([]byte, 100+len(g.mark))
	for name, data := range map[string]mem.BufferSlice{
		"no mark":   {mem.SliceBuffer(other[:100])},
		"two parts": {mem.SliceBuffer(append(slices.Clone(other[:100]), g.mark[:]...)[:100]), mem.SliceBuffer(other[:100])},
	} {
		var r Request
		if err := (packedCodec{Codec(), g}).Unmarshal(data, &r.Encoded); err != nil {
			t.Fatal(err)
		}
		if err := (packedCodec{Codec(), g}).Unmarshal(data, new(emptypb.Empty)); err == nil {
			t.Errorf("%s: zeros are decoded as a message", name) // a tag of 0 is none
		}
		if r.gunzip != nil {
			t.Errorf("%s: it is taken for packed", name)
		}
	}
}

// Messages that nothing but gRPC decodes are unpacked at once, and take no room after that.
func TestGzipOfOtherMessages(t *testing.T) {
	want := wrapperspb.Bytes(make([]byte, 2000))
	b, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	g := newGunzip(1<<20, int64(len(b)), 1)
	for range 3 {
		got := new(wrapperspb.BytesValue)
		if err := g.decode(packed(t, b), got); err != nil || !proto.Equal(got, want) {
			t.Fatalf("%d bytes, %v", len(got.Value), err)
		}
	}
	if err := g.decode(packed(t, make([]byte, 1<<20+1)), new(wrapperspb.BytesValue)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message that is too long: %v", err)
	}
}

// A message waits for room until another one is freed, or its call ends, and takes no room if it is refused.
func TestGzipWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGunzip(1<<20, 3000, 1)
		message := packed(t, make([]byte, 2000))
		unpacked := func(ctx context.Context) (*Request, error) {
			r := new(Request)
			if err := g.decode(message, r); err != nil {
				t.Error(err)
			}
			return r, r.Unpack(ctx)
		}
		first, err := unpacked(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := unpacked(ctx); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a second message: %v", err)
		}
		done := make(chan error)
		go func() {
			third, err := unpacked(t.Context())
			if err == nil {
				third.Free()
			}
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("a third message is unpacked: %v", err)
		default:
		}
		first.Free()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		g.unpacking <- struct{}{} // another one is being unpacked
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := unpacked(ctx); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a message that waits to be unpacked: %v", err)
		}
		if !g.room.TryAcquire(3000) {
			t.Error("messages that have ended take room")
		}
	})
}

// What it costs to unpack a batch.
func BenchmarkGzip(b *testing.B) {
	g, message := newGunzip(1<<20, 1<<20, 2), packed(b, bytes.Repeat([]byte("user alice /api/v1/posts "), 200))
	b.ReportAllocs()
	for b.Loop() {
		var r Request
		if err := errors.Join(g.decode(message, &r), r.Unpack(b.Context())); err != nil {
			b.Fatal(err)
		}
		r.Free()
	}
}
