package cluster

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// Frames of all sizes arrive whole, however they are cut on the way.
func TestFramesOfAllSizes(t *testing.T) {
	here, there := net.Pipe()
	var sent []string
	for _, n := range []int{0, 1, 100, connBuffer/2 - 1, connBuffer / 2, connBuffer, connBuffer + 1, 3, maxFrame - 1, 7} {
		sent = append(sent, strings.Repeat(string(rune('a'+len(sent))), n))
	}
	go func() {
		for i, text := range sent {
			frame := append(newFrame(nil), text...)
			if i%2 == 0 {
				_ = writeFrame(there, frame)
				continue
			}
			binary.LittleEndian.PutUint32(frame, uint32(len(frame)-lengthSize))
			for _, b := range frame {
				_, _ = there.Write([]byte{b})
			}
		}
		_ = there.Close()
	}()
	frames := newFrameReader(here, maxFrame)
	for i, want := range sent {
		frame, err := frames.next()
		if err != nil || frame[0] != connVersion || string(frame[1:]) != want {
			t.Fatalf("frame %d: %d bytes, %v, want %d", i, len(frame)-1, err, len(want))
		}
	}
	if _, err := frames.next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}
