package api

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/net/http2"
)

// This file bounds the memory of messages that clients have begun to send over gRPC; unfinishedbodies.go does so for HTTP. gRPC keeps
// what has arrived until it has all of a message, and of a unary call the end of its stream, however long that takes, and has no bound of the
// sum. So each connection looks at the frames that pass through it, and counts what gRPC keeps. (ADR 44)

// unfinishedBudget bounds what a node holds of unfinished messages. If it holds too much it ends the connections that have held most of that
// for longest.
type unfinishedBudget struct {
	used  atomic.Int64 // sum of what all holders hold
	calls fairShares   // over gRPC that clients have begun and this node has not ended
	open  fairShares   // of these that clients have not ended, either
	again atomic.Int64 // when holders may be looked at again, in Unix nanoseconds
	ended prometheus.Counter

	mu      sync.Mutex
	holders map[unfinishedHolder]struct{} // guarded by mu
}

// unfinishedHolder is a connection over gRPC, or an HTTP request.
type unfinishedHolder interface {
	// holds returns how many bytes it holds, and since when.
	holds() (bytes int64, since time.Time)
	// end ends it: it holds nothing soon.
	end()
}

func newUnfinishedBudget(r prometheus.Registerer) *unfinishedBudget {
	f := promauto.With(r)
	b := &unfinishedBudget{holders: make(map[unfinishedHolder]struct{}), calls: fairShares{most: maxCalls}, open: fairShares{most: maxOpenCalls}}
	b.ended = f.NewCounter(prometheus.CounterOpts{
		Name: "weir_unfinished_ended_total",
		Help: "Connections over gRPC, and requests over HTTP, that this node ended because clients had begun to send more than it holds, and these had held most of it for longest.",
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_unfinished_bytes",
		Help: "Bytes that this node holds of messages over gRPC that are not whole yet, and of HTTP requests that are not answered yet.",
	}, func() float64 { return float64(b.used.Load()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_unfinished_calls",
		Help: "Calls over gRPC that clients have begun and not ended, such as streams.",
	}, func() float64 { return float64(b.open.total.Load()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_calls_under_way",
		Help: "Calls over gRPC that clients have begun and this node has not ended: those of weir_unfinished_calls, and those that it has not answered or whose answers are not read.",
	}, func() float64 { return float64(b.calls.total.Load()) })
	return b
}

func (b *unfinishedBudget) add(h unfinishedHolder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holders[h] = struct{}{}
}

func (b *unfinishedBudget) remove(h unfinishedHolder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.holders, h)
}

// relieve ends what holds most for longest, if the node holds too much. The caller has begun to hold more, and holds that in all.
func (b *unfinishedBudget) relieve(held int64) {
	if b.used.Load() <= maxUnfinished {
		return
	}
	now := time.Now()
	if again := b.again.Load(); held <= fairUnfinished && (now.UnixNano() < again || !b.again.CompareAndSwap(again, now.Add(relieveAgain).UnixNano())) {
		return
	}
	for b.used.Load() > maxUnfinished {
		h := b.worst(now)
		if h == nil {
			return
		}
		b.remove(h)
		b.ended.Inc()
		h.end()
	}
	b.again.Store(0)
}

// worst returns what holds most for longest, nil if all hold little.
func (b *unfinishedBudget) worst(now time.Time) (worst unfinishedHolder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := 0.0
	for h := range b.holders {
		held, since := h.holds()
		if held <= fairUnfinished {
			continue
		}
		if score := float64(held) * (min(now.Sub(since), maxHeldFor) + time.Millisecond).Seconds(); score > most {
			worst, most = h, score
		}
	}
	return worst
}

// unfinished is what gRPC keeps of the messages on one connection. One goroutine calls received, and another one sent.
type unfinished struct {
	budget *unfinishedBudget
	stop   func() // ends the connection

	in, out frameScanner
	padding int       // of the DATA frame that is being read: bytes at its end; below 0 if the byte is still to come that says so
	skip    bool      // the frame that is being read says nothing of messages
	now     time.Time // when what is being looked at was received; zero if that was not needed yet
	begins  bool      // the header fields that are being read begin a stream, and its client has not ended it
	last    uint32    // the newest stream of the client
	broken  bool      // the client has broken the protocol
	begun   []uint32  // streams that have begun in what is being looked at, and not ended
	came    []uint32  // all that have begun in it
	reset   []uint32  // those that the client has reset in it
	control int       // frames by which the client has controlled the connection, since the last look
	calls   int       // that the client has begun, since the last look
	code    uint32    // of the RST_STREAM frame that is being sent
	over    []uint32  // streams that the node has ended in what is being sent

	// charged is what calls have cost since the last look and no answer has paid for, in frames. It is below 0 if answers have paid for more.
	charged atomic.Int64

	some atomic.Bool // whether open is above 0

	mu      sync.Mutex
	streams map[uint32]*arriving    // guarded by mu; those that have begun, and that the node has not ended; whole if the client has, nil if little has arrived
	open    int                     // guarded by mu; streams that are not whole
	peak    int                     // guarded by mu; the most streams since they were made
	counted struct{ all, open int } // guarded by mu; streams when they were counted last
	held    int64                   // guarded by mu
	since   time.Time               // guarded by mu; when held was 0 last
	closed  bool                    // guarded by mu
}

// arriving is a stream of which data or many header fields have arrived.
type arriving struct {
	message
	part, whole int64 // bytes that gRPC keeps of the message that is arriving, and of those before it that the node has not answered
	length      int64 // bytes of these whole messages, as they were sent
	block       int64 // bytes of the header fields that began the stream, if they are many
}

// manyStreams is from which number on streams take much memory, 20 bytes each, once they have ended.
const manyStreams = 256

// whole stands for a stream that its client has ended.
var whole = new(arriving)

// fields is what gRPC keeps of header fields until the stream ends. They are packed in their block.
func (s *arriving) fields() int64 {
	const ratio, most = 4, 160 << 10
	return min(ratio*s.block, most)
}

// fewFields is how long a block of header fields is that takes little more memory than each stream does.
const fewFields = 256

// message is one that arrives: a byte that says whether it is compressed, its length in four bytes, and the rest (gRPC over HTTP2,
// Length-Prefixed-Message).
type message struct {
	head [5]byte
	n    int64 // bytes that have arrived, with the head
}

// add adds what has arrived, and returns what belongs to the next message.
func (m *message) add(b []byte) (rest []byte) {
	if m.n < int64(len(m.head)) {
		n := copy(m.head[m.n:], b)
		m.n += int64(n)
		b = b[n:]
	}
	if m.n < int64(len(m.head)) {
		return b
	}
	n := min(int64(len(b)), m.left())
	m.n += n
	return b[n:]
}

// left is how many bytes are still to come.
func (m *message) left() int64 {
	if m.n < int64(len(m.head)) {
		return int64(len(m.head)) - m.n
	}
	return int64(len(m.head)) + int64(binary.BigEndian.Uint32(m.head[1:])) - m.n
}

// keptBytes is what gRPC keeps of a frame of n bytes: a buffer of one of the sizes of its pool, or of n bytes if that is little, and what leads to it.
func keptBytes(n int) int64 {
	const lead = 96
	switch {
	case n <= 1<<10:
		return lead + int64(n)
	case n <= 4<<10:
		return lead + 4<<10
	default: // a frame has at most 16 KiB
		return lead + 16<<10
	}
}

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

// has is for flags that mean the same for all frames that have them.
func (f *frameScanner) has(flag http2.Flags) bool { return http2.Flags(f.head[4]).Has(flag) }

func (f *frameScanner) stream() uint32 { return binary.BigEndian.Uint32(f.head[5:]) & (1<<31 - 1) }

// newUnfinished returns the messages of a connection, which begins with the preface of HTTP/2. End ends it.
func newUnfinished(budget *unfinishedBudget, end func()) *unfinished {
	u := &unfinished{budget: budget, stop: end, skip: true, streams: make(map[uint32]*arriving)}
	u.in.left = len(http2.ClientPreface)
	budget.add(u)
	return u
}

// received looks at bytes that the client has sent. It is false if the connection has been ended, or must be.
func (u *unfinished) received(b []byte) (goesOn bool) {
	u.now = time.Time{}
	for len(b) > 0 {
		if u.in.left > 0 {
			b = u.payload(b)
			continue
		}
		var whole bool
		if b, whole = u.in.next(b); whole {
			b = u.frame(b)
		}
	}
	u.countCalls()
	if u.broken {
		return false
	}
	if u.some.Load() && u.budget.used.Load() > maxUnfinished {
		held, _ := u.holds()
		u.budget.relieve(held)
		return !u.isClosed()
	}
	return true
}

// hasManyCalls reports whether further calls may be refused.
func (b *unfinishedBudget) hasManyCalls() bool { return b.open.areMany() || b.calls.areMany() }

// refusal returns why a further call is refused: the node has too many, and this connection more than its share. It is nil if the call is not.
func (u *unfinished) refusal() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.budget.open.exceed(u.open):
		return errOpenCalls
	case u.budget.calls.exceed(len(u.streams)):
		return errManyCalls
	}
	return nil
}

