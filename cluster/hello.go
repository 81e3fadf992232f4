package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// A connection begins with two hellos. The node that connects says first who it is, and which node it
// means; then the other node says who it is. A node of another cluster, another id or an earlier
// incarnation than the one that is meant is a stranger: either end closes the connection before a
// frame was sent. A later incarnation is the same node, which was restarted.

// Identity says which process a node is.
type Identity struct {
	Cluster     uint64 // the fingerprint of its cluster
	ID          string
	Incarnation uint64 // 0: of one that is meant, any; of a node that is about to start, none yet
}

// isMeantBy reports whether a node that means the identity to is content with i.
func (i Identity) isMeantBy(to Identity) bool {
	return i.Cluster == to.Cluster && i.ID == to.ID && i.Incarnation >= to.Incarnation
}

// hello is what either end of a connection says first.
type hello struct {
	from  Identity
	to    Identity // of the node that is meant; Cluster is from's
	clock int64    // by which from decides, in Unix nanoseconds, as it says hello; 0 if it does not say

	revision uint8 // up to which from reads connVersion; 0 if it does not say
}

const maxHello = 1 << 10 // bytes behind the preface and the length

var errBadHello = errors.New("hello is damaged")

// appendTo encodes h: the preface, the length of the rest in two bytes, the cluster and both incarnations
// in eight bytes each, both ids behind their lengths in one byte, the clock in eight bytes, and the revision in one. Earlier
// versions end before the clock or the revision. More may follow in later versions, and is ignored. All is little-endian.
func (h hello) appendTo(b []byte) ([]byte, error) {
	if len(h.from.ID) > 255 || len(h.to.ID) > 255 {
		return nil, fmt.Errorf("hello: ids %q and %q are not below 256 bytes", h.from.ID, h.to.ID)
	}
	b = append(b, connPreface...)
	b = binary.LittleEndian.AppendUint16(b, uint16(4*8+2+len(h.from.ID)+len(h.to.ID)+1))
	b = binary.LittleEndian.AppendUint64(b, h.from.Cluster)
	b = binary.LittleEndian.AppendUint64(b, h.from.Incarnation)
	b = binary.LittleEndian.AppendUint64(b, h.to.Incarnation)
	b = append(append(b, byte(len(h.from.ID))), h.from.ID...)
	b = append(append(b, byte(len(h.to.ID))), h.to.ID...)
	return append(binary.LittleEndian.AppendUint64(b, uint64(h.clock)), h.revision), nil
}

// readHello reads what follows the preface.
func readHello(r io.Reader) (h hello, err error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return h, err
	}
	n := binary.LittleEndian.Uint16(size[:])
	if n > maxHello {
		return h, fmt.Errorf("hello of %d bytes is above %d", n, maxHello)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return h, err
	}
	if len(b) < 3*8+1 {
		return h, errBadHello
	}
	h.from.Cluster = binary.LittleEndian.Uint64(b)
	h.to.Cluster = h.from.Cluster
	h.from.Incarnation = binary.LittleEndian.Uint64(b[8:])
	h.to.Incarnation = binary.LittleEndian.Uint64(b[16:])
	b = b[24:]
	for _, id := range []*string{&h.from.ID, &h.to.ID} {
		if len(b) == 0 || len(b) <= int(b[0]) {
			return h, errBadHello
		}
		end := 1 + int(b[0])
		*id, b = string(b[1:end]), b[end:]
	}
	if len(b) >= 8 {
		h.clock = int64(binary.LittleEndian.Uint64(b))
	}
	if len(b) > 8 {
		h.revision = b[8]
	}
	return h, nil
}

