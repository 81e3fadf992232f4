package etcd

import (
	"bytes"
	"sync"
	"testing"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/ring"
)

func TestBootstrapRace(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	const openers = 8
	var wait sync.WaitGroup
	got := make([]cluster.Params, openers)
	for i := range openers {
		r := open(t, 0, s.Endpoint())
		wait.Go(func() {
			var err error
			if got[i], err = r.Bootstrap(t.Context(), cluster.Params{}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, p := range got {
		if !bytes.Equal(p.Secret, got[0].Secret) || p.Ring != ring.DefaultParams || p.Format != cluster.Format {
			t.Errorf("%+v and %+v", p, got[0])
		}
	}
	if len(got[0].Secret) != ring.SecretSize || bytes.Equal(got[0].Secret, make([]byte, ring.SecretSize)) {
		t.Errorf("secret %x", got[0].Secret)
	}
}

func TestBootstrapRefuses(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	r := open(t, 0, s.Endpoint())
	secret := []byte("0123456789abcdef")
	const prefix = `bootstrapping cluster "test": `

	refuse := func(want cluster.Params, message string) {
		t.Helper()
		if _, err := r.Bootstrap(t.Context(), want); err == nil || err.Error() != prefix+message {
			t.Errorf("%+v: error %q, not %q", want, err, prefix+message)
		}
	}
	refuse(cluster.Params{Format: 9}, "format: the cluster is of version 9 of its format, and this node reads version 1: a newer version of weir has written it, install that one on this node")
	refuse(cluster.Params{Ring: ring.Params{Partitions: 3}}, "partitions: 3 is not between 64 and 65536")
	refuse(cluster.Params{Secret: []byte("short")}, "secret: 5 bytes are not 16")

	want := cluster.Params{Format: cluster.Format, Ring: smallRing, Secret: secret}
	for range 2 { // creates, then finds
		got, err := r.Bootstrap(t.Context(), want)
		if err != nil || got.Ring != want.Ring || !bytes.Equal(got.Secret, secret) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	refuse(cluster.Params{Ring: ring.DefaultParams}, "partitions: 1021 are wanted, the cluster has 64")
	refuse(cluster.Params{Ring: ring.Params{ReplicationFactor: 11}}, "replication_factor: 11 is wanted, the cluster has 10")
	refuse(cluster.Params{Ring: ring.Params{Load: 2}}, "load: 2 is wanted, the cluster has 1.25")
	refuse(cluster.Params{Secret: []byte("fedcba9876543210")}, "secret: the cluster has another than is wanted")

	c := rawClient(t, s.Endpoint())
	for stored, message := range map[string]string{
		`{"format":2}`: "stored parameters: format: the cluster is of version 2 of its format, and this node reads version 1: a newer version of weir has written it, install that one on this node",
		`{"ring":{}}`:  "stored parameters: format: the cluster is of version 0 of its format, and this node reads version 1: an older version of weir has written it, start this node with that one",
		`{"format":1,"ring":{"partitions":64,"replication_factor":0,"load":1}}`:                 "stored parameters: replication_factor: 0 is not between 1 and 1000",
		`{"format":1,"ring":{"partitions":64,"replication_factor":1,"load":1},"secret":"AAAA"}`: "stored parameters: secret: 3 bytes are not 16",
		`what?`: "stored parameters: invalid character 'w' looking for beginning of value",
	} {
		put(t, c, r.keys.params, stored)
		refuse(cluster.Params{}, message)
	}
}