func (u *unfinished) isClosed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closed
}

// frame sees the header of a frame that the client has sent, and of what comes behind it the payload, if all of that is here. It returns what
// comes after that.
func (u *unfinished) frame(b []byte) (rest []byte) {
	if isControl(u.in.kind()) {
		u.control++
	}
	u.padding, u.skip = 0, true
	u.watchOrder()
	here := u.in.left <= len(b)
	ends := u.in.has(http2.FlagDataEndStream) // that of HEADERS is the same
	switch kind := u.in.kind(); {
	case kind == http2.FrameRSTStream, kind == http2.FrameHeaders && ends, kind == http2.FrameData && ends && here:
		u.begins = false
		u.ended(u.in.stream())
		if kind == http2.FrameRSTStream {
			u.reset = append(u.reset, u.in.stream())
		}
	case kind == http2.FrameHeaders:
		u.begun = append(u.begun, u.in.stream())
		if u.begins = true; u.in.left > fewFields {
			u.addFields(u.in.stream(), int64(u.in.left))
		}
	case kind == http2.FrameContinuation && u.begins:
		u.addFields(u.in.stream(), int64(u.in.left))
	case kind != http2.FrameData, u.in.left == 0:
	case here && !u.in.has(http2.FlagDataPadded):
		kept := keptBytes(u.in.left)
		b, rest = u.in.take(b, u.in.left)
		u.add(u.in.stream(), kept, b)
		return rest
	default:
		u.skip = false
		if u.in.has(http2.FlagDataPadded) {
			u.padding = -1
		}
		u.add(u.in.stream(), keptBytes(u.in.left), nil)
	}
	return b
}

