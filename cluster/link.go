package cluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A link is one TCP connection between two nodes. It comes in on the port that
// serves gRPC, where its first bytes tell it apart: no HTTP/2 connection begins
// with them. Then both sides send frames, each behind its length in four bytes,
// little-endian; wire.go says what is in a frame. (ADR 8 says why it is not gRPC.)
const linkPreface = "weir-peer/1\n"

// Bounds of links.
const (
	maxLinks       = 4 << 10 // that others have opened to one node
	connectTimeout = time.Second
	linkBuffer     = 16 << 10         // bytes read at once
	linkIdle       = 10 * time.Second // a link on which nothing came for so long is given up; lanes ping far more often
	lengthSize     = 4                // bytes before a frame
)

// Dialer opens a link to a peer, its preface sent.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// Links returns the Dialer that connects by connect.
func Links(connect func(ctx context.Context, address string) (net.Conn, error)) Dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		conn, err := connect(ctx, address)
		if err != nil {
			return nil, err
		}
		return conn, sendPreface(conn)
	}
}

// sendPreface closes the connection if it fails.
func sendPreface(conn net.Conn) error {
	if _, err := io.WriteString(conn, linkPreface); err != nil {
		return errors.Join(err, conn.Close())
	}
	return nil
}

// newFrame begins a frame, with room for its length.
func newFrame(b []byte) []byte { return append(b[:0], 0, 0, 0, 0, wireVersion) }

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
	return frameReader{r: bufio.NewReaderSize(conn, linkBuffer), most: most}
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
	if n <= linkBuffer/2 { // most are, and need not be copied
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
