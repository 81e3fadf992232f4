package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// others are versions of the protocol between nodes, and what a node with this one says of them.
var others = map[int]string{
	connVersion - 1:  fmt.Sprintf("speaks version %d of the protocol between nodes, and this node version %d: install the newer version of weir on that node", connVersion-1, connVersion),
	connVersion + 1:  fmt.Sprintf("speaks version %d of the protocol between nodes, and this node version %d: install the newer version of weir on this node", connVersion+1, connVersion),
	connVersion + 98: fmt.Sprintf("speaks version %d of the protocol between nodes, and this node version %d: install the newer version of weir on this node", connVersion+98, connVersion),
}

func TestPrefaceHasTheVersion(t *testing.T) {
	if want := fmt.Sprintf("%s%d\n", connMark, connVersion); connPreface != want {
		t.Errorf("%q, want %q", connPreface, want)
	}
}

// A node refuses connections of nodes that speak another version, says its own, and names them. So does a node that has connected.
func TestOtherVersionOfAConn(t *testing.T) {
	for version, want := range others {
		g := newTestGreeter("b", 1)
		s := NewServer(&countingLocal{}, newLoneRouter(), g)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		refused := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				_, _, err = s.Credentials(insecure.NewCredentials()).ServerHandshake(conn)
				err = errors.Join(err, conn.Close())
			}
			refused <- err
		}()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "%s%d\n", connMark, version); err != nil {
			t.Fatal(err)
		}
		if reply, err := io.ReadAll(conn); err != nil || string(reply) != connPreface {
			t.Errorf("version %d: the node replies %q, %v", version, reply, err)
		}
		if err := <-refused; err == nil || err.Error() != "a node at 127.0.0.1 "+want || fmt.Sprint(g.Strangers()) != "["+err.Error()+"]" {
			t.Errorf("version %d: %v, and strangers are %q", version, err, g.Strangers())
		}
		s.Close()
		_ = errors.Join(conn.Close(), l.Close())

		a := newTestGreeter("a", 1)
		connect := func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				_, _ = there.Read(make([]byte, maxHello))
				_, _ = fmt.Fprintf(there, "%s%d\n", connMark, version)
			}()
			return here, nil
		}
		_, err = a.Knock(t.Context(), connect, Member{ID: "b", Address: "b:1"})
		if err == nil || err.Error() != `node "b" at b:1 `+want || fmt.Sprint(a.Strangers()) != "["+err.Error()+"]" {
			t.Errorf("version %d: %v, and strangers are %q", version, err, a.Strangers())
		}
	}
}

// Frames and calls of another version are refused, too.
func TestOtherVersionOfFramesAndCalls(t *testing.T) {
	for version, want := range others {
		if r := openFrame([]byte{byte(version)}); r.err == nil || r.err.Error() != want {
			t.Errorf("a frame of version %d: %v", version, r.err)
		}
	}
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a")
		c.settled()
		o := c.alive["a"].owners
		for version, want := range others {
			caller := &peerv1.Caller{Version: uint32(version), Cluster: 1, Id: "b", Address: "b:1", ToId: "a"}
			_, heartbeat := o.server().Heartbeat(t.Context(), &peerv1.HeartbeatRequest{Caller: caller})
			_, view := o.server().GetView(t.Context(), &peerv1.GetViewRequest{Caller: caller})
			_, posted := o.replicas().Post(t.Context(), &peerv1.PostRequest{Caller: caller})
			for i, err := range []error{heartbeat, view, posted} {
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `node "b" at b:1 `+want) {
					t.Errorf("version %d, call %d: %v", version, i, err)
				}
			}
			if named := strings.Join(o.Greeter.Strangers(), "\n"); !strings.Contains(named, want) {
				t.Errorf("version %d: strangers are %q", version, named)
			}
		}
	})
}
