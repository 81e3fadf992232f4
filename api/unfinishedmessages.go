package api

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/net/http2"
)

// This file bounds the memory of messages that clients have begun to send over gRPC; unfinishedbodies.go does so for HTTP. gRPC keeps
// what has arrived of a message until all of it has, however long that takes, and has no bound of the sum. So each connection looks at
// the frames that pass through it, and counts what has arrived of messages that are not whole.

// errUnfinished ends a connection whose client has begun too many messages, or not finished one in time.
var errUnfinished = errors.New("api: messages were begun and not finished")

// unfinishedBudget bounds what a node holds of unfinished messages. A connection that holds little may use as much again, so that
// those that hold much end no other.
type unfinishedBudget struct {
	used  atomic.Int64 // sum of held of all connections
	ended prometheus.Counter
}

func newUnfinishedBudget(r prometheus.Registerer) *unfinishedBudget {
	f := promauto.With(r)
	b := &unfinishedBudget{}
	b.ended = f.NewCounter(prometheus.CounterOpts{
		Name: "weir_unfinished_refused_total",
		Help: "Connections over gRPC that this node ended, and requests over HTTP that it refused, because their clients had begun to send too much and not finished it, or a gRPC message for too long.",
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_unfinished_bytes",
		Help: "Bytes that have arrived of messages over gRPC that are not whole yet, and of HTTP requests that are not answered yet.",
	}, func() float64 { return float64(b.used.Load()) })
	return b
}

// unfinished are the messages on one connection that have begun to arrive and are not whole. One goroutine calls received, and another one
// sent.
type unfinished struct {
	budget *unfinishedBudget
	end    func() // ends the connection

	in, out frameScanner
	control int // frames by which the client has controlled the connection, of those that are being read
	padding int // of the DATA frame that is being read: bytes at its end; below 0 if the byte is still to come that says so

	some atomic.Bool // whether there are messages

	mu       sync.Mutex
	messages map[uint32]*message // guarded by mu; by their streams
	held     int64               // guarded by mu
	closed   bool                // guarded by mu
	overdue  *time.Timer         // guarded by mu; nil if there was no message yet
	ended    []uint32            // guarded by mu; the last streams that the node has ended before their clients have; at most maxEnded
	oldest   int                 // guarded by mu; of these
}

// message is one that has begun to arrive: a byte, its length in four bytes, and the rest (gRPC over HTTP2, Length-Prefixed-Message).
type message struct {
	begun time.Time
	head  [5]byte
	n     int // bytes that have arrived, with the head
}

// add adds what has arrived, and returns what belongs to the next message.
func (m *message) add(b []byte) (rest []byte) {
	if m.n < len(m.head) {
		n := copy(m.head[m.n:], b)
		m.n += n
		b = b[n:]
	}
	if m.n < len(m.head) {
		return b
	}
	n := min(int64(len(b)), m.left())
	m.n += int(n)
	return b[n:]
}

// left is how many bytes are still to come.
func (m *message) left() int64 {
	if m.n < len(m.head) {
		return int64(len(m.head) - m.n)
	}
	return int64(len(m.head)) + int64(binary.BigEndian.Uint32(m.head[1:])) - int64(m.n)
}

// holds is what m counts for in memory.
func (m *message) holds() int64 { return int64(m.n) + messageOverhead }

// frameScanner finds the frames of HTTP/2 (RFC 9113, section 4.1) in bytes that pass by.
type frameScanner struct {
	head [9]byte
	n    int // bytes of head
	left int // bytes of the payload that have not passed yet
}

// next takes the header of the next frame from b, and returns the rest. It is false if a part of the header is still to come.
func (f *frameScanner) next(b []byte) (rest []byte, ok bool) {
	if f.n == 0 && len(b) >= len(f.head) { // nearly always
		f.head, b = [9]byte(b), b[len(f.head):]
	} else {
		n := copy(f.head[f.n:], b)
		if f.n += n; f.n < len(f.head) {
			return nil, false
		}
		f.n, b = 0, b[n:]
	}
	f.left = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
	return b, true
}

// take takes up to n bytes of the payload from b.
func (f *frameScanner) take(b []byte, n int) (taken, rest []byte) {
	n = min(n, f.left, len(b))
	f.left -= n
	return b[:n], b[n:]
}

func (f *frameScanner) kind() http2.FrameType { return http2.FrameType(f.head[3]) }

func (f *frameScanner) is(kind http2.FrameType) bool { return f.kind() == kind }

// has is for flags that mean the same for all frames that have them.
func (f *frameScanner) has(flag http2.Flags) bool { return http2.Flags(f.head[4]).Has(flag) }

func (f *frameScanner) stream() uint32 { return binary.BigEndian.Uint32(f.head[5:]) & (1<<31 - 1) }

// newUnfinished returns the messages of a connection, which begins with the preface of HTTP/2.
func newUnfinished(budget *unfinishedBudget, end func()) *unfinished {
	u := &unfinished{budget: budget, end: end}
	u.in.left, u.in.head[3] = len(http2.ClientPreface), byte(http2.FrameSettings) // which is skipped
	return u
}

// received looks at bytes that the client has sent. The error says that it has begun too much.
func (u *unfinished) received(b []byte) error {
	for len(b) > 0 {
		if u.in.left > 0 {
			b = u.payload(b)
			continue
		}
		var whole bool
		if b, whole = u.in.next(b); whole {
			u.frame()
		}
	}
	if !u.some.Load() || u.budget.used.Load() <= maxUnfinished {
		return nil
	}
	return u.judge()
}