func writeHello(w io.Writer, h hello) error {
	b, err := h.appendTo(nil)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// maxVersionDigits bounds the version in a preface.
const maxVersionDigits = 6

// readPreface reads what a connection begins with. The error is a connVersionError if the other node speaks another version.
func readPreface(r io.Reader) error {
	begin := make([]byte, len(connPreface), len(connMark)+maxVersionDigits+1)
	if _, err := io.ReadFull(r, begin); err != nil {
		return err
	}
	for begin[len(begin)-1] != '\n' && len(begin) < cap(begin) && bytes.HasPrefix(begin, []byte(connMark)) {
		begin = begin[:len(begin)+1]
		if _, err := io.ReadFull(r, begin[len(begin)-1:]); err != nil {
			return err
		}
	}
	if string(begin) == connPreface {
		return nil
	}
	digits, ofNode := bytes.CutPrefix(begin[:len(begin)-1], []byte(connMark))
	version, err := strconv.ParseUint(string(digits), 10, 32)
	if !ofNode || err != nil || begin[len(begin)-1] != '\n' {
		return fmt.Errorf("connection begins with %q", begin)
	}
	return connVersionError{version}
}

// Dialer opens a connection to a member, if the node that answers at its address is that member.
type Dialer func(ctx context.Context, to Member) (net.Conn, error)

// GreetingDialer returns the Dialer that connects by connect, and says hello in the name of g.
func GreetingDialer(connect func(ctx context.Context, address string) (net.Conn, error), g *Greeter) Dialer {
	return func(ctx context.Context, to Member) (net.Conn, error) {
		conn, answer, err := g.greet(ctx, connect, to)
		if err != nil {
			return nil, err
		}
		return &greetedConn{conn, answer}, nil
	}
}

// greetedConn is a connection to a node that has said hello. Two of them are compared by their addresses.
type greetedConn struct {
	net.Conn
	introduction
}

// introduction is what a node says of itself in its hello.
type introduction struct {
	ahead       time.Duration // by how much its clock is ahead
	revision    uint8         // up to which it reads connVersion
	incarnation uint64        // 0 if no registry has counted it
}

// greet connects to a member and says hello. It closes the connection and returns an error if another
// node than the member answers. It returns what the member says of itself.
func (g *Greeter) greet(ctx context.Context, connect func(ctx context.Context, address string) (net.Conn, error), to Member) (conn net.Conn, answer introduction, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if conn, err = connect(ctx, to.Address); err != nil {
		return nil, answer, err
	}
	answer, err = g.exchange(ctx, conn, to)
	if err != nil {
		return nil, answer, errors.Join(err, conn.Close())
	}
	return conn, answer, nil
}

// Knock connects to a member and hangs up. The error is nil if that member answers at its address. It returns by how much that member's clock is
// ahead of this node's at least, negative if it is behind, and 0 if it does not say.
func (g *Greeter) Knock(ctx context.Context, connect func(ctx context.Context, address string) (net.Conn, error), to Member) (ahead time.Duration, err error) {
	conn, answer, err := g.greet(ctx, connect, to)
	if err == nil {
		_ = conn.Close() // nothing was asked
	}
	return answer.ahead, err
}

// exchange says hello to the node at the other end of conn, and returns what that says of itself.
func (g *Greeter) exchange(ctx context.Context, conn net.Conn, to Member) (said introduction, err error) {
	ended := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // nothing waits for the other node any more
	self := g.Self()
	meant := Identity{Cluster: self.Cluster, ID: to.ID, Incarnation: to.Incarnation}
	asked := g.now()
	if err := writeHello(conn, hello{from: self, to: meant, clock: asked, revision: connRevision}); err != nil {
		return said, err
	}
	if err := readPreface(conn); err != nil {
		if version, ok := errors.AsType[connVersionError](err); ok {
			s := stranger{who: Identity{Cluster: self.Cluster, ID: to.ID}, address: to.Address, version: version}
			g.note(s)
			return said, s.error(self)
		}
		return said, err
	}
	answer, err := readHello(conn)
	if err != nil {
		return said, err
	}
	if !ended() {
		return said, ctx.Err()
	}
	if err := checkConn(conn, answer.from); err != nil {
		return said, err
	}
	if !answer.from.isMeantBy(meant) {
		s := stranger{who: answer.from, instead: meant, address: to.Address}
		g.note(s)
		return said, s.error(self)
	}
	said = introduction{aheadOf(answer.clock, asked, g.now()), answer.revision, answer.from.Incarnation}
	if said.incarnation >= uncounted {
		said.incarnation = 0
	}
	return said, nil
}

// refuseVersion refuses a node that speaks another version, and says this node's: the other one names it then, too.
func (g *Greeter) refuseVersion(conn net.Conn, version connVersionError) error {
	if _, err := io.WriteString(conn, connPreface); err != nil {
		return err
	}
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	s := stranger{who: Identity{Cluster: g.Self().Cluster}, address: address, version: version}
	g.note(s)
	return s.error(g.Self())
}

// answer reads a hello, of which the preface was read, and says hello in turn. The error says why the connection ends.
func (g *Greeter) answer(conn net.Conn) error {
	h, err := readHello(conn)
	if err != nil {
		return err
	}
	if err := checkConn(conn, h.from); err != nil {
		return err
	}
	self := g.Self()
	if err := writeHello(conn, hello{from: self, to: h.from, clock: g.now(), revision: connRevision}); err != nil {
		return err
	}
	return g.admit(h.from, h.to)
}

// admit refuses a node of another cluster, or one that means another node than this one.
func (g *Greeter) admit(from, meant Identity) error {
	self := g.Self()
	if from.Cluster == self.Cluster && self.isMeantBy(meant) {
		return nil
	}
	s := stranger{who: from, instead: meant}
	g.note(s)
	return s.error(self)
}
