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
	"github.com/weirlimit/weir/ring"
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
func TestOtherVersionOfALink(t *testing.T) {
	for version, want := range others {
		g := newTestGreeter("b", 1)
		s := NewServer(&countingLocal{}, NewDenialLeases(true, true), nil, g)
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
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a")
		c.settled()
		k := c.alive["a"].ownership
		for version, want := range others {
			caller := &peerv1.Caller{Version: uint32(version), Cluster: 1, Id: "b", Address: "b:1", ToId: "a"}
			_, heartbeat := k.server().Heartbeat(t.Context(), &peerv1.HeartbeatRequest{Caller: caller})
			_, view := k.server().GetView(t.Context(), &peerv1.GetViewRequest{Caller: caller})
			_, grants := k.server().AddGrants(t.Context(), &peerv1.AddGrantsRequest{Caller: caller})
			for i, err := range []error{heartbeat, view, grants} {
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `node "b" at b:1 `+want) {
					t.Errorf("version %d, call %d: %v", version, i, err)
				}
			}
			if named := strings.Join(k.Greeter.Strangers(), "\n"); !strings.Contains(named, want) {
				t.Errorf("version %d: strangers are %q", version, named)
			}
		}
	})
}

// A stored view of another version is refused by a sentence that says what to do, and not as a damaged one.
func TestOtherVersionOfAView(t *testing.T) {
	v, err := nextView(ring.DefaultParams, nil, []Member{{ID: "a", Address: "x:1", Incarnation: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.Number = 7
	b, err := MarshalView(v)
	if err != nil {
		t.Fatal(err)
	}
	for head, want := range map[string]string{
		`{"version":2,"new":{},`: "view 7 is of version 2 of its format, and this node reads version 1: a newer version of weir has written it, install that one on this node",
		`{`:                      "view 7 is of version 0 of its format, and this node reads version 1: an older version of weir has written it, start this node with that one",
	} {
		other := strings.Replace(string(b), `{"version":1,`, head, 1)
		if _, err := UnmarshalView([]byte(other)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", head, err, want)
		}
	}
}
