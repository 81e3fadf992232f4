package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// call gives one exchange with etcd a time-out of its own and notes in reachability
// how it ended. The client waits for a connection for as long as it is let.
func (r *Registry) call(ctx context.Context, timeout time.Duration, exchange func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := exchange(bounded)
	if ctx.Err() != nil {
		return err // says nothing about etcd
	}
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
		err = fmt.Errorf("etcd at %s: no answer in %v", r.where, timeout)
	}
	r.reachability.exchange(err)
	return err
}

// txn runs one transaction.
func (r *Registry) txn(ctx context.Context, timeout time.Duration, t transaction) (*clientv3.TxnResponse, error) {
	var resp *clientv3.TxnResponse
	err := r.call(ctx, timeout, func(ctx context.Context) (err error) {
		resp, err = r.client.Txn(ctx).If(t.when...).Then(t.then...).Else(t.otherwise...).Commit()
		return err
	})
	return resp, err
}

type transaction struct {
	when            []clientv3.Cmp
	then, otherwise []clientv3.Op
}

// unchanged is the condition that key is still at revision; 0 is "absent".
func unchanged(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// first returns the first key-value of the i-th operation, a get, or nil.
func first(resp *clientv3.TxnResponse, i int) *keyValue {
	kvs := resp.Responses[i].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}

// read returns what stands under a key, and its revision.
func (r *Registry) read(ctx context.Context, key string) (value []byte, revision int64, err error) {
	resp, err := r.txn(ctx, callTimeout, transaction{then: []clientv3.Op{clientv3.OpGet(key)}})
	if err != nil {
		return nil, 0, err
	}
	if kv := first(resp, 0); kv != nil {
		return kv.Value, kv.ModRevision, nil
	}
	return nil, 0, nil
}

// swap stores value, of 1 to most bytes, under a key that is still at revision.
func (r *Registry) swap(ctx context.Context, key string, value []byte, most int, revision int64) (int64, error) {
	if n := len(value); n == 0 || n > most {
		return 0, fmt.Errorf("%d bytes are not 1 to %d", n, most)
	}
	r.mu.Lock()
	params, seen := r.params, r.view
	r.mu.Unlock()
	if seen.wiped {
		return 0, errors.New(seen.alarm)
	}
	when := []clientv3.Cmp{unchanged(key, revision)}
	if params != nil {
		// Not into an etcd that was wiped a moment ago.
		when = append(when, clientv3.Compare(clientv3.Value(r.keys.params), "=", string(params)))
	}
	resp, err := r.txn(ctx, callTimeout, transaction{
		when:      when,
		then:      []clientv3.Op{clientv3.OpPut(key, string(value))},
		otherwise: []clientv3.Op{clientv3.OpGet(r.keys.params)},
	})
	switch {
	case err != nil:
		return 0, err
	case resp.Succeeded:
		return resp.Header.Revision, nil
	}
	if kv := first(resp, 0); params != nil && (kv == nil || !bytes.Equal(kv.Value, params)) {
		return 0, errors.New("etcd was wiped: it has lost the parameters of this cluster")
	}
	return 0, nil
}
