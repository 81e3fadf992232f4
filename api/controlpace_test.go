package api

import (
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// A connection may be controlled often for a moment, and then 1000 times a second beyond one for each frame of an answer. If others are late, too, it
// may be so less often. If it is late for long, it is closed.
func TestControlIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlPace{late: new(atomic.Int64)}
		took := func(frames, turns int) time.Duration {
			t.Helper()
			begin := time.Now()
			for range turns {
				if !p.wait(frames) {
					t.Error("the connection is closed")
				}
			}
			return time.Since(begin)
		}
		if p.isLate() {
			t.Error("it is late at first")
		}
		if got := took(100, controlBurst/100); got != 0 {
			t.Errorf("a burst waits for %v", got)
		}
		if got := took(100, 50); got != 100*50*time.Second/controlRate {
			t.Errorf("%d more wait for %v", 100*50, got)
		}
		time.Sleep(controlBurst * time.Second / controlRate / 2) // in a bubble
		if got := took(100, controlBurst/2/100); got != 0 {
			t.Errorf("half a burst after half its time waits for %v", got)
		}
		if got := took(100*controlRate, 1); got != maxControlWait {
			t.Errorf("very many wait for %v, want %v", got, maxControlWait)
		}
		if !p.isLate() {
			t.Error("it is not late after very many")
		}
		took(-1, 2*controlBurst)
		if got := took(1, 2*controlBurst); got != 0 {
			t.Errorf("as many as were answered wait for %v", got)
		}
		if got := took(100, 1); got != 100*time.Second/controlRate {
			t.Errorf("100 that no answer pays for wait for %v", got)
		}
		took(-2*maxPaid, 1)
		if got := took(maxPaid+100, 1); got != 100*time.Second/controlRate {
			t.Errorf("100 that are more than answers pay for wait for %v", got)
		}
		time.Sleep(2 * controlBurst * time.Second / controlRate) // in a bubble
		if p.isLate() {
			t.Error("it is late after a rest")
		}
		p.late.Add(3 * fewLate)
		took(controlBurst/4, 1)
		if got := took(100, 1); got != 4*100*time.Second/controlRate {
			t.Errorf("100 wait for %v while %d others do", got, 3*fewLate)
		}
	})
}

// A connection that is late all the time is closed after maxLate, and one that has a rest in between is not.
func TestLateConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, begin := controlPace{late: new(atomic.Int64)}, time.Now()
		for p.wait(controlRate/10) && time.Since(begin) < 2*maxLate {
			time.Sleep(time.Millisecond) // in a bubble
		}
		if got, want := time.Since(begin), maxLate+controlBurst*time.Second/controlRate; got < maxLate || got > want {
			t.Errorf("it is closed after %v, want %v to %v", got, maxLate, want)
		}
		p = controlPace{late: new(atomic.Int64)}
		for range 10 {
			for begin := time.Now(); time.Since(begin) < maxLate/2; {
				if !p.wait(controlRate / 10) {
					t.Fatal("one that has a rest is closed")
				}
			}
			time.Sleep(2 * controlBurst * time.Second / controlRate) // in a bubble
		}
	})
}

// repeater is a connection whose client sends the same bytes again and again.
type repeater struct {
	net.Conn
	sent []byte
	next int // index of what is read next
}

func (e *repeater) Read(b []byte) (n int, err error) {
	for n < len(b) {
		part := copy(b[n:], e.sent[e.next:])
		e.next = (e.next + part) % len(e.sent)
		n += part
	}
	return n, nil
}

// A connection on which only control comes, or whose calls are charged, is read as often as controlPace has it, and closed then.
func TestControlOfAConnectionIsPaced(t *testing.T) {
	pings, windows := newH2(""), newH2("")
	mustWrite(t, pings.WritePing(false, [8]byte{}))
	mustWrite(t, windows.WriteWindowUpdate(0, 1))
	for name, tc := range map[string]struct {
		sent    []byte
		charged int64 // for each frame
	}{
		"control": {pings.take(), 0},
		"charged": {windows.take(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				unread, begin := newUnreadBudget(prometheus.NewRegistry()), time.Now()
				m := newMeteredConn(&repeater{sent: tc.sent}, unread, newUnfinishedBudget(prometheus.NewRegistry()))
				m.unfinished.in.left = 0 // the preface has come
				frames := 0
				for b := make([]byte, 1<<15); ; {
					n, err := m.Read(b)
					if err != nil {
						break
					}
					frames += n / len(tc.sent)
					m.unfinished.charged.Add(tc.charged * int64(n/len(tc.sent)))
					if time.Since(begin) > 2*maxLate {
						t.Fatalf("%d frames are read in %v", frames, time.Since(begin))
					}
				}
				if most := controlBurst + 12*controlRate; frames < 9*controlRate || frames > most {
					t.Errorf("%d frames are read, want %d at most", frames, most)
				}
				if got := testutil.ToFloat64(unread.slow); got != 1 || unread.late.Load() != 0 {
					t.Errorf("%v connections are counted as late for long, %d as late, want 1 and none", got, unread.late.Load())
				}
			})
		})
	}
}

