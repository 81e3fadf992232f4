package api

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
)

// A connection may be controlled often for a moment, and then 5000 times a second; calls, messages and windows do not count.
func TestControlIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p controlPace
		took := func(frames, turns int) time.Duration {
			begin := time.Now()
			for range turns {
				p.wait(frames)
			}
			return time.Since(begin)
		}
		if got := took(100, controlBurst/100); got != 0 {
			t.Errorf("a burst waits for %v", got)
		}
		if got := took(100, 200); got != 100*200*time.Second/controlRate {
			t.Errorf("%d more wait for %v", 100*200, got)
		}
		time.Sleep(time.Second / 2) // in a bubble
		if got := took(100, controlBurst/2/100); got != 0 {
			t.Errorf("half a burst after half its time waits for %v", got)
		}
		if got := took(100*controlRate, 1); got != maxControlWait {
			t.Errorf("very many wait for %v, want %v", got, maxControlWait)
		}
	})
}

// A call that is refused as too many are under way counts as control, however its reset is cut. Other resets by the node do not.
func TestRefusedCallsAreCounted(t *testing.T) {
	for _, size := range []int{1, 2, 5, 1 << 10} { // of what is written at once
		u, out := newUnfinished(newUnfinishedBudget(prometheus.NewRegistry()), func() {}), newH2("")
		mustWrite(t, out.WriteSettings(), out.WriteRSTStream(1, http2.ErrCodeNo), out.WriteRSTStream(3, http2.ErrCodeRefusedStream), out.WriteData(5, false, []byte{0, 0, 0, 7}),
			out.WriteRSTStream(5, http2.ErrCodeCancel), out.WriteRSTStream(7, http2.ErrCodeRefusedStream))
		for part := range slices.Chunk(out.take(), size) {
			u.sent(part)
		}
		if got := u.refused.Load(); got != 2 {
			t.Errorf("%d at once: %d calls are refused, want 2", size, got)
		}
		u.close()
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
