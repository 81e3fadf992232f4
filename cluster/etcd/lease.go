package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
)

// nodeLease keeps the announced node's key in etcd, under a lease. It belongs to
// one goroutine.
//
// The key is only ever written over the version that was read or written last,
// so that a node that was away cannot overwrite its own successor.
type nodeLease struct {
	r     *Registry
	every time.Duration // between renewals

	lease   clientv3.LeaseID // 0 if there is none
	renewAt time.Time        // of lease
	put     receipt          // of the last put
	look    bool             // whether the key may be other than put says
	former  clientv3.LeaseID // of this node before it was restarted, which must not renew it any more; 0 if there is none
	refusal string           // what etcd said last; logged
}

func newNodeLease(r *Registry) *nodeLease {
	return &nodeLease{r: r, every: min(r.ttl/renewsPerTTL, maxRenewEvery)}
}

// run works until ctx ends, gives the lease back and returns nil, or until the
// node is superseded.
func (k *nodeLease) run(ctx context.Context) error {
	defer k.revoke(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for nudged := false; ; nudged = false {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-k.r.announced:
			nudged, k.look = true, true
		}
		wait := k.every
		err := k.step(ctx)
		switch {
		case errors.Is(err, ErrSuperseded):
			return err
		case err != nil && ctx.Err() == nil:
			k.complain(err)
			wait = minPause/2 + rand.N(minPause)
		default:
			k.refusal = ""
			if k.lease != 0 {
				wait = max(0, time.Until(k.renewAt))
			}
		}
		timer.Reset(wait)
		if nudged {
			// A burst of announcements makes few puts, and a quarrel over the key no
			// busy loop.
			sleep(ctx, minPause)
		}
	}
}

// step brings etcd up to date: lease first, then key.
func (k *nodeLease) step(ctx context.Context) error {
	k.r.mu.Lock()
	node := k.r.node
	k.r.mu.Unlock()
	if node.ID == "" {
		return nil // nothing is announced yet
	}
	if k.lease != 0 && !time.Now().Before(k.renewAt) {
		if err := k.renew(ctx); err != nil {
			return err
		}
	}
	if k.lease == 0 {
		if err := k.grant(ctx); err != nil {
			return err
		}
	}
	err := k.ensure(ctx, node)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		k.lost()
	}
	if err == nil && k.former != 0 {
		err = k.fence(ctx)
	}
	return err
}

// fence ends the lease of this node before it was restarted: the old process must not believe that it is
// still the member.
func (k *nodeLease) fence(ctx context.Context) error {
	err := k.r.call(ctx, callTimeout, func(ctx context.Context) error {
		_, err := k.r.client.Revoke(ctx, k.former)
		return err
	})
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		k.former = 0
		return nil
	}
	return err
}

// renew keeps the lease, or finds that it is lost, which is no error.
func (k *nodeLease) renew(ctx context.Context) error {
	sent := time.Now()
	err := k.r.call(ctx, renewTimeout, func(ctx context.Context) error {
		_, err := k.r.client.KeepAliveOnce(ctx, k.lease)
		return err
	})
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		k.lost()
		return nil
	case err != nil:
		return err
	}
	k.renewed(sent)
	return nil
}

func (k *nodeLease) grant(ctx context.Context) error {
	sent := time.Now()
	var resp *clientv3.LeaseGrantResponse
	err := k.r.call(ctx, callTimeout, func(ctx context.Context) (err error) {
		resp, err = k.r.client.Grant(ctx, int64((k.r.ttl+time.Second-1)/time.Second))
		return err
	})
	if err != nil {
		return err
	}
	k.lease = resp.ID
	k.r.reachability.grant(time.Now())
	k.renewed(sent)
	return nil
}

func (k *nodeLease) renewed(sent time.Time) {
	k.renewAt = sent.Add(k.every)
	k.r.reachability.renewal(sent)
}

func (k *nodeLease) lost() {
	k.r.log.Warn("the etcd lease of this node has ended; registering the node again", "lease", int64(k.lease), "ttl", k.r.ttl)
	k.lease = 0
	k.r.reachability.renewal(time.Time{})
	k.r.metrics.leasesLost.Inc()
}

// ensure makes the key say node under our lease.
func (k *nodeLease) ensure(ctx context.Context, node cluster.Node) error {
	value, err := json.Marshal(node)
	if err != nil {
		return err
	}
	key := k.r.keys.nodes + node.ID
	for {
		done := k.put.node == node && k.put.lease == k.lease && k.put.modRevision != 0
		if done && !k.look {
			return nil
		}
		t := transaction{
			when:      []clientv3.Cmp{unchanged(key, k.put.modRevision)},
			otherwise: []clientv3.Op{clientv3.OpGet(key)},
		}
		if !done {
			t.then = []clientv3.Op{clientv3.OpPut(key, string(value), clientv3.WithLease(k.lease))}
		}
		resp, err := k.r.txn(ctx, callTimeout, t)
		if err != nil {
			return fmt.Errorf("putting %s: %w", key, err)
		}
		k.look = false
		if resp.Succeeded {
			if len(t.then) > 0 {
				k.receive(receipt{node: node, lease: k.lease, modRevision: resp.Header.Revision})
			}
			return nil
		}
		if err := k.reconsider(node, first(resp, 0)); err != nil {
			return err
		}
	}
}

// reconsider records what stands in place of our last put; kv is nil if nothing does.
func (k *nodeLease) reconsider(node cluster.Node, kv *keyValue) error {
	if kv == nil {
		k.receive(receipt{})
		return nil
	}
	stored, err := parseNode(node.ID, kv.Value)
	if err == nil && stored.Incarnation > node.Incarnation {
		return superseded(node, stored)
	}
	if lease := clientv3.LeaseID(kv.Lease); err == nil && stored.Incarnation < node.Incarnation && lease != k.lease {
		k.former = lease
	}
	// It may be ours: the answer to a put is lost when the connection breaks.
	k.receive(receipt{node: stored, lease: clientv3.LeaseID(kv.Lease), modRevision: kv.ModRevision})
	return nil
}

func (k *nodeLease) receive(put receipt) {
	k.put = put
	k.r.mu.Lock()
	k.r.put = put
	k.r.mu.Unlock()
}

// complain logs what etcd, not the lack of it, has against us, once.
func (k *nodeLease) complain(err error) {
	if answered(err) && err.Error() != k.refusal {
		k.refusal = err.Error()
		k.r.log.Error("etcd refuses to register this node", "error", err)
	}
}

// revoke takes our key away at once. It runs when ctx has ended.
func (k *nodeLease) revoke(ctx context.Context) {
	if k.lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTimeout)
	defer cancel()
	if _, err := k.r.client.Revoke(ctx, k.lease); err != nil {
		k.r.log.Warn("lease not given back, the node stays listed until it ends", "error", err)
	}
	k.r.reachability.renewal(time.Time{})
}

func superseded(node, other cluster.Node) error {
	return fmt.Errorf("%w: %q at %s is incarnation %d, this is %d",
		ErrSuperseded, node.ID, other.Address, other.Incarnation, node.Incarnation)
}
