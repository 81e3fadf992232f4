package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// handshake lets a server see a connection that begins with these bytes.
func handshake(s *Server, begin string) (there net.Conn, got net.Conn, err error) {
	here, there := net.Pipe()
	go func() {
		if _, err := io.WriteString(there, begin); err == nil && strings.HasPrefix(begin, connPreface) {
			_, _ = there.Read(make([]byte, maxHello)) // the answer is one write
		}
	}()
	got, _, err = s.Credentials(insecure.NewCredentials()).Clone().ServerHandshake(here)
	runtime.Gosched()                 // so that the connection is served
	_ = here.SetDeadline(time.Time{}) // as gRPC does; the connection may be closed by now
	return there, got, err
}

// greeting is what the node "a" says that means the node of that id.
func greeting(t *testing.T, id string, incarnation uint64) string {
	t.Helper()
	b, err := hello{from: Identity{Cluster: 1, ID: "a", Incarnation: 1}, to: Identity{ID: id, Incarnation: incarnation}}.appendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHandshakeDistinguishesProtocols(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(&countingLocal{}, newLoneRouter(), newTestGreeter("b", 1))
		defer s.Close()
		for begin, want := range map[string]string{
			greeting(t, "b", 1): credentials.ErrConnDispatched.Error(),
			"weir-peer/\n\n":    `connection begins with "weir-peer/\n\n"`,
			"weir-peer/1234567": `connection begins with "weir-peer/1234567"`,
			"water and oil":     `connection begins with "water and oi"`,
		} {
			there, got, err := handshake(s, begin)
			if got != nil || err == nil || err.Error() != want {
				t.Errorf("%q: connection %v, error %v, want %s", begin, got, err, want)
			}
			_ = there.Close()
		}
		const http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		there, got, err := handshake(s, http2)
		if err != nil {
			t.Fatal(err)
		}
		all := make([]byte, len(http2))
		if _, err := io.ReadFull(got, all); err != nil || string(all) != http2 {
			t.Errorf("gRPC reads %q, %v", all, err)
		}
		_ = there.Close()
	})
}

func TestConnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(&countingLocal{}, newLoneRouter(), newTestGreeter("b", 1))
		var conns []net.Conn
		for range maxAccepted {
			conn, _, err := handshake(s, greeting(t, "b", 1))
			if !errors.Is(err, credentials.ErrConnDispatched) {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		want := fmt.Sprintf("%d conns are open already, or the server is closed", maxAccepted)
		if _, _, err := handshake(s, greeting(t, "b", 1)); err == nil || err.Error() != want {
			t.Errorf("one more: %v, want %s", err, want)
		}
		_ = conns[0].Close()
		synctest.Wait()
		conn, _, err := handshake(s, greeting(t, "b", 1))
		if !errors.Is(err, credentials.ErrConnDispatched) {
			t.Errorf("after one has ended: %v", err)
		}
		s.Close()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after Close: %v", err)
		}
		if _, _, err := handshake(s, greeting(t, "b", 1)); err == nil || err.Error() != want {
			t.Errorf("after Close: %v, want %s", err, want)
		}
	})
}

// open returns the other end of a connection that s serves.
func open(t *testing.T, s *Server) net.Conn {
	t.Helper()
	conn, _, err := handshake(s, greeting(t, "b", 1))
	if !errors.Is(err, credentials.ErrConnDispatched) {
		t.Fatal(err)
	}
	return conn
}

func TestServerEndsConns(t *testing.T) {
	long := binary.LittleEndian.AppendUint32(nil, maxFrame+1)
	nonsense := append(binary.LittleEndian.AppendUint32(nil, 1), 99)
	for name, tc := range map[string]struct {
		send  []byte
		after time.Duration
	}{
		"a frame that is too long": {long, 0},
		"nonsense":                 {nonsense, 0},
		"silence":                  {nil, connIdle},
		"half a frame":             {long[:2], connIdle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(&countingLocal{}, newLoneRouter(), newTestGreeter("b", 1))
				defer s.Close()
				conn, start := open(t, s), time.Now()
				if _, err := conn.Write(tc.send); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(start) != tc.after {
					t.Errorf("%v after %v, want the end after %v", err, time.Since(start), tc.after)
				}
			})
		})
	}
}

// A peer that does not read its answers is not waited for.
func TestServerEndsUnreadConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(&countingLocal{}, newLoneRouter(), newTestGreeter("b", 1))
		defer s.Close()
		if err := writeFrame(open(t, s), appendTakes(newFrame(nil), opPing, pingID, nil)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(connIdle) // in a bubble
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.conns) != 0 {
			t.Errorf("%d conns are open", len(s.conns))
		}
	})
}

// stuckLocal decides when it is let.
type stuckLocal struct{ let chan struct{} }

func (l stuckLocal) Decide([]shard.Group) { <-l.let }
func (l stuckLocal) Return([]shard.Take)  {}
func (l stuckLocal) Keep([]shard.Take)    {}

// When Close returns, no goroutine uses the counters any more.
func TestCloseWaitsForFramesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := stuckLocal{make(chan struct{})}
		s := NewServer(local, newLoneRouter(), newTestGreeter("b", 1))
		if err := writeFrame(open(t, s), appendTakes(newFrame(nil), opDecide, 1, []shard.Take{take(ring.Key{}, 10, 1)})); err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed while a request was decided")
		default:
		}
		close(local.let)
		<-closed
	})
}

// A connection in use outlives its deadline.
func TestServerKeepsConnsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(&countingLocal{}, newLoneRouter(), newTestGreeter("b", 1))
		defer s.Close()
		conn := open(t, s)
		frames := newFrameReader(conn, maxAnswers)
		for range 20 {
			if err := writeFrame(conn, appendTakes(newFrame(nil), opPing, pingID, nil)); err != nil {
				t.Fatal(err)
			}
			if _, err := frames.next(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(connIdle / 2) // in a bubble
		}
	})
}

// Shutdown waits for calls in progress, and no longer than its bound.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(&countingLocal{}, newLoneRouter(), newTestGreeter("b", 1))
		conn := open(t, s)
		time.AfterFunc(3*time.Second, func() { _ = conn.Close() })
		stays := open(t, s)
		time.AfterFunc(time.Second, func() {
			if _, _, err := handshake(s, greeting(t, "b", 1)); errors.Is(err, credentials.ErrConnDispatched) {
				t.Error("a conn was taken on the way out")
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		s.Shutdown(ctx)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("waited %v for the one that stays, want 5s", took)
		}
		if _, err := stays.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the one that stayed: %v", err)
		}

		s = NewServer(&countingLocal{}, newLoneRouter(), newTestGreeter("b", 1))
		leaves := open(t, s)
		time.AfterFunc(time.Second, func() { _ = leaves.Close() })
		start = time.Now()
		s.Shutdown(t.Context())
		if took := time.Since(start); took != time.Second {
			t.Errorf("waited %v, want 1s", took)
		}
	})
}

// gRPC and connections share a port.
func TestOnePort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(&countingLocal{}, newLoneRouter(), newTestGreeter("b", 1))
	defer s.Close()
	server := grpc.NewServer(grpc.Creds(s.Credentials(insecure.NewCredentials())))
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	conn, err := overTCP(t.Context(), Member{ID: "b", Address: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := writeFrame(conn, appendTakes(newFrame(nil), opPing, pingID, nil)); err != nil {
		t.Fatal(err)
	}
	frames := newFrameReader(conn, maxAnswers)
	if _, err := frames.next(); err != nil {
		t.Error(err)
	}
	client, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := healthpb.NewHealthClient(client).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}
