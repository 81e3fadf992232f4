package etcd

import (
	"bytes"
	"errors"

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