// watchOrder has the connection end if the client begins a stream twice, or says something of one that it has not begun (RFC 9113, section 5.1.1). gRPC
// answers some of these by a reset of the stream, and has it go on afterwards.
func (u *unfinished) watchOrder() {
	switch stream := u.in.stream(); u.in.kind() {
	case http2.FrameHeaders:
		u.calls++
		u.came = append(u.came, u.in.stream())
		u.broken = u.broken || stream <= u.last
		u.last = stream
	case http2.FrameData, http2.FrameRSTStream, http2.FrameWindowUpdate, http2.FrameContinuation:
		u.broken = u.broken || stream > u.last
	default: // it says nothing of streams, or is ignored
	}
}

// payload sees a part of a frame that the client has sent, and returns what comes after it.
func (u *unfinished) payload(b []byte) (rest []byte) {
	if u.skip {
		_, rest = u.in.take(b, len(b))
		return rest
	}
	if u.padding < 0 {
		var length []byte
		length, b = u.in.take(b, 1)
		u.padding = min(int(length[0]), u.in.left) // gRPC ends the connection if it is more
	}
	part, rest := u.in.take(b, max(0, u.in.left-u.padding))
	if u.in.left <= u.padding {
		_, rest = u.in.take(rest, u.in.left)
	}
	if u.in.left == 0 && u.in.has(http2.FlagDataEndStream) {
		u.ended(u.in.stream())
	} else if len(part) > 0 {
		u.add(u.in.stream(), 0, part)
	}
	return rest
}

// add adds what has arrived of the messages of a stream, and what gRPC keeps of a frame that begins with it.
func (u *unfinished) add(stream uint32, kept int64, part []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, isOpen := u.streams[stream]
	switch {
	case u.closed || !isOpen && !slices.Contains(u.begun, stream): // the node has ended the stream: gRPC drops what comes
		return
	case s == whole: // gRPC ends it
		return
	case s == nil:
		s = u.arrives(stream)
	}
	s.part += kept
	u.hold(kept)
	last := int64(0)
	for part = s.message.add(part); s.left() == 0; part = s.message.add(part) {
		last = s.n
		s.length += last
		s.message = message{}
	}
	if last == 0 {
		return
	}
	s.whole, s.part = s.whole+s.part, 0
	// A client may send no more than its window, and to the end of the message that the node waits for: the node has read what was before that.
	if most := StreamWindow + last; s.length > most {
		read := s.whole - s.whole*most/s.length
		s.whole, s.length = s.whole-read, most
		u.hold(-read)
	}
	if s.n > 0 || u.in.left > u.padding { // the frame has the beginning of another one, too
		s.part = keptBytes(int(s.n) + u.in.left)
		u.hold(s.part)
	}
}

// begin is called with mu held. It begins a stream, unless it has begun.
func (u *unfinished) begin(stream uint32) {
	if _, ok := u.streams[stream]; !ok {
		u.streams[stream] = nil
		u.open++
	}
}

// arrives is called with mu held. Something arrives of a stream whose client has not ended it.
func (u *unfinished) arrives(stream uint32) *arriving {
	u.begin(stream)
	s := new(arriving)
	u.streams[stream] = s
	u.some.Store(true)
	return s
}

// countCalls counts the streams that have begun in what was looked at, and not those that have been reset.
func (u *unfinished) countCalls() {
	if len(u.came) == 0 && len(u.reset) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, stream := range u.came {
		switch {
		case u.closed:
		case slices.Contains(u.begun, stream): // which is nearly always empty
			u.begin(stream)
		default:
			u.streams[stream] = whole
		}
	}
	u.drop(u.reset)
	u.count()
	u.begun, u.came, u.reset = u.begun[:0], u.came[:0], u.reset[:0]
}

