package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Both ends of a connection must be the nodes that the hellos name; a later incarnation is the same node.
func TestStrangersOnConns(t *testing.T) {
	a, b := Identity{Cluster: 1, ID: "a", Incarnation: 4}, Identity{Cluster: 1, ID: "b", Incarnation: 7}
	for _, tc := range []struct {
		name          string
		caller        Identity
		meant         Member
		there, caught string // what either end says of the other
	}{
		{"the node that is meant", a, Member{ID: "b", Incarnation: 7}, "", ""},
		{"any incarnation", a, Member{ID: "b"}, "", ""},
		{"one that was restarted since", a, Member{ID: "b", Incarnation: 6}, "", ""},
		{"an earlier one", a, Member{ID: "b", Incarnation: 8},
			`node "a" calls this node and means incarnation 8 of node "b"`, `node "b" answers at x:1 instead of incarnation 8 of node "b"`},
		{"another id", a, Member{ID: "c", Incarnation: 1},
			`node "a" calls this node and means node "c"`, `node "b" answers at x:1 instead of node "c"`},
		{"another cluster", Identity{Cluster: 2, ID: "a", Incarnation: 4}, Member{ID: "b", Incarnation: 7},
			`node "a" of another cluster calls this node and means node "b"`, `node "b" of another cluster answers at x:1 instead of node "b"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log syncBuffer
				there, here := NewGreeter(b, noClock, slog.New(slog.NewTextHandler(&log, nil))), NewGreeter(tc.caller, noClock, slog.New(slog.NewTextHandler(&log, nil)))
				s := NewServer(&countingLocal{}, newLoneRouter(), there)
				defer s.Close()
				tc.meant.Address = "x:1"
				dial := GreetingDialer(func(context.Context, string) (net.Conn, error) { return served(s), nil }, here)
				for range 3 {
					conn, err := dial(t.Context(), tc.meant)
					if (err == nil) != (tc.caught == "") {
						t.Fatalf("%v, want %q", err, tc.caught)
					}
					if err == nil {
						_ = conn.Close()
					}
				}
				synctest.Wait()
				for g, want := range map[*Greeter]string{there: tc.there, here: tc.caught} {
					said := strings.Join(g.Strangers(), "\n")
					if said != want {
						t.Errorf("%v says %q, want %q", g.Self(), said, want)
					}
					if n := strings.Count(log.String(), strconv.Quote(want)); want != "" && n != 1 {
						t.Errorf("%q is logged %d times, want once: %s", want, n, log.String())
					}
				}
				time.Sleep(strangerNamed) // in a bubble
				if s := slices.Concat(there.Strangers(), here.Strangers()); len(s) > 0 {
					t.Errorf("still named: %q", s)
				}
			})
		})
	}
}

// A frame that comes at once behind a hello is decided by the node that the hello means, and by no other one.
func TestFramesForAnotherNode(t *testing.T) {
	self := Identity{Cluster: 1, ID: "b", Incarnation: 7}
	for meant, decided := range map[Identity]int{
		self:                                   1,
		{Cluster: 1, ID: "b", Incarnation: 6}:  1, // it was restarted since
		{Cluster: 1, ID: "b", Incarnation: 8}:  0,
		{Cluster: 1, ID: "c", Incarnation: 7}:  0,
		{Cluster: 2, ID: "b", Incarnation: 7}:  0,
		{Cluster: 1, ID: "bb", Incarnation: 7}: 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			local := &countingLocal{}
			s := NewServer(local, newLoneRouter(), NewGreeter(self, noClock, slog.New(slog.DiscardHandler)))
			conn := served(s)
			sent, err := hello{from: Identity{Cluster: meant.Cluster, ID: "a", Incarnation: 4}, to: meant}.appendTo(nil)
			if err != nil {
				t.Fatal(err)
			}
			frame := appendTakes(newFrame(nil), opDecide, 1, []shard.Take{take(ring.Key{Lo: 1}, 10, 1)})
			binary.LittleEndian.PutUint32(frame, uint32(len(frame)-lengthSize))
			go func() { _, _ = conn.Write(append(sent, frame...)) }()
			if err := readPreface(conn); err != nil {
				t.Error(err)
			}
			if answer, err := readHello(conn); err != nil || answer.from != self {
				t.Errorf("%+v, %v", answer, err)
			}
			frames := newFrameReader(conn, maxAnswers)
			if _, err := frames.next(); (err == nil) != (decided > 0) {
				t.Errorf("a frame for %v is answered with the error %v", meant, err)
			}
			_ = conn.Close()
			s.Close()
			if local.decided != decided {
				t.Errorf("%d takes for %v are decided, want %d", local.decided, meant, decided)
			}
		})
	}
}

// served returns a connection that s is served on, as gRPC would.
func served(s *Server) net.Conn {
	here, there := net.Pipe()
	go func() {
		_ = there.SetDeadline(time.Now().Add(time.Second))
		if _, _, err := s.Credentials(insecure.NewCredentials()).ServerHandshake(there); !errors.Is(err, credentials.ErrConnDispatched) {
			_ = there.Close()
		}
		_ = there.SetDeadline(time.Time{})
	}()
	return here
}

// A node that accepts and says nothing is given up in time.
func TestHelloThatIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		dial := GreetingDialer(func(context.Context, string) (net.Conn, error) { return here, nil }, newTestGreeter("a", 1))
		began := time.Now()
		if _, err := dial(t.Context(), Member{ID: "b"}); err == nil || time.Since(began) != connectTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := here.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is open")
		}
	})
}

// The memory for strangers is bounded.
func TestStrangersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGreeter("a", 1)
		for i := range 10 * maxStrangers {
			_ = g.admit(Identity{Cluster: 2, ID: fmt.Sprint(i)}, Identity{ID: "a"})
		}
		if n := len(g.Strangers()); n != maxStrangers {
			t.Errorf("%d strangers, want %d", n, maxStrangers)
		}
		time.Sleep(strangerForgot) // in a bubble
		_ = g.admit(Identity{Cluster: 3, ID: "new"}, Identity{ID: "a"})
		if s := g.Strangers(); len(s) != 1 {
			t.Errorf("%q, want the new one", s)
		}
	})
}

// Every call between nodes is refused by a node that it is not for.
func TestCallsNameTheirReceiver(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a")
		c.settled()
		s, replicas := c.alive["a"].owners.server(), c.alive["a"].owners.replicas()
		for name, caller := range map[string]*peerv1.Caller{
			"another cluster": {Version: connVersion, Cluster: 2, Id: "b", ToId: "a"},
			"another node":    {Version: connVersion, Cluster: 1, Id: "b", ToId: "x"},
			"no node":         {Version: connVersion, Cluster: 1, Id: "b"},
			"a later life":    {Version: connVersion, Cluster: 1, Id: "b", ToId: "a", To: c.alive["a"].owners.life().Incarnation + 1},
		} {
			ctx := t.Context()
			_, heartbeat := s.Heartbeat(ctx, &peerv1.HeartbeatRequest{Caller: caller})
			_, view := s.GetView(ctx, &peerv1.GetViewRequest{Caller: caller})
			_, feed := replicas.Feed(ctx, &peerv1.FeedRequest{Caller: caller})
			_, relayed := replicas.RelayFeed(ctx, &peerv1.RelayFeedRequest{Caller: caller})
			_, post := replicas.Post(ctx, &peerv1.PostRequest{Caller: caller})
			_, hear := replicas.Hear(ctx, &peerv1.HearRequest{Caller: caller})
			_, ask := replicas.Ask(ctx, &peerv1.AskRequest{Caller: caller})
			_, versions := replicas.ListVersions(ctx, &peerv1.ListVersionsRequest{Caller: caller})
			for i, err := range []error{heartbeat, view, feed, relayed, post, hear, ask, versions} {
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "calls this node and means") {
					t.Errorf("%s, call %d: %v", name, i, err)
				}
			}
		}
		const later = `node "b" calls this node and means incarnation 2 of node "a"`
		if said := c.alive["a"].owners.Greeter.Strangers(); !slices.Contains(said, later) {
			t.Errorf("named are %q, want %q as well", said, later)
		}
		earlier := &peerv1.Caller{Version: connVersion, Cluster: 1, Id: "b", ToId: "a", To: view.Uncounted >> 1}
		c.alive["a"].owners.Greeter.become(earlier.To + 1)
		if _, err := s.Heartbeat(t.Context(), &peerv1.HeartbeatRequest{Caller: earlier}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a call for an earlier life: %v", err)
		}
	})
}

// A member whose address belongs to a node of another cluster is not reached, and its standby decides.
func TestForeignNodeAtAMembersAddress(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		keys := 60
		allowed := make(map[ring.Key]int)
		c.take(allowed, keys, int(ownershipLimit.Limit)+5)
		c.replicated()
		c.crash("c")
		c.registry.expire("c")
		foreign := &ownershipCluster{testCluster: c.testCluster, registry: &fakeRegistry{nodes: make(map[string]Node)}, starts: make(map[string]uint64), alive: make(map[string]*ownershipNode), other: 1}
		foreign.start("c")
		for range 100 {
			c.take(allowed, keys, 1)
			time.Sleep(100 * time.Millisecond) // in a bubble
		}
		c.settled()
		c.exact(allowed, keys, int(ownershipLimit.Limit))
		if n := foreign.alive["c"].shard.Len(); n != 0 {
			t.Errorf("%d counters are kept by the other cluster", n)
		}
		foreign.crash("c")
		foreign.wg.Wait()
	})
}
