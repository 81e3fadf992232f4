package cluster

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
)

// proven is an encrypted connection, or what a gRPC server knows of one.
type proven struct {
	net.Conn
	credentials.AuthInfo
	id string
}

func (p proven) NodeID() string { return p.id }

type wrapping struct{ credentials.AuthInfo }

func (w wrapping) Unwrap() credentials.AuthInfo { return w.AuthInfo }

// A node cannot say that it is another one than its certificate names; without certificates any word is taken.
func TestIdentityMustMatchCertificate(t *testing.T) {
	for _, tc := range []struct {
		name string
		conn net.Conn
		want string // of the error; empty for none
	}{
		{"not encrypted", &net.TCPConn{}, ""},
		{"its own", proven{id: "b"}, ""},
		{"another node's", proven{id: "c"}, `node "b" has the certificate of node "c"`},
		{"a client's", proven{}, `node "b" has no certificate of a node`},
	} {
		err := checkConn(tc.conn, Identity{ID: "b"})
		if got := errorText(err); !strings.Contains(got, tc.want) || (err != nil) != (tc.want != "") {
			t.Errorf("conn, %s: %v", tc.name, err)
		}
		info, encrypted := tc.conn.(credentials.AuthInfo)
		if !encrypted {
			info = nil
		}
		ctx := grpcpeer.NewContext(context.Background(), &grpcpeer.Peer{AuthInfo: wrapping{wrapping{info}}})
		err = checkCall(ctx, "b")
		if got := errorText(err); !strings.Contains(got, tc.want) || (err != nil) != (tc.want != "") {
			t.Errorf("call, %s: %v", tc.name, err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
