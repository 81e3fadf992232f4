package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // compresses answers to clients that compress
)

// Gunzip returns the option of a server that unpacks what clients compress with gzip (RFC 1952), to most bytes at most. A message must be one
// member, at whose end it says how long it is unpacked: so its memory is known before it is unpacked, and is all that it takes.
func Gunzip(most int64) grpc.ServerOption {
	// The alternative to what is deprecated is a registry of the whole process, which is also that of who embeds a node's API.
	return grpc.RPCDecompressor(newOneMember(most, runtime.GOMAXPROCS(0))) //nolint:staticcheck // see above
}

// UnpackedSize returns how long a message is unpacked that ends with tail, in bytes. If that is untrue the message is refused.
func UnpackedSize(tail [4]byte) int64 { return int64(binary.LittleEndian.Uint32(tail[:])) }

// minPacked is the length of a header and an end.
const minPacked = 10 + 8

var errMembers = errors.New("gzip: more follows after the end")

// oneMember unpacks messages of one member, a few at a time.
type oneMember struct {
	most      int64
	tooLong   []byte        // of most+1 bytes, by which gRPC sees that a message is too long; nothing reads it
	unpacking chan struct{} // has an entry for each message that is being unpacked
	readers   sync.Pool     // of *gzip.Reader
}

func newOneMember(most int64, atOnce int) *oneMember {
	return &oneMember{most: most, tooLong: make([]byte, most+1), unpacking: make(chan struct{}, atOnce)}
}

// Type implements grpc.Decompressor.
func (c *oneMember) Type() string { return "gzip" }

// Do implements grpc.Decompressor.
func (c *oneMember) Do(r io.Reader) ([]byte, error) {
	packed, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if len(packed) < minPacked {
		return nil, fmt.Errorf("gzip: %d bytes are no message", len(packed))
	}
	size := UnpackedSize([4]byte(packed[len(packed)-4:]))
	if size > c.most {
		return c.tooLong, nil
	}
	c.unpacking <- struct{}{}
	defer func() { <-c.unpacking }()
	z, _ := c.readers.Get().(*gzip.Reader)
	if z == nil {
		z = new(gzip.Reader)
	}
	defer c.readers.Put(z)
	return unpack(z, packed, size)
}

// unpack returns the content of packed, which has that size.
func unpack(z *gzip.Reader, packed []byte, size int64) ([]byte, error) {
	rest := bytes.NewReader(packed)
	if err := z.Reset(rest); err != nil {
		return nil, err
	}
	z.Multistream(false)
	out := make([]byte, size)
	if _, err := io.ReadFull(z, out); err != nil {
		return nil, err
	}
	var more [1]byte
	switch n, err := io.ReadFull(z, more[:]); { // the end, which says whether all is true
	case n > 0:
		return nil, gzip.ErrChecksum
	case !errors.Is(err, io.EOF):
		return nil, err
	case rest.Len() > 0:
		return nil, errMembers
	}
	return out, nil
}
