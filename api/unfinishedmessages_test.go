package api

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
)

// h2 writes frames of HTTP/2. Those of a client begin a stream before they say something of it.
type h2 struct {
	bytes.Buffer
	*http2.Framer
	client bool
	last   uint32 // stream that was begun
}

func newH2(preface string) *h2 {
	h := &h2{client: preface != ""}
	h.WriteString(preface)
	h.Framer = http2.NewFramer(&h.Buffer, nil)
	return h
}

// headers writes a block of header fields on stream 1, in parts of these sizes.
func (h *h2) headers(end bool, sizes ...int) error {
	h.last = 1
	err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, sizes[0]), EndStream: end, EndHeaders: len(sizes) == 1})
	for i, size := range sizes[1:] {
		err = errors.Join(err, h.WriteContinuation(1, i == len(sizes)-2, make([]byte, size)))
	}
	return err
}

func (h *h2) begin(stream uint32) error {
	if !h.client || stream <= h.last {
		return nil
	}
	h.last = stream
	return h.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, 9), EndHeaders: true})
}

func (h *h2) WriteData(stream uint32, end bool, data []byte) error {
	return errors.Join(h.begin(stream), h.Framer.WriteData(stream, end, data))
}

func (h *h2) WriteDataPadded(stream uint32, end bool, data, padding []byte) error {
	return errors.Join(h.begin(stream), h.Framer.WriteDataPadded(stream, end, data, padding))
}

// take returns what was written since.
func (h *h2) take() []byte { defer h.Reset(); return bytes.Clone(h.Bytes()) }

// lengthPrefixed is a message of n bytes.
func lengthPrefixed(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
}

