package hostile

import (
	"bytes"
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
	c := &rawConn{Conn: dial(t, address)}
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
	c.hpk.Reset()
	for _, f := range slices.Concat(callHeaders, extra) {
		_ = c.fill.WriteField(f) // into memory
	}
	return bytes.Clone(c.hpk.Bytes())
}

// discard reads what the node sends until it ends the connection.
func (c *rawConn) discard() { _, _ = io.Copy(io.Discard, c.Conn) }