// After many calls in one piece a connection is read in small pieces until few come.
func TestManyCallsAreReadInTurns(t *testing.T) {
	unread, out := newUnreadBudget(prometheus.NewRegistry()), newH2("")
	mustWrite(t, out.WriteWindowUpdate(0, 1))
	e := &repeater{sent: out.take()}
	m := newMeteredConn(e, unread, newUnfinishedBudget(prometheus.NewRegistry()))
	m.unfinished.in.left = 0 // the preface has come
	read := func() int {
		n, err := m.Read(make([]byte, 2*mostRead))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for read() < mostRead { //nolint:revive // until pieces are large
	}
	m.unfinished.calls = manyCalls + 1
	if got := read(); got != littleRead {
		t.Errorf("%d bytes are read after many calls", got)
	}
	if got := read(); got != 2*littleRead {
		t.Errorf("%d bytes are read after none", got)
	}
	in, u := newH2(http2.ClientPreface), newUnfinished(newUnfinishedBudget(prometheus.NewRegistry()), func() {})
	mustWrite(t, in.begin(1), in.begin(3))
	if u.received(in.take()); u.calls != 2 {
		t.Errorf("%d calls are counted, want 2", u.calls)
	}
}

// A call that is refused as too many are under way counts as control, however its reset is cut. Other resets by the node do not. Each frame of an answer pays for one.
func TestRefusedCallsAreCounted(t *testing.T) {
	for _, size := range []int{1, 2, 5, 1 << 10} { // of what is written at once
		u, out := newUnfinished(newUnfinishedBudget(prometheus.NewRegistry()), func() {}), newH2("")
		mustWrite(t, out.WriteSettings(), out.WriteRSTStream(1, http2.ErrCodeNo), out.WriteRSTStream(3, http2.ErrCodeRefusedStream), out.WritePing(true, [8]byte{0, 0, 0, 7}),
			out.WriteRSTStream(5, http2.ErrCodeCancel), out.WriteRSTStream(7, http2.ErrCodeRefusedStream))
		for part := range slices.Chunk(out.take(), size) {
			u.sent(part)
		}
		if got := u.charged.Load(); got != 2 {
			t.Errorf("%d at once: %d calls are refused, want 2", size, got)
		}
		mustWrite(t, out.WriteHeaders(http2.HeadersFrameParam{StreamID: 9, EndHeaders: true}), out.WriteData(9, false, lengthPrefixed(10)),
			out.WriteHeaders(http2.HeadersFrameParam{StreamID: 9, EndHeaders: true, EndStream: true}))
		for part := range slices.Chunk(out.take(), size) {
			u.sent(part)
		}
		if got := u.charged.Load(); got != 0 {
			t.Errorf("%d at once: %d frames are charged once a call was answered, want none", size, got)
		}
		u.close()
	}
}

// A client of gRPC asks by a ping how long messages take whenever one has come, unless it has asked already: none of these pings make its connection late.
func TestPingsForMessagesAreNotPaced(t *testing.T) {
	f := newFixture(t, checkRules)
	stream, err := weirv1.NewRateLimiterClient(f.dial(t)).StreamRateLimits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range controlBurst * 3 / 2 {
		if err := stream.Send(&weirv1.StreamRateLimitsRequest{Requests: []*weirv1.RateLimitRequest{request("user=alice")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	f.unread.mu.Lock()
	conns := slices.Collect(maps.Keys(f.unread.conns))
	f.unread.mu.Unlock()
	f.grpc.Stop() // nothing is read any more
	if len(conns) != 1 || conns[0].pace.isLate() {
		t.Errorf("of %d connections one is late", len(conns))
	}
}

// Frames that control a connection are counted, and no others.
func TestControlIsCounted(t *testing.T) {
	u, in := newUnfinished(newUnfinishedBudget(prometheus.NewRegistry()), func() {}), newH2(http2.ClientPreface)
	defer u.close()
	mustWrite(t, in.WriteSettings(), in.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true}), in.WriteData(1, false, lengthPrefixed(10)),
		in.WriteWindowUpdate(0, 10), in.WriteContinuation(1, true, nil), in.WriteData(1, true, nil))
	u.received(in.take())
	if u.control != 1 {
		t.Errorf("%d frames control the connection, want 1: the settings", u.control)
	}
	mustWrite(t, in.WritePing(false, [8]byte{}), in.WriteRSTStream(3, http2.ErrCodeCancel), in.WritePriority(3, http2.PriorityParam{}), in.WriteSettingsAck(), in.WriteRawFrame(0xbe, 0, 0, nil))
	u.received(in.take())
	if u.control != 6 {
		t.Errorf("%d frames control the connection, want 6", u.control)
	}
}
