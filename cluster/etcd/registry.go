package etcd

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
)

// ErrSuperseded is what Run ends with when another node was started under the
// announced id: the key in etcd has a higher incarnation.
var ErrSuperseded = errors.New("another node was started under this id")

// Registry is a cluster.Registry in etcd. Its methods may be called from several
// goroutines.
type Registry struct {
	cluster      string
	ttl          time.Duration
	keys         keys
	log          *slog.Logger
	client       *clientv3.Client
	where        string // the endpoints, for messages
	metrics      *metrics
	reachability *reachability

	known     *Known        // from an earlier run; nil if there was none
	announced chan struct{} // its slot is filled when the node lease has something to look at

	mu     sync.Mutex
	params []byte        // guarded by mu; as stored, once Bootstrap has seen them
	node   cluster.Node  // guarded by mu; what to announce, if its ID is not empty
	put    receipt       // guarded by mu; the node lease's last put
	view   seenView      // guarded by mu
	stop   func()        // guarded by mu; ends Run, nil before it
	ended  chan struct{} // closed when Run has returned; made by it, guarded by mu
	closed bool          // guarded by mu
}

var _ cluster.Registry = (*Registry)(nil)

// receipt says what stands in etcd of our node.
type receipt struct {
	node        cluster.Node
	lease       clientv3.LeaseID
	modRevision int64 // of the key; 0 before the first put
}

// seenView is what Run knows of the view.
type seenView struct {
	number uint64 // of the newest that was seen; 0 before the first
	alarm  string // why the stored one is not believed, or empty
	wiped  bool   // it is older than number, so that nothing may be written over it
}

// Where returns the endpoints, for messages.
func (r *Registry) Where() string { return r.where }

// Close ends Run, if need be, waits for it and disconnects. It may be called
// again.
func (r *Registry) Close() {
	r.mu.Lock()
	again := r.closed
	r.closed = true
	stop, ended := r.stop, r.ended
	r.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
	if !again {
		r.client.Close() // its error is the cancellation that it causes itself
		r.metrics.unregister()
	}
}

// Announce makes node known to the others, now if etcd answers and otherwise as
// soon as it does again, until Run ends. Every call replaces what the last one
// said; the ID must stay the same. It does not block.
func (r *Registry) Announce(node cluster.Node) {
	if err := checkName("node", node.ID, maxNodeID); err != nil {
		r.log.Error("node cannot be announced", "error", err)
		return
	}
	r.mu.Lock()
	r.node = node
	r.mu.Unlock()
	r.nudge()
}

// nudge makes the node lease look at the announcement.
func (r *Registry) nudge() {
	select {
	case r.announced <- struct{}{}:
	default: // it has not looked since the last nudge
	}
}

// Reachable reports whether etcd answers: whether anything has succeeded since
// the last failure, or at least within the last 3 s.
func (r *Registry) Reachable() bool { return r.reachability.status().Reachable }

// Status returns how the registry is doing.
func (r *Registry) Status() Status {
	s := r.reachability.status()
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Alarm, s.Wiped = r.view.alarm, r.view.wiped
	return s
}
