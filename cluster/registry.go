package cluster

import (
	"context"
	"errors"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

// Params are fixed when a cluster is bootstrapped and never change.
type Params struct {
	// Format is the version of the formats and hashes that the cluster uses.
	Format int `json:"format"`
	// Ring shapes the ring.
	Ring ring.Params `json:"ring"`
	// Secret keys the hash of every counter key. In JSON it is base64.
	Secret []byte `json:"secret"`
}

// Format is the version that this software reads and writes.
const Format = 1

// State is what a node says that it is doing.
type State string

// The states of a node.
const (
	Joining State = "joining" // started, does not serve yet
	Ready   State = "ready"   // serves
	Leaving State = "leaving" // gives its counters away
	Left    State = "left"    // has none any more, and is about to stop
)

// Node is what a node says of itself to the others.
type Node struct {
	ID          string `json:"id"`
	Address     string `json:"address"`     // host:port of gRPC
	Incarnation uint64 `json:"incarnation"` // rises at every start of a node of this id, from 1
	State       State  `json:"state"`
	Version     string `json:"version"` // of its software
	RulesHash   string `json:"rules_hash"`
	OwnRules    bool   `json:"own_rules,omitempty"` // they come from files of its own, not from the registry
	TLS         bool   `json:"tls,omitempty"`       // its connections are encrypted
	Admin       string `json:"admin,omitempty"`     // host:port of its admin port; empty if it has none
	Restored    uint64 `json:"restored,omitempty"`  // the highest term of the counters that it has restored from a snapshot, at most view.MaxRestored
}

// Member returns n as a member of a view.
func (n Node) Member() Member {
	return Member{ID: n.ID, Address: n.Address, Incarnation: n.Incarnation}
}

// RegistryContent is what the registry holds at one moment.
type RegistryContent struct {
	// Nodes are sorted by ID.
	Nodes []Node
	// View is nil before the first. Routing is what to route by then.
	View    *view.View
	Routing *View
	// ViewRevision is the registry's revision of the stored view, to pass to
	// SwapView; 0 while there is none. View is older than what is stored there if
	// that is damaged or lies behind what was seen before.
	ViewRevision int64
	// Rules are the rules as stored, or as they were before the store lost what was
	// seen in it; nil if there are none. Read-only.
	Rules []byte
	// Tokens are the tokens of clients as stored, in the same way as Rules.
	Tokens []byte
}

// Registry is the store in which nodes agree on views, as Membership needs it. Package
// cluster/etcd provides it.
type Registry interface {
	// SwapView stores v if the stored one is still at revision; 0 means that there must be none. It
	// returns ErrViewChanged if another node was faster.
	SwapView(ctx context.Context, v *view.View, revision int64) error
	// Evict ends that this life of a node is registered, if it is. If the node lives it registers again.
	Evict(ctx context.Context, l Life) error
}

// ErrViewChanged says that the view in the store is not the one that was to be
// replaced, or that the store holds less than was seen before.
var ErrViewChanged = errors.New("view has changed")