func mustWrite(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// What has arrived of messages counts until gRPC keeps it no more: a message that is whole until the stream ends or the node answers, and half a message
// until one of both ends ends the stream.
func TestUnfinishedMessagesAreCounted(t *testing.T) {
	message := lengthPrefixed(100)
	all, half := keptBytes(len(message)), keptBytes(60)
	for name, tc := range map[string]struct {
		write  func(in *h2) error
		held   int64               // after that
		answer func(out *h2) error // of the node
		after  func(in *h2) error
		left   int64 // in the end
		open   bool  // the client has not ended the call in the end, as it has not if some are left
		over   bool  // the call is: the node has ended it, or the client has reset it
	}{
		"whole, and the end": {write: func(in *h2) error { return in.WriteData(1, true, message) }},
		"whole":              {write: func(in *h2) error { return in.WriteData(1, false, message) }, held: all, left: all},
		"whole, and an answer": {
			write: func(in *h2) error { return in.WriteData(1, false, message) }, held: all,
			answer: func(out *h2) error { return out.WriteData(1, false, message) }, open: true,
		},
		"whole, and an answer on another stream": {
			write: func(in *h2) error { return in.WriteData(1, false, message) }, held: all,
			answer: func(out *h2) error { return out.WriteData(3, false, message) }, left: all,
		},
		"one and a half, and an answer": {
			write: func(in *h2) error { return in.WriteData(1, false, append(slices.Clone(message), message[:60]...)) }, held: keptBytes(165) + half,
			answer: func(out *h2) error { return out.WriteData(1, false, message) }, left: half,
		},
		"half, and an answer": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:60]) }, held: half,
			answer: func(out *h2) error { return out.WriteData(1, false, message) }, left: half,
		},
		"half, and the end": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:60]) }, held: half,
			after: func(in *h2) error { return in.WriteData(1, true, nil) },
		},
		"half, and the rest with the end": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:60]) }, held: half,
			after: func(in *h2) error { return in.WriteData(1, true, message[60:]) },
		},
		"half, and a reset": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:60]) }, held: half,
			after: func(in *h2) error { return in.WriteRSTStream(1, http2.ErrCodeCancel) },
			over:  true,
		},
		"half, and a reset by the node": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:60]) }, held: half,
			answer: func(out *h2) error { return out.WriteRSTStream(1, http2.ErrCodeNo) },
			over:   true,
		},
		"half, and trailers of the node": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:60]) }, held: half,
			answer: func(out *h2) error {
				return out.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 9), EndHeaders: true, EndStream: true})
			},
			over: true,
		},
		"more than a window": {
			write: func(in *h2) (err error) {
				for range 100 {
					err = errors.Join(err, in.WriteData(1, false, lengthPrefixed(16<<10-5)))
				}
				return err
			},
			held: 5 * keptBytes(16<<10), left: 5 * keptBytes(16<<10),
		},
		"a call that says nothing": {write: func(in *h2) error { return in.headers(false, 9) }, open: true},
		"a call that says nothing, and trailers of the node": {
			write:  func(in *h2) error { return in.headers(false, 9) },
			answer: func(out *h2) error { return out.headers(true, 9) },
			over:   true,
		},
		"a call at once":     {write: func(in *h2) error { return errors.Join(in.headers(false, 9), in.WriteData(1, true, message)) }},
		"few header fields":  {write: func(in *h2) error { return in.headers(false, fewFields) }, open: true},
		"many header fields": {write: func(in *h2) error { return in.headers(false, 1000, 500) }, held: 6000, left: 6000},
		"many header fields, and an answer": {
			write: func(in *h2) error { return in.headers(false, 1000) }, held: 4000,
			answer: func(out *h2) error { return out.WriteData(1, false, message) }, left: 4000,
		},
		"many header fields, and trailers of the node": {
			write: func(in *h2) error { return in.headers(false, 1000, 500) }, held: 6000,
			answer: func(out *h2) error { return out.headers(true, 9) },
			over:   true,
		},
		"many header fields, and the message with the end": {
			write: func(in *h2) error { return errors.Join(in.headers(false, 1000), in.WriteData(1, true, message)) },
		},
		"many header fields, and the end":          {write: func(in *h2) error { return in.headers(true, 1000, 500) }},
		"header fields that are as many as may be": {write: func(in *h2) error { return in.headers(false, 16000, 16000, 16000) }, held: 160 << 10, left: 160 << 10},
		"padded":          {write: func(in *h2) error { return in.WriteDataPadded(1, false, message[:60], make([]byte, 200)) }, held: keptBytes(261), left: keptBytes(261)},
		"padded, in full": {write: func(in *h2) error { return in.WriteDataPadded(1, true, message[:60], make([]byte, 200)) }},
		"one byte a frame": {
			write: func(in *h2) error {
				return errors.Join(in.WriteData(1, false, message[:1]), in.WriteData(1, false, message[1:2]))
			},
			held: 2 * keptBytes(1), left: 2 * keptBytes(1),
		},
		"a frame that is little longer than a buffer": {
			write: func(in *h2) error { return in.WriteData(1, false, lengthPrefixed(8000)[:4097]) }, held: 96 + 16<<10, left: 96 + 16<<10,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 7, 1 << 20} { // of what is read at once
				budget := newUnfinishedBudget(prometheus.NewRegistry())
				u, in, out := newUnfinished(budget, func() { t.Error("ended") }), newH2(http2.ClientPreface), newH2("")
				receive := func() {
					for part := range slices.Chunk(in.take(), size) {
						if !u.received(part) {
							t.Error("the connection must end")
						}
					}
				}
				mustWrite(t, in.WriteSettings(), tc.write(in))
				receive()
				if got := budget.used.Load(); got != tc.held && size > 7 {
					t.Errorf("%d bytes are held, want %d", got, tc.held)
				}
				if tc.answer != nil {
					mustWrite(t, out.WriteSettings(), tc.answer(out))
					u.sent(out.take())
				}
				if tc.after != nil {
					mustWrite(t, tc.after(in))
					receive()
				}
				if got := budget.used.Load(); got < tc.left || got > tc.left && (size > 7 || tc.left == 0) {
					t.Errorf("%d bytes are held in the end, want %d", got, tc.left)
				}
				if got := budget.calls.total.Load(); (got == 1) == tc.over {
					t.Errorf("%d calls are under way in the end", got)
				}
				if got := budget.open.total.Load(); (got == 1) != (tc.open || tc.left > 0) {
					t.Errorf("%d calls are open in the end", got)
				}
				u.close()
				if got := budget.used.Load() + budget.calls.total.Load() + budget.open.total.Load(); got != 0 || u.some.Load() || len(budget.holders) != 0 {
					t.Errorf("%d bytes are held after the connection", got)
				}
			}
		})
	}
}

// A connection whose client begins a stream again that it has ended is over, and what is kept of others stays as it was.
func TestStreamThatBeginsAgainIsNotCounted(t *testing.T) {
	budget := newUnfinishedBudget(prometheus.NewRegistry())
	u, in := newUnfinished(budget, func() {}), newH2(http2.ClientPreface)
	mustWrite(t, in.headers(true, 9))
	if !u.received(in.take()) {
		t.Fatal("the connection must not end")
	}
	mustWrite(t, in.headers(false, 1000))
	if u.received(in.take()) {
		t.Error("the connection goes on")
	}
	if *whole != (arriving{}) || budget.used.Load() != 0 {
		t.Errorf("%d bytes are held, and %+v stands for streams that have ended", budget.used.Load(), *whole)
	}
}

