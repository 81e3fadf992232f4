package etcd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

// Bootstrap fixes the parameters of the cluster, if no node has yet, and returns those that are stored. Of
// however many nodes that start at once, one wins and all return the same.
//
// Zero fields of want agree with anything; where they must be chosen they are
// cluster.Format, ring.DefaultParams and a random secret. Bootstrap refuses when
// another field differs from what is stored, or when this software cannot run
// with what is stored.
func (r *Registry) Bootstrap(ctx context.Context, want cluster.Params) (cluster.Params, error) {
	got, raw, err := r.bootstrap(ctx, want)
	if err != nil {
		return cluster.Params{}, fmt.Errorf("bootstrapping cluster %q: %w", r.cluster, err)
	}
	r.mu.Lock()
	r.params = raw
	r.mu.Unlock()
	return got, nil
}

// Params returns the parameters as they are stored, or must be; nil if that is not known yet.
func (r *Registry) Params() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.params
}

func (r *Registry) bootstrap(ctx context.Context, want cluster.Params) (cluster.Params, []byte, error) {
	fresh := complete(want)
	if err := checkParams(fresh); err != nil {
		return cluster.Params{}, nil, err
	}
	value, err := json.Marshal(fresh)
	if err != nil {
		return cluster.Params{}, nil, err
	}
	resp, err := r.txn(ctx, openTimeout, transaction{
		when:      []clientv3.Cmp{unchanged(r.keys.params, 0)},
		then:      []clientv3.Op{clientv3.OpPut(r.keys.params, string(value))},
		otherwise: []clientv3.Op{clientv3.OpGet(r.keys.params)},
	})
	if err != nil {
		return cluster.Params{}, nil, err
	}
	if resp.Succeeded {
		return fresh, value, nil
	}
	value = first(resp, 0).Value
	stored, err := ParseParams(value)
	if err != nil {
		return cluster.Params{}, nil, err
	}
	return stored, value, agree(want, stored)
}

// ReadParams returns the parameters that are stored, and whether there are any. It writes nothing.
func (r *Registry) ReadParams(ctx context.Context) (stored cluster.Params, found bool, err error) {
	value, _, err := r.read(ctx, r.keys.params)
	if err == nil && value != nil {
		stored, err = ParseParams(value)
	}
	if err != nil {
		return cluster.Params{}, false, fmt.Errorf("cluster %q: %w", r.cluster, err)
	}
	return stored, value != nil, nil
}

// ParseParams reads parameters as they are stored. It refuses what this software cannot run
// with.
func ParseParams(value []byte) (stored cluster.Params, err error) {
	if err = json.Unmarshal(value, &stored); err == nil {
		err = checkParams(stored)
	}
	if err != nil {
		return cluster.Params{}, fmt.Errorf("stored parameters: %w", err)
	}
	return stored, nil
}

// complete chooses what p leaves open.
func complete(p cluster.Params) cluster.Params {
	if p.Format == 0 {
		p.Format = cluster.Format
	}
	if p.Ring.Partitions == 0 {
		p.Ring.Partitions = ring.DefaultParams.Partitions
	}
	if p.Ring.ReplicationFactor == 0 {
		p.Ring.ReplicationFactor = ring.DefaultParams.ReplicationFactor
	}
	if p.Ring.Load == 0 {
		p.Ring.Load = ring.DefaultParams.Load
	}
	if len(p.Secret) == 0 {
		p.Secret = make([]byte, ring.SecretSize)
		rand.Read(p.Secret) // never returns an error
	}
	return p
}

// checkParams refuses what this software cannot run with.
func checkParams(p cluster.Params) error {
	if p.Format != cluster.Format {
		return fmt.Errorf("format: %w", &view.VersionError{Subject: "the cluster", Got: uint64(max(0, p.Format)), Reads: cluster.Format})
	}
	if err := p.Ring.Validate(); err != nil {
		return err
	}
	if len(p.Secret) != ring.SecretSize {
		return fmt.Errorf("secret: %d bytes are not %d", len(p.Secret), ring.SecretSize)
	}
	return nil
}

// OtherParamsError says that a cluster has other parameters than a node wants.
type OtherParamsError struct{ problem string }

func (e *OtherParamsError) Error() string { return e.problem }

// agree returns an *OtherParamsError for the first field in which want is given and is not as stored.
func agree(want, stored cluster.Params) error {
	w, s := want.Ring, stored.Ring
	var problem string
	switch {
	case w.Partitions != 0 && w.Partitions != s.Partitions:
		problem = fmt.Sprintf("partitions: %d are wanted, the cluster has %d", w.Partitions, s.Partitions)
	case w.ReplicationFactor != 0 && w.ReplicationFactor != s.ReplicationFactor:
		problem = fmt.Sprintf("replication_factor: %d is wanted, the cluster has %d", w.ReplicationFactor, s.ReplicationFactor)
	case w.Load != 0 && w.Load != s.Load:
		problem = fmt.Sprintf("load: %v is wanted, the cluster has %v", w.Load, s.Load)
	case len(want.Secret) != 0 && !bytes.Equal(want.Secret, stored.Secret):
		problem = "secret: the cluster has another than is wanted"
	default:
		return nil
	}
	return &OtherParamsError{problem}
}
