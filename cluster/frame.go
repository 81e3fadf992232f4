package cluster

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// A connection is one TCP connection between two nodes. It comes in on the port that
// serves gRPC, where its first bytes tell it apart: no HTTP/2 connection begins
// with them. Both sides say who they are (hello.go), and then send frames, each behind its length in four bytes,
// little-endian; codec.go says what is in a frame. (ADR 8 says why it is not gRPC.)
const connPreface = connMark + "4\n" // connVersion

// connMark is what a preface of any version begins with.
const connMark = "weir-peer/"

// Bounds of connections.
const (
	maxAccepted    = 4 << 10 // that others have opened to one node
	connectTimeout = time.Second
	connBuffer     = 16 << 10         // bytes read at once
	connIdle       = 10 * time.Second // a connection on which nothing came for so long is given up; conns ping far more often
	lengthSize     = 4                // bytes before a frame
)

// newFrame begins a frame, with room for its length.
func newFrame(b []byte) []byte { return append(b[:0], 0, 0, 0, 0, connVersion) }

// writeFrame sends a frame that newFrame has begun.
func writeFrame(conn net.Conn, frame []byte) error {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-lengthSize))
	_, err := conn.Write(frame)
	return err
}

// frameReader reads frames.
type frameReader struct {
	r     *bufio.Reader
	most  int // bytes of one
	frame []byte
}

func newFrameReader(conn net.Conn, most int) frameReader {
	return frameReader{r: bufio.NewReaderSize(conn, connBuffer), most: most}
}

// next returns the next frame, which is valid until the next call.
func (f *frameReader) next() ([]byte, error) {
	head, err := f.r.Peek(lengthSize)
	if err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(head))
	if n > f.most {
		return nil, fmt.Errorf("frame of %d bytes is above %d", n, f.most)
	}
	if _, err := f.r.Discard(lengthSize); err != nil {
		return nil, err
	}
	if n <= connBuffer/2 { // most are, and need not be copied
		frame, err := f.r.Peek(n)
		if err != nil {
			return nil, err
		}
		_, err = f.r.Discard(n)
		return frame, err
	}
	if cap(f.frame) < n {
		f.frame = make([]byte, n)
	}
	f.frame = f.frame[:n]
	_, err = io.ReadFull(f.r, f.frame)
	return f.frame, err
}
