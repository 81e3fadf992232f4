package api

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
)

// h2 writes frames of HTTP/2.
type h2 struct {
	bytes.Buffer
	*http2.Framer
}

func newH2(preface string) *h2 {
	h := &h2{}
	h.WriteString(preface)
	h.Framer = http2.NewFramer(&h.Buffer, nil)
	return h
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

// What has arrived of messages counts until the rest has arrived, the stream or the connection has ended, or the node has reset the stream.
func TestUnfinishedMessagesAreCounted(t *testing.T) {
	message := lengthPrefixed(100)
	for name, tc := range map[string]struct {
		write func(in *h2) error
		reset bool // by the node, after that
		after func(in *h2) error
		held  int64 // after write
		left  int64 // in the end
	}{
		"whole":                         {write: func(in *h2) error { return in.WriteData(1, true, message) }},
		"whole, and the stream goes on": {write: func(in *h2) error { return in.WriteData(1, false, message) }},
		"two and a half": {
			write: func(in *h2) error {
				return in.WriteData(1, false, append(append(message, message...), message[:50]...))
			},
			after: func(in *h2) error { return in.WriteData(1, false, message[50:]) },
			held:  50 + messageOverhead,
		},
		"less than a length": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:3]) },
			after: func(in *h2) error { return in.WriteData(1, false, message[3:7]) },
			held:  3 + messageOverhead, left: 7 + messageOverhead,
		},
		"padded": {
			write: func(in *h2) error { return in.WriteDataPadded(1, false, message[:60], make([]byte, 200)) },
			after: func(in *h2) error { return in.WriteDataPadded(1, false, message[60:], make([]byte, 3)) },
			held:  60 + messageOverhead,
		},
		"half, and the end": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:60]) },
			after: func(in *h2) error { return in.WriteData(1, true, nil) },
			held:  60 + messageOverhead,
		},
		"half, and a reset": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:60]) },
			after: func(in *h2) error { return in.WriteRSTStream(1, http2.ErrCodeCancel) },
			held:  60 + messageOverhead,
		},
		"half, and a reset by the node": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:60]) }, reset: true,
			after: func(in *h2) error { return in.WriteData(1, false, message[60:80]) },
			held:  60 + messageOverhead,
		},
		"of another stream": {
			write: func(in *h2) error { return in.WriteData(1, false, message[:60]) },
			after: func(in *h2) error { return in.WriteData(3, true, message) },
			held:  60 + messageOverhead, left: 60 + messageOverhead,
		},
	} {
		t.Run(name, func(t *testing.T) {
			budget := newUnfinishedBudget(prometheus.NewRegistry())
			u, in, out := newUnfinished(budget, func() { t.Error("ended") }), newH2(http2.ClientPreface), newH2("")
			mustWrite(t, in.WriteSettings(), tc.write(in), u.received(in.take()))
			if got := budget.used.Load(); got != tc.held {
				t.Errorf("%d bytes are held, want %d", got, tc.held)
			}
			if tc.reset {
				mustWrite(t, out.WriteSettings(), out.WriteRSTStream(1, http2.ErrCodeNo))
				u.sent(out.take())
			}
			if tc.after != nil {
				mustWrite(t, tc.after(in), u.received(in.take()))
			}
			if got := budget.used.Load(); got != tc.left {
				t.Errorf("%d bytes are held in the end, want %d", got, tc.left)
			}
			u.close()
			if got := budget.used.Load(); got != 0 || u.some.Load() {
				t.Errorf("%d bytes are held after the connection", got)
			}
		})
	}
}

// The count is that of a reader that keeps every message, however the bytes are cut.
func FuzzUnfinishedMessages(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed, 40)
	}
	f.Fuzz(func(t *testing.T, seed uint64, frames int) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		budget := newUnfinishedBudget(prometheus.NewRegistry())
		u, in, out := newUnfinished(budget, func() {}), newH2(http2.ClientPreface), newH2("")
		defer u.close()
		twin, buffers, reset := int64(0), map[uint32][]byte{}, map[uint32]bool{}
		pending := map[uint32][]byte{} // of each stream, what its client has not sent yet
		for range min(frames, 200) {
			stream := 1 + 2*rnd.Uint32N(4)
			switch kind := rnd.IntN(12); {
			case kind == 0:
				mustWrite(t, in.WritePing(false, [8]byte{}))
			case kind == 1:
				mustWrite(t, in.WriteRSTStream(stream, http2.ErrCodeCancel))
				delete(buffers, stream)
				delete(pending, stream)
			case kind == 2 && !reset[stream]:
				mustWrite(t, out.WriteRSTStream(stream, http2.ErrCodeNo))
				u.received(in.take()) //nolint:errcheck // it is below the bound
				u.sent(out.take())
				delete(buffers, stream)
				reset[stream] = true
			default:
				for len(pending[stream]) < 300 {
					pending[stream] = append(pending[stream], lengthPrefixed(rnd.IntN(400))...)
				}
				part, last := pending[stream][:rnd.IntN(300)], kind == 3
				pending[stream] = pending[stream][len(part):]
				if rnd.IntN(3) == 0 {
					mustWrite(t, in.WriteDataPadded(stream, last, part, make([]byte, rnd.IntN(256))))
				} else {
					mustWrite(t, in.WriteData(stream, last, part))
				}
				switch b := slices.Concat(buffers[stream], part); {
				case last:
					delete(buffers, stream)
					delete(pending, stream)
				case !reset[stream]:
					for len(b) >= 5 && len(b) >= 5+int(binary.BigEndian.Uint32(b[1:])) {
						b = b[5+int(binary.BigEndian.Uint32(b[1:])):]
					}
					buffers[stream] = b
				}
			}
		}
		for b := in.take(); len(b) > 0; {
			n := 1 + rnd.IntN(len(b))
			mustWrite(t, u.received(b[:n]))
			b = b[n:]
		}
		for _, b := range buffers {
			if len(b) > 0 {
				twin += int64(len(b)) + messageOverhead
			}
		}
		if got := budget.used.Load(); got != twin {
			t.Errorf("%d bytes are held, want %d", got, twin)
		}
	})
}

