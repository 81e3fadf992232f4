package memetcd_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// These faults cannot be brought about in an embedded etcd of one member, so that they
// are checked against what etcd documents.

// A paused server answers no request and breaks no connection; leases that have run out meanwhile end when
// it is resumed.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newInMemory(t)
		c := client(t, m)
		lease, err := c.Grant(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), "a", "1", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		m.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.Get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while paused: %v", err)
		}
		m.Resume()
		time.Sleep(time.Second)
		if resp, err := c.Get(t.Context(), "a"); err != nil || resp.Count != 0 {
			t.Errorf("after a lease has run out: %v, %v", resp, err)
		}
		m.Pause()
		m.Stop() // does not wait for Resume
		m.Resume()
	})
}

// A server that stops does not wait for a client that has connected and whose greeting does not arrive, as when the network is cut just then.
func TestStopWithASilentConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newInMemory(t)
		silent, err := m.here.Dial(t.Context(), m.endpoint())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent.Close() }()
		synctest.Wait() // it is accepted
		began := time.Now()
		m.Stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("it stops after %v", took)
		}
	})
}

func TestNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newInMemory(t)
		c := client(t, m)
		lease, err := c.Grant(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), "a", "1", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		open := func(ctx context.Context) pb.Watch_WatchClient {
			stream, err := pb.NewWatchClient(c.ActiveConnection()).Watch(ctx)
			if err == nil {
				err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("a")}}})
			}
			if err == nil {
				_, err = stream.Recv()
			}
			if err != nil {
				t.Fatal(err)
			}
			return stream
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		careful, careless := open(clientv3.WithRequireLeader(ctx)), open(ctx)

		m.LoseLeader()
		if _, err := careful.Recv(); !errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) {
			t.Errorf("watch: %v", err)
		}
		began := time.Now()
		_, err = pb.NewKVClient(c.ActiveConnection()).Put(ctx, &pb.PutRequest{Key: []byte("a")})
		if took := time.Since(began); !errors.Is(rpctypes.Error(err), rpctypes.ErrTimeout) || took != 7*time.Second {
			t.Errorf("put: %v after %v", err, took)
		}
		_, err = pb.NewKVClient(c.ActiveConnection()).Put(clientv3.WithRequireLeader(ctx), &pb.PutRequest{Key: []byte("a")})
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) {
			t.Errorf("put that requires a leader: %v", err)
		}

		m.ElectLeader() // with which the lease begins again
		time.Sleep(4 * time.Second)
		if resp, err := c.Get(ctx, "a"); err != nil || resp.Count != 1 {
			t.Errorf("after an election: %v, %v", resp, err)
		}
		time.Sleep(2 * time.Second)
		if resp, err := careless.Recv(); err != nil || len(resp.Events) != 1 {
			t.Errorf("a watch that needs no leader: %v, %v", resp, err)
		}
	})
}
