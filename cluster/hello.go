package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
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

	minorVersion uint8 // up to which from reads what was added to connVersion; 0 if it does not say
}

const maxHello = 1 << 10 // bytes behind the preface and the length

var errBadHello = errors.New("hello is damaged")

// appendTo encodes h: the preface, the length of the rest in two bytes, the cluster and both incarnations
// in eight bytes each, both ids behind their lengths in one byte, the clock in eight bytes, and the minor version in one. Earlier
// versions end before the clock or the minor version. More may follow in later versions, and is ignored. All is little-endian.
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
	return append(binary.LittleEndian.AppendUint64(b, uint64(h.clock)), h.minorVersion), nil
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
		h.minorVersion = b[8]
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