// tooMuchUnfinished reports whether a connection must go that holds that part of what the node holds.
func tooMuchUnfinished(used, held int64) bool {
	return used > maxUnfinished && held > fairUnfinished || used > 2*maxUnfinished && held > 0
}

// judge refuses what a connection holds while the node holds too much.
func (u *unfinished) judge() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if tooMuchUnfinished(u.budget.used.Load(), u.held) {
		u.budget.ended.Inc()
		return errUnfinished
	}
	return nil
}

// isPart reports whether the frame that is being read has a part of a message after which the stream goes on. The last one is left out: there
// is one at most per connection that has not arrived whole.
func (u *unfinished) isPart() bool {
	return u.in.is(http2.FrameData) && !u.in.has(http2.FlagDataEndStream)
}

// frame sees the header of a frame that the client has sent.
func (u *unfinished) frame() {
	u.padding = 0
	if isControl(u.in.kind()) {
		u.control++
	}
	switch {
	case u.isPart():
		if u.in.has(http2.FlagDataPadded) {
			u.padding = -1
		}
	case !u.some.Load():
	case u.in.is(http2.FrameRSTStream), u.in.is(http2.FrameData), u.in.is(http2.FrameHeaders): // trailers are the end, too
		u.mu.Lock()
		u.forget(u.in.stream())
		u.mu.Unlock()
	}
}

// payload sees a part of a frame that the client has sent, and returns what comes after it.
func (u *unfinished) payload(b []byte) (rest []byte) {
	if !u.isPart() {
		_, rest = u.in.take(b, len(b))
		return rest
	}
	if u.padding < 0 {
		var length []byte
		length, b = u.in.take(b, 1)
		u.padding = min(int(length[0]), u.in.left) // gRPC ends the connection if it is more
	}
	part, rest := u.in.take(b, max(0, u.in.left-u.padding))
	if len(part) > 0 {
		u.add(u.in.stream(), part)
	}
	if u.in.left <= u.padding {
		_, rest = u.in.take(rest, u.in.left)
	}
	return rest
}

// add adds what has arrived of the messages of a stream.
func (u *unfinished) add(stream uint32, part []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	kept, m := u.messages[stream], message{}
	if kept != nil {
		m = *kept
	}
	for len(part) > 0 {
		if m.left() == 0 {
			m = message{}
		}
		part = m.add(part)
	}
	switch {
	case m.left() == 0:
		u.forget(stream)
	case kept == nil:
		u.keep(stream, m)
	default:
		if m.begun.IsZero() {
			m.begun = time.Now()
		}
		u.hold(m.holds() - kept.holds())
		*kept = m
	}
}

// keep has the first part of a message count from now on. It is called with mu held.
func (u *unfinished) keep(stream uint32, m message) {
	if u.closed || slices.Contains(u.ended, stream) {
		return
	}
	if u.messages == nil {
		u.messages = make(map[uint32]*message)
	}
	m.begun = time.Now()
	u.messages[stream] = &m
	u.hold(m.holds())
	u.some.Store(true)
	if u.overdue == nil {
		u.overdue = time.AfterFunc(bodyTimeout, u.look)
	} else if len(u.messages) == 1 {
		u.overdue.Reset(bodyTimeout)
	}
}

// forget has the message of a stream not count any more. It is called with mu held.
func (u *unfinished) forget(stream uint32) {
	if m := u.messages[stream]; m != nil {
		delete(u.messages, stream)
		u.hold(-m.holds())
		u.some.Store(len(u.messages) > 0)
	}
}

// hold is called with mu held.
func (u *unfinished) hold(n int64) {
	u.held += n
	u.budget.used.Add(n)
}

// sent looks at bytes that the node has sent. What arrives of a stream that it has reset is thrown away by gRPC.
func (u *unfinished) sent(b []byte) {
	for len(b) > 0 {
		if u.out.left > 0 {
			_, b = u.out.take(b, len(b))
			continue
		}
		var whole bool
		if b, whole = u.out.next(b); whole && u.out.is(http2.FrameRSTStream) {
			u.reset(u.out.stream())
		}
	}
}

// reset forgets what has arrived of a stream, and ignores what is still to come.
func (u *unfinished) reset(stream uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forget(stream)
	if len(u.ended) < maxEnded {
		u.ended = append(u.ended, stream)
		return
	}
	u.ended[u.oldest] = stream
	u.oldest = (u.oldest + 1) % maxEnded
}

// look ends the connection if a message has not arrived in time.
func (u *unfinished) look() {
	u.mu.Lock()
	var oldest time.Time
	for _, m := range u.messages {
		if oldest.IsZero() || m.begun.Before(oldest) {
			oldest = m.begun
		}
	}
	late := !oldest.IsZero() && time.Since(oldest) >= bodyTimeout
	if !oldest.IsZero() && !late && !u.closed {
		u.overdue.Reset(time.Until(oldest.Add(bodyTimeout)))
	}
	u.mu.Unlock()
	if late {
		u.budget.ended.Inc()
		u.end()
	}
}

// close forgets all messages: the connection has ended.
func (u *unfinished) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed, u.messages = true, nil
	u.hold(-u.held)
	u.some.Store(false)
	if u.overdue != nil {
		u.overdue.Stop()
	}
}
