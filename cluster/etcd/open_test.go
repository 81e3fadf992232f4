package etcd

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Cluster: "c"}, `etcd: endpoints [] are not 1 to 64 addresses`},
		{Config{Cluster: "c", Endpoints: []string{""}}, `etcd: endpoints [""] are not 1 to 64 addresses`},
		{Config{Endpoints: []string{"127.0.0.1:1"}}, `etcd: cluster "" has 0 bytes, not 1 to 64`},
		{Config{Cluster: "a/b", Endpoints: []string{"127.0.0.1:1"}}, `etcd: cluster "a/b" has a character that is no letter, digit, '.', '_' or '-'`},
		{Config{Cluster: "c", Endpoints: []string{"127.0.0.1:1"}, LeaseTTL: time.Second}, `etcd: lease of 1s is not 2s to 10m0s long`},
		{Config{Cluster: "c", Endpoints: []string{"127.0.0.1:1", "127.0.0.1:2"}}, `etcd at 127.0.0.1:1, 127.0.0.1:2: no answer in 5s (dial tcp 127.0.0.1:1: connect: connection refused)`},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			r, err := Open(t.Context(), c.cfg)
			if err == nil {
				r.Close()
			}
			// Which of two endpoints is named, and the tenths of the 5 s, may vary.
			if err == nil || unvary.Replace(err.Error()) != c.want {
				t.Errorf("error %q, not %q", err, c.want)
			}
			if took := time.Since(began); took > openTimeout+time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

var unvary = strings.NewReplacer("tcp 127.0.0.1:2", "tcp 127.0.0.1:1", " in 5.1s", " in 5s", " in 5.2s", " in 5s")

func TestOpenIsCancelled(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = Open(ctx, Config{Cluster: "c", Endpoints: []string{silent.Addr().String()}})
	if want := "etcd at " + silent.Addr().String() + ": no answer in "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %q, not %q", err, want)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err = Open(ctx, Config{Cluster: "c", Endpoints: []string{silent.Addr().String()}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestOpenAgainWithTheSameMetrics(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	n := open(t, 0, s.Endpoint())
	cfg := Config{Cluster: "test", Endpoints: []string{s.Endpoint()}, Metrics: n.reg}
	if r, err := Open(t.Context(), cfg); err == nil {
		r.Close()
		t.Error("two registries share metrics")
	}
	n.Close()
	n.Close()
	r, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := r.Run(t.Context(), nil); err == nil {
		t.Error("Run runs after Close")
	}
}
