package etcd

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
)

// believedValues are what is stored, or what it was before etcd was wiped.
type believedValues struct{ rules, tokens *keyValue }

// viewBelief is the newest view that was good, and what is wrong with the stored
// one, if anything is.
type viewBelief struct {
	good     *view.View    // nil before the first
	routing  *cluster.View // of good
	raw      []byte        // good as stored
	revision int64         // at which to replace what is stored
	alarm    string
	wiped    bool // see seenView
}

// believe decides whether the stored view is good.
//
// invariant: view.good.Number never falls.
func (m *etcdCache) believe(params []byte) {
	v := &m.view
	v.alarm, v.wiped = "", false
	switch {
	case params != nil && m.params == nil:
		v.distrust("etcd was wiped: it has lost the parameters of this cluster")
	case params != nil && !bytes.Equal(params, m.params):
		v.distrust("etcd was wiped: it has parameters of another cluster of this name")
	case m.stored == nil && v.good != nil:
		v.distrust(fmt.Sprintf("etcd was wiped: it has lost view %d", v.good.Number))
	case m.stored == nil:
	case v.good != nil && bytes.Equal(m.stored.Value, v.raw):
		v.revision = m.stored.ModRevision
	default:
		m.judge(m.stored)
	}
}

// believeValues takes the stored rules and tokens, unless etcd was wiped. Whether they are older than the ones before
// can be told by their readers only.
func (m *etcdCache) believeValues() {
	if !m.view.wiped {
		m.believed = believedValues{m.rules, m.tokens}
	}
}

// judge takes a stored view that is not the one that is believed.
func (m *etcdCache) judge(kv *keyValue) {
	v := &m.view
	next, err := view.Unmarshal(kv.Value)
	switch {
	case isOtherVersion(err):
		v.alarm = fmt.Sprintf("etcd has a view that this node cannot read: %v", err) // and v.revision stays: this node writes no view over it
	case err != nil:
		// A node that knows the view before may write the next one over it.
		v.alarm = fmt.Sprintf("etcd has a damaged view: %v", err)
		v.revision = kv.ModRevision
	case v.good != nil && next.Number < v.good.Number:
		v.distrust(fmt.Sprintf("etcd was wiped or restored: it has view %d after view %d", next.Number, v.good.Number))
	case v.good != nil && next.Number == v.good.Number && !saySame(next, v.good):
		v.distrust(fmt.Sprintf("etcd was wiped or restored: it has another view %d", next.Number))
	default:
		if err := v.trust(next, kv.Value); err != nil {
			v.alarm = fmt.Sprintf("etcd has a view that cannot be routed by: %v", err)
		}
		v.revision = kv.ModRevision
	}
}

// trust makes next, as stored, the good view.
func (v *viewBelief) trust(next *view.View, raw []byte) error {
	routing, err := cluster.RoutingView(next)
	if err != nil {
		return err
	}
	v.good, v.routing, v.raw = next, routing, raw
	return nil
}

// saySame reports whether two views say the same. Other software may have written one of them.
func saySame(v, w *view.View) bool {
	a, errA := view.Marshal(v)
	b, errB := view.Marshal(w)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// isOtherVersion reports whether an error says that another version of this software has written a view.
func isOtherVersion(err error) bool {
	_, other := errors.AsType[*view.VersionError](err)
	return other
}

// distrust keeps the good view although etcd no longer has it.
func (v *viewBelief) distrust(why string) { v.alarm, v.wiped = why, true }
