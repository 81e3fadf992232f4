package etcd

import (
	"bytes"
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
)

// storedView is a view as it is stored. Exactly one of View and Placement is what was stored: if Placement is not nil, View is made of it.
type storedView struct {
	View      *cluster.View
	Placement *view.View
}

// viewFormat says in which of the two formats views are stored: true is that of views which name the node that has each partition.
type viewFormat bool

func (f viewFormat) parse(b []byte) (v storedView, err error) {
	if !f {
		v.View, err = cluster.UnmarshalView(b)
		return v, err
	}
	if v.Placement, err = view.Unmarshal(b); err != nil {
		return v, err
	}
	v.View, err = cluster.RoutingView(v.Placement)
	return v, err
}

// as returns a view of a higher number, for an etcd that has lost v.
func (v storedView) as(number uint64) storedView {
	if v.Placement != nil {
		return storedView{Placement: view.Restored(v.Placement, number)}
	}
	return storedView{View: v.View.As(number)}
}

func (v storedView) encode() ([]byte, error) {
	if v.Placement != nil {
		return view.Marshal(v.Placement)
	}
	return cluster.MarshalView(v.View)
}

// isOtherVersion reports whether an error says that another version of this software has written a view.
func isOtherVersion(err error) bool {
	_, old := errors.AsType[*cluster.VersionError](err)
	_, placed := errors.AsType[*view.VersionError](err)
	return old || placed
}

// equal reports whether two views say the same. Another version may have written one of them.
func (v storedView) equal(w storedView) bool {
	a, errA := v.encode()
	b, errB := w.encode()
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// ReadPlacement reads the view that etcd has now, linearizably, nil if there is none.
func (r *Registry) ReadPlacement(ctx context.Context) (*view.View, error) {
	resp, err := r.txn(ctx, callTimeout, transaction{then: []clientv3.Op{clientv3.OpGet(r.keys.view)}})
	if err != nil {
		return nil, err
	}
	kv := first(resp, 0)
	if kv == nil {
		return nil, nil
	}
	v, err := r.views.parse(kv.Value)
	return v.Placement, err
}