// A connection keeps nothing of many calls that have ended.
func TestEndedCallsLeaveNothing(t *testing.T) {
	const conns, calls = 100, 4096
	in, out := newH2(http2.ClientPreface), newH2("")
	for i := range uint32(calls) {
		mustWrite(t, in.begin(2*i+1), out.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: make([]byte, 9), EndHeaders: true, EndStream: true}))
	}
	received, sent := in.take(), out.take()
	budget := newUnfinishedBudget(prometheus.NewRegistry())
	var us []*unfinished
	before := heap()
	for range conns {
		u := newUnfinished(budget, func() {})
		for part := range slices.Chunk(received, littleRead) {
			u.received(part)
		}
		for part := range slices.Chunk(sent, littleRead) {
			u.sent(part)
		}
		us = append(us, u)
	}
	if each := (heap() - before) / conns; each > 5<<10 {
		t.Errorf("each connection keeps %d bytes", each)
	}
	for _, u := range us {
		u.close()
	}
}

// heap returns the bytes of memory in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// However frames are cut and mixed, what is counted is at least what a reader keeps that has every frame, and nothing once all streams have ended.
func FuzzUnfinishedMessages(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed, 40)
	}
	f.Fuzz(func(t *testing.T, seed uint64, frames int) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		budget := newUnfinishedBudget(prometheus.NewRegistry())
		u, in, out := newUnfinished(budget, func() {}), newH2(http2.ClientPreface), newH2("")
		defer u.close()
		type stream struct {
			id     uint32
			unsent []byte // by the client
			kept   []byte // by gRPC: after the last whole message that was answered
		}
		streams, newest := make([]stream, 4), uint32(1) // the others have ended
		var unanswered []uint32                         // those that their clients have ended, and the node has not
		receive := func() {
			for b := in.take(); len(b) > 0; {
				n := 1 + rnd.IntN(len(b))
				if !u.received(b[:n]) {
					t.Fatal("the connection must end")
				}
				b = b[n:]
			}
		}
		end := func(id uint32) {
			mustWrite(t, out.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 9), EndHeaders: true, EndStream: true}))
		}
		for range min(frames, 200) {
			if i := rnd.IntN(20); i < len(unanswered) {
				receive()
				end(unanswered[i])
				u.sent(out.take())
				unanswered = slices.Delete(unanswered, i, i+1)
			}
			s := &streams[rnd.IntN(len(streams))]
			if s.id == 0 {
				*s, newest = stream{id: newest}, newest+2
				mustWrite(t, in.begin(s.id))
			}
			switch kind := rnd.IntN(12); kind {
			case 0:
				mustWrite(t, in.WritePing(false, [8]byte{}))
			case 1:
				mustWrite(t, in.WriteRSTStream(s.id, http2.ErrCodeCancel))
				s.id = 0
			case 2:
				receive()
				mustWrite(t, out.WriteData(s.id, false, lengthPrefixed(10)))
				u.sent(out.take())
				for len(s.kept) >= 5 && len(s.kept) >= 5+int(binary.BigEndian.Uint32(s.kept[1:])) {
					s.kept = s.kept[5+int(binary.BigEndian.Uint32(s.kept[1:])):]
				}
			case 3:
				receive()
				mustWrite(t, out.WriteRSTStream(s.id, http2.ErrCodeNo), in.WriteData(s.id, false, lengthPrefixed(10))) // it was on its way
				u.sent(out.take())
				s.id = 0
			default:
				for len(s.unsent) < 300 {
					s.unsent = append(s.unsent, lengthPrefixed(rnd.IntN(400))...)
				}
				part, last := s.unsent[:rnd.IntN(300)], kind == 4
				s.unsent = s.unsent[len(part):]
				if rnd.IntN(3) == 0 {
					mustWrite(t, in.WriteDataPadded(s.id, last, part, make([]byte, rnd.IntN(256))))
				} else {
					mustWrite(t, in.WriteData(s.id, last, part))
				}
				if s.kept = append(s.kept, part...); last {
					unanswered = append(unanswered, s.id)
					s.id = 0
				}
			}
		}
		receive()
		least, open := int64(0), int64(0)
		for _, s := range streams {
			if s.id != 0 {
				least += int64(len(s.kept))
				open++
			}
		}
		if got := budget.used.Load(); got < least {
			t.Errorf("%d bytes are held, want %d", got, least)
		}
		if got, all := budget.open.total.Load(), budget.calls.total.Load(); got != open || all != open+int64(len(unanswered)) {
			t.Errorf("%d calls are open, want %d, and %d under way, want %d more", got, open, all, len(unanswered))
		}
		for _, s := range streams {
			if s.id != 0 {
				mustWrite(t, in.WriteData(s.id, true, nil))
				unanswered = append(unanswered, s.id)
			}
		}
		receive()
		for _, id := range unanswered {
			end(id)
		}
		u.sent(out.take())
		if got := budget.used.Load() + budget.calls.total.Load() + budget.open.total.Load(); got != 0 || u.some.Load() {
			t.Errorf("%d bytes and calls are held of no stream", got)
		}
	})
}