// A connection that holds much is ended once the node holds as much as it may, and one that holds little at twice that.
func TestUnfinishedMessagesAreBounded(t *testing.T) {
	budget := newUnfinishedBudget(prometheus.NewRegistry())
	begin := func(size int) error { // on a connection of its own
		u, in := newUnfinished(budget, func() {}), newH2(http2.ClientPreface)
		t.Cleanup(u.close)
		all := lengthPrefixed(size + 1)
		for len(all) > 6 {
			part := all[:min(len(all)-1, 1<<20)]
			all = all[len(part):]
			mustWrite(t, in.WriteData(1, false, part))
		}
		return u.received(in.take())
	}
	for budget.used.Load() <= maxUnfinished-(4<<20) {
		if err := begin(3 << 20); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for range 3 {
		err = errors.Join(err, begin(3<<20))
	}
	if !errors.Is(err, errUnfinished) {
		t.Errorf("with %d bytes: %v", budget.used.Load(), err)
	}
	for budget.used.Load() < 2*maxUnfinished-(2<<20) {
		if err := begin(fairUnfinished / 2); err != nil {
			t.Fatal(err)
		}
	}
	err = nil
	for range 8 {
		err = errors.Join(err, begin(fairUnfinished/2))
	}
	if !errors.Is(err, errUnfinished) || testutil.ToFloat64(budget.ended) == 0 {
		t.Errorf("with %d bytes: %v", budget.used.Load(), err)
	}
	if most := budget.used.Load(); most > 2*maxUnfinished+(4<<20) {
		t.Errorf("%d bytes are held", most)
	}
}

// A message has ten seconds to arrive, from its first byte.
func TestUnfinishedMessagesAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		budget := newUnfinishedBudget(prometheus.NewRegistry())
		m := &meteredConn{Conn: here, budget: newUnreadBudget(prometheus.NewRegistry())}
		m.unfinished = newUnfinished(budget, func() { _ = m.Close() })
		ended := make(chan error)
		go func() { _, err := io.Copy(io.Discard, m); ended <- err }()
		in, message := newH2(http2.ClientPreface), lengthPrefixed(100)
		write := func(stream uint32, part []byte) {
			mustWrite(t, in.WriteData(stream, false, part))
			if _, err := there.Write(in.take()); err != nil {
				t.Fatal(err)
			}
		}
		write(1, message[:10])
		time.Sleep(bodyTimeout - time.Millisecond) // in a bubble
		write(1, message[10:])
		began := time.Now()
		write(3, message[:10])
		time.Sleep(bodyTimeout / 2)
		write(3, message[10:20])
		write(5, message)
		if err := <-ended; err == nil || time.Since(began) != bodyTimeout {
			t.Errorf("ended %v after its first byte: %v", time.Since(began), err)
		}
		if budget.used.Load() != 0 || testutil.ToFloat64(budget.ended) != 1 {
			t.Errorf("%d bytes are held", budget.used.Load())
		}
	})
}

// What it costs to look at the frames of a unary call, and of a message of a stream, as they come with many others.
func BenchmarkUnfinishedMessages(b *testing.B) {
	for name, last := range map[string]bool{"unary": true, "stream": false} {
		b.Run(name, func(b *testing.B) {
			u, in, out := newUnfinished(newUnfinishedBudget(prometheus.NewRegistry()), func() {}), newH2(http2.ClientPreface), newH2("")
			_ = u.received(in.take())
			const calls = 300
			for i := range uint32(calls) {
				if last {
					_ = in.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: make([]byte, 20), EndHeaders: true})
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
				_ = u.received(received)
				u.sent(sent)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/calls, "ns/call")
		})
	}
}