// ended forgets a stream that its client has ended.
func (u *unfinished) ended(stream uint32) {
	if i := slices.Index(u.begun, stream); i >= 0 { // nearly always the first or the last one
		u.begun = append(u.begun[:i], u.begun[i+1:]...)
	}
	u.forget(stream)
}

// addFields adds a part of the header fields of a stream.
func (u *unfinished) addFields(stream uint32, block int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.streams[stream]
	switch {
	case u.closed || s == whole: // a client that begins a stream again has broken the protocol
		return
	case s == nil:
		s = u.arrives(stream)
	}
	before := s.fields()
	s.block += block
	u.hold(s.fields() - before)
}

// forget has a stream not count as open any more, nor what has arrived of it.
func (u *unfinished) forget(stream uint32) {
	if !u.some.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.streams[stream]; ok {
		u.shut(stream)
		u.streams[stream] = whole
		u.count()
	}
}

// shut is called with mu held. It has a stream, which has begun, not count as open any more.
func (u *unfinished) shut(stream uint32) {
	s := u.streams[stream]
	if s == whole {
		return
	}
	if s != nil {
		u.hold(-s.part - s.whole - s.fields())
	}
	u.open--
}

// drop is called with mu held. It forgets streams that one of both ends has ended.
func (u *unfinished) drop(streams []uint32) {
	for _, stream := range streams {
		if _, ok := u.streams[stream]; ok {
			u.shut(stream)
			delete(u.streams, stream)
		}
	}
}

// count is called with mu held. It has the node know how many streams there are.
func (u *unfinished) count() {
	u.budget.calls.change(u.counted.all, len(u.streams))
	u.budget.open.change(u.counted.open, u.open)
	u.counted.all, u.counted.open = len(u.streams), u.open
	u.some.Store(u.open > 0)
	if u.peak = max(u.peak, len(u.streams)); len(u.streams) == 0 && u.peak > manyStreams && !u.closed {
		u.streams, u.peak = make(map[uint32]*arriving), 0 // a map does not shrink
	}
}

// countEnded has streams not count any more that the node has ended.
func (u *unfinished) countEnded() {
	if len(u.over) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(u.over)
	u.count()
	u.over = u.over[:0]
}

// answered has the messages of a stream not count any more that have arrived whole.
func (u *unfinished) answered(stream uint32) {
	if !u.some.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if s := u.streams[stream]; s != nil && s.whole > 0 {
		u.hold(-s.whole)
		s.whole, s.length = 0, 0
	}
}

// hold is called with mu held. Only received has more held.
func (u *unfinished) hold(n int64) {
	if u.held == 0 && n > 0 {
		if u.now.IsZero() {
			u.now = time.Now()
		}
		u.since = u.now
	}
	u.held += n
	u.budget.used.Add(n)
}

// sent looks at bytes that the node has sent. Of a stream that it has ended it keeps nothing.
func (u *unfinished) sent(b []byte) {
	answered := int64(0)
	defer func() {
		u.charged.Add(-answered)
		u.countEnded()
	}()
	for len(b) > 0 {
		if u.out.left > 0 {
			var part []byte
			part, b = u.out.take(b, len(b))
			if u.out.kind() == http2.FrameRSTStream {
				u.resetBy(part)
			}
			continue
		}
		var whole bool
		if b, whole = u.out.next(b); !whole {
			return
		}
		switch kind := u.out.kind(); {
		case kind == http2.FrameHeaders && u.out.has(http2.FlagHeadersEndStream):
			answered++
			u.over = append(u.over, u.out.stream())
		case kind == http2.FrameRSTStream:
			u.over = append(u.over, u.out.stream())
		case kind == http2.FrameData:
			answered++ // a client may ping as often as it reads, and on a stream that is all
			u.answered(u.out.stream())
		}
	}
}

// resetBy sees a part of the error code of a RST_STREAM frame that the node sends.
func (u *unfinished) resetBy(part []byte) {
	for _, b := range part {
		u.code = u.code<<8 | uint32(b)
	}
	if u.out.left == 0 && http2.ErrCode(u.code) == http2.ErrCodeRefusedStream {
		u.charged.Add(1) // too many were under way
	}
}

// holds implements unfinishedHolder.
func (u *unfinished) holds() (int64, time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.held, u.since
}

// end implements unfinishedHolder.
func (u *unfinished) end() { u.stop() }

// close forgets all messages: the connection has ended.
func (u *unfinished) close() {
	u.budget.remove(u)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed, u.streams, u.open = true, nil, 0
	u.count()
	u.hold(-u.held)
}
