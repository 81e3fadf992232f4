package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// bound is a row of the table "Between nodes" in docs/reference/bounds.md.
type bound struct {
	what, most string
	size       int
	keeps      func(t *testing.T, s *Server, n int) bool // whether a connection goes on after n of what it is about
}

var bounds = []bound{
	{"Bytes by which a node says who it is", "1,024", maxHello, func(t *testing.T, s *Server, n int) bool {
		begin := greeting(t, "b", 1)
		said := []byte(begin + strings.Repeat("\x00", n-(len(begin)-len(connPreface)-2))) // what later versions add is ignored
		binary.LittleEndian.PutUint16(said[len(connPreface):], uint16(n))
		conn, _, err := handshake(s, string(said))
		defer func() { _ = conn.Close() }()
		return errors.Is(err, credentials.ErrConnDispatched) && answers(t, conn, appendTakes(newFrame(nil), opPing, pingID, nil))
	}},
	{"Bytes of a frame", "262,144", maxFrame, func(t *testing.T, s *Server, n int) bool {
		return answers(t, open(t, s), longFrame(lengthSize+n))
	}},
	{"Limits in one request of a frame", "1,024", maxTakes, func(t *testing.T, s *Server, n int) bool {
		return answers(t, open(t, s), appendTakes(newFrame(nil), opDecide, 1, slices.Repeat([]shard.Take{take(ring.Key{}, 10, 1)}, n)))
	}},
	{"Connections of other nodes to one node", "4,096", maxAccepted, func(t *testing.T, s *Server, n int) bool {
		var last net.Conn
		for range n {
			var err error
			last, _, err = handshake(s, greeting(t, "b", 1))
			if !errors.Is(err, credentials.ErrConnDispatched) {
				_ = last.Close()
				return false
			}
		}
		return answers(t, last, appendTakes(newFrame(nil), opPing, pingID, nil))
	}},
}

// longFrame returns a frame of n bytes, with its length: pings, and a take of the size that is left over.
func longFrame(n int) []byte {
	frame := newFrame(nil)
	ping := len(appendTakes(nil, opPing, pingID, nil))
	for take := take(ring.Key{}, 10, 1); (n-len(frame))%ping != 0; take.Limit.Limit <<= 7 {
		one := appendTakes(nil, opDecide, 1, []shard.Take{take})
		if (n-len(frame)-len(one))%ping == 0 {
			frame = append(frame, one...)
		}
	}
	for len(frame) < n {
		frame = appendTakes(frame, opPing, pingID, nil)
	}
	return frame
}

// answers reports whether a frame is answered, which it is unless the connection ends.
func answers(t *testing.T, conn net.Conn, frame []byte) bool {
	t.Helper()
	go func() { _ = writeFrame(conn, frame) }() // the server may end the connection before it has read all
	frames := newFrameReader(conn, maxAnswers)
	_, err := frames.next()
	return err == nil
}

// A node takes from another one what docs/reference/bounds.md says, and ends the connection at one more.
func TestDocumentedBounds(t *testing.T) {
	doc, err := os.ReadFile("../docs/reference/bounds.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| Between nodes | At most | One more |\n| --- | --- | --- |\n"
	for _, b := range bounds {
		table += fmt.Sprintf("| %s | %s | ends the connection |\n", b.what, b.most)
		for _, n := range []int{b.size, b.size + 1} {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(&countingLocal{}, newLoneRouter(), newTestGreeter("b", 1))
				defer s.Close()
				if b.keeps(t, s, n) != (n == b.size) {
					t.Errorf("%s: %d", b.what, n)
				}
			})
		}
		if got := strings.ReplaceAll(b.most, ",", ""); got != fmt.Sprint(b.size) {
			t.Errorf("%s: %s in the table, %d in the code", b.what, b.most, b.size)
		}
	}
	if !strings.Contains(string(doc), table) {
		t.Errorf("docs/reference/bounds.md has not this table:\n%s", table)
	}
}