// A connection ends whose client says something of a stream that it has not begun, or begins one twice: gRPC would answer that with a reset, and have
// the stream go on.
func TestStreamsOutOfOrder(t *testing.T) {
	begin := func(in *h2, stream uint32) error {
		return in.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, 9), EndHeaders: true})
	}
	for name, tc := range map[string]struct {
		write func(in *h2) error
		ends  bool
	}{
		"in order": {func(in *h2) error {
			return errors.Join(begin(in, 1), begin(in, 5), in.WriteWindowUpdate(5, 1), in.Framer.WriteData(1, true, nil), in.WriteRSTStream(5, 0))
		}, false},
		"a priority before the stream": {func(in *h2) error { return in.WritePriority(7, http2.PriorityParam{StreamDep: 1}) }, false},
		"an unknown frame":             {func(in *h2) error { return in.WriteRawFrame(0xb, 0, 7, []byte("weir")) }, false},
		"a window of the connection":   {func(in *h2) error { return in.WriteWindowUpdate(0, 1) }, false},
		"a window before the stream": {func(in *h2) error {
			return errors.Join(in.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 4)), begin(in, 1))
		}, true},
		"data before the stream":    {func(in *h2) error { return in.Framer.WriteData(1, false, []byte("weir")) }, true},
		"a reset before the stream": {func(in *h2) error { return in.WriteRSTStream(3, 0) }, true},
		"a stream twice":            {func(in *h2) error { return errors.Join(begin(in, 3), begin(in, 3)) }, true},
		"an older stream":           {func(in *h2) error { return errors.Join(begin(in, 3), begin(in, 1)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			u, in := newUnfinished(newUnfinishedBudget(prometheus.NewRegistry()), func() {}), newH2(http2.ClientPreface)
			mustWrite(t, in.WriteSettings(), tc.write(in))
			if goesOn := u.received(in.take()); goesOn == tc.ends {
				t.Errorf("the connection goes on: %v", goesOn)
			}
		})
	}
}

// A node that holds too much ends what holds most for longest, and those that hold little never.
func TestUnfinishedMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := newUnfinishedBudget(prometheus.NewRegistry())
		var ended []string
		begin := func(name string, size int) {
			var u *unfinished
			u = newUnfinished(budget, func() {
				ended = append(ended, name)
				u.close()
			})
			in := newH2(http2.ClientPreface)
			for all := lengthPrefixed(size)[:size]; len(all) > 0; {
				part := all[:min(len(all), 16<<10)]
				all = all[len(part):]
				mustWrite(t, in.WriteData(1, false, part))
			}
			u.received(in.take())
		}
		for range 100 {
			begin("little", 10<<10)
		}
		begin("first", 20<<20)
		time.Sleep(time.Second) // in a bubble
		begin("second", 4<<20)
		if ended != nil {
			t.Fatalf("ended with room: %v", ended)
		}
		time.Sleep(time.Second)
		begin("third", 8<<20) // it has just begun
		if !slices.Equal(ended, []string{"first"}) {
			t.Fatalf("ended: %v, want the first", ended)
		}
		time.Sleep(time.Second)
		for i := range 3 {
			begin(fmt.Sprint(i), 8<<20)
		}
		if !slices.Equal(ended, []string{"first", "third"}) || testutil.ToFloat64(budget.ended) != 2 {
			t.Errorf("ended: %v, want the third, too", ended)
		}
		for range 3000 {
			begin("little", 10<<10)
		}
		if slices.Contains(ended, "little") {
			t.Error("one that holds little was ended")
		}
	})
}

// What it costs to look at the frames of a unary call, and of a message of a stream, as they come with many others.
func BenchmarkUnfinishedMessages(b *testing.B) {
	for name, last := range map[string]bool{"unary": true, "stream": false} {
		b.Run(name, func(b *testing.B) {
			u, in, out := newUnfinished(newUnfinishedBudget(prometheus.NewRegistry()), func() {}), newH2(http2.ClientPreface), newH2("")
			const calls = 300
			if !last { // they have begun before
				for i := range uint32(calls) {
					_ = in.begin(2*i + 1)
				}
			}
			u.received(in.take())
			for i := range uint32(calls) {
				if last {
					_ = in.begin(2*i + 1)
					_ = out.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: make([]byte, 10), EndHeaders: true})
				}
				_ = in.WriteData(2*i+1, last, lengthPrefixed(60))
				_ = out.WriteData(2*i+1, false, lengthPrefixed(40))
				if last {
					_ = out.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: make([]byte, 10), EndHeaders: true, EndStream: true})
				}
			}
			received, sent := in.take(), out.take()
			b.ReportAllocs()
			for b.Loop() {
				if last {
					u.last = 0 // they begin again
				}
				u.received(received)
				u.sent(sent)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/calls, "ns/call")
		})
	}
}
