package wire

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"sync"

	"google.golang.org/grpc/encoding"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
)

// gRPC unpacks what clients compress with gzip (RFC 1952) as this says. A message must be one member, at whose end it says how long it is unpacked:
// so its memory is known before it is unpacked. gRPC's own gzip, which compresses answers, would unpack any number of members.
func init() {
	encoding.RegisterCompressor(&oneMember{
		Compressor: encoding.GetCompressor(grpcgzip.Name),
		unpacking:  make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
	})
}

// UnpackedSize returns how long a message is unpacked that ends with tail, in bytes. If that is untrue the message is refused.
func UnpackedSize(tail [4]byte) int64 { return int64(binary.LittleEndian.Uint32(tail[:])) }

var errMembers = errors.New("gzip: more follows after the end")

// oneMember unpacks messages of one member, a few at a time.
type oneMember struct {
	encoding.Compressor
	unpacking chan struct{} // has an entry for each message that is being unpacked
	readers   sync.Pool     // of *memberReader
}

// Decompress implements encoding.Compressor. gRPC closes the reader when it has the message.
func (c *oneMember) Decompress(r io.Reader) (io.Reader, error) {
	c.unpacking <- struct{}{}
	m, _ := c.readers.Get().(*memberReader)
	if m == nil {
		m = &memberReader{of: c}
	}
	var ok bool
	if m.packed, ok = r.(flate.Reader); !ok {
		m.packed = bufio.NewReader(r)
	}
	if err := m.Reset(m.packed); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.Multistream(false)
	return m, nil
}

// memberReader unpacks a message.
type memberReader struct {
	gzip.Reader
	packed flate.Reader
	of     *oneMember
}

// Read implements io.Reader.
func (m *memberReader) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		if _, end := m.packed.ReadByte(); !errors.Is(end, io.EOF) {
			return n, errMembers
		}
	}
	return n, err
}

// Close implements io.Closer.
func (m *memberReader) Close() error {
	m.packed = nil
	c := m.of
	c.readers.Put(m)
	<-c.unpacking
	return nil
}
