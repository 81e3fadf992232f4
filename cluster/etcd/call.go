package etcd

import (
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
