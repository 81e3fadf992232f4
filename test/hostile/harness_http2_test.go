package hostile

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// rawConn is a connection by HTTP/2 that sends what a client must not.
type rawConn struct {
	net.Conn
	*http2.Framer
	out  bytes.Buffer // frames that are not sent yet
	hpk  bytes.Buffer
	fill *hpack.Encoder
}

// dialHTTP2 connects to a gRPC port and begins HTTP/2, with these settings.
func dialHTTP2(t *testing.T, address string, settings ...http2.Setting) *rawConn {
	t.Helper()
	return dialHTTP2By(t, address, nil, settings...)
}

// dialHTTP2By is dialHTTP2 by TLS, unless config is nil.
func dialHTTP2By(t *testing.T, address string, config *tls.Config, settings ...http2.Setting) *rawConn {
	t.Helper()
	c := &rawConn{Conn: dial(t, address)}
	if config != nil {
		config.ServerName, _, _ = net.SplitHostPort(address)
		c.Conn = tls.Client(c.Conn, config)
	}
	c.Framer = http2.NewFramer(&c.out, c.Conn)
	c.fill = hpack.NewEncoder(&c.hpk)
	c.out.WriteString(http2.ClientPreface)
	c.must(t, c.WriteSettings(settings...))
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	return c
}

// clientHello is what a connection to a gRPC port begins with.
func clientHello() string {
	var hello bytes.Buffer
	hello.WriteString(http2.ClientPreface)
	_ = http2.NewFramer(&hello, nil).WriteSettings() // into memory
	return hello.String()
}

func (c *rawConn) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// flush sends what was written.
func (c *rawConn) flush() error {
	_, err := c.out.WriteTo(c.Conn)
	return err
}

// send sends what more writes.
func (c *rawConn) send(more func(c *rawConn, turn uint32) error, turn uint32) error {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	if err := more(c, turn); err != nil {
		return err
	}
	return c.flush()
}

// callHeaders are the header fields of a call of a check, and checkMessage is its message: in a domain of its own, as each domain
// has its part of a node's time.
var (
	callHeaders = []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/weir.v1.RateLimiter/CheckRateLimit"},
		{Name: ":authority", Value: "localhost"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}
	checkMessage = lengthPrefixed(&weirv1.RateLimitRequest{Domain: "attacker", IdentifierType: "user", Identifier: "alice"})
)

// lengthPrefixed returns a message as gRPC sends it.
func lengthPrefixed(m proto.Message) []byte {
	b, _ := proto.Marshal(m) // of texts that are UTF-8
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// headers returns the header of a call of a check.
func (c *rawConn) headers(extra ...hpack.HeaderField) []byte {
	return c.encode(slices.Concat(callHeaders, extra))
}

// encode returns header fields as HTTP/2 sends them.
func (c *rawConn) encode(fields []hpack.HeaderField) []byte {
	c.hpk.Reset()
	for _, f := range fields {
		_ = c.fill.WriteField(f) // into memory
	}
	return bytes.Clone(c.hpk.Bytes())
}

// writeHeaders begins the first call of the connection with a block of header fields, in several frames if it is long.
func (c *rawConn) writeHeaders(block []byte, endsCall bool) error {
	first := block[:min(len(block), 16<<10)]
	rest := block[len(first):]
	err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first, EndHeaders: len(rest) == 0, EndStream: endsCall})
	for err == nil && len(rest) > 0 {
		part := rest[:min(len(rest), 16<<10)]
		rest = rest[len(part):]
		err = c.WriteContinuation(1, len(rest) == 0, part)
	}
	return err
}

// discard reads what the node sends until it ends the connection.
func (c *rawConn) discard() { _, _ = io.Copy(io.Discard, c.Conn) }
