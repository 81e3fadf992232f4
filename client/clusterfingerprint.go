package client

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// identityKept is for how long a client without a node of its cluster keeps to that cluster.
const identityKept = time.Minute

// errForeign says that a node belongs to another cluster than the client asks.
var errForeign = errors.New("a node of another cluster")

// clusterIdentity is which cluster a client asks, by its fingerprint. A node of another cluster may answer at an
// address that was a node's of this one, so each node is asked for its fingerprint when a stream to it begins. Unless
// it was given, the client's cluster is the one that the most addresses have named; of several, the one that was so first.
// If no address names it any more, it stays so until none of its nodes was up for a minute: then its addresses
// were given to another cluster. An identity is safe for concurrent use.
type clusterIdentity struct {
	given   bool                 // so it never changes
	downFor func() time.Duration // for how long no node was up; 0 while one is

	mu          sync.Mutex
	fingerprint string             // "" until a node has named one; guarded by mu
	named       map[*member]string // by the node that answered last at each address; guarded by mu
}

func newClusterIdentity(given string, downFor func() time.Duration) *clusterIdentity {
	return &clusterIdentity{given: given != "", downFor: downFor, fingerprint: given, named: make(map[*member]string)}
}

// admit records the cluster that a node has named. The error is errForeign, wrapped, if it is not the
// client's. A node that names none is of a version that does not.
func (i *clusterIdentity) admit(m *member, id, fingerprint string) error {
	if fingerprint == "" {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.named[m] = fingerprint
	if i.movesToLocked(fingerprint) {
		i.fingerprint = fingerprint
	}
	if fingerprint != i.fingerprint {
		return fmt.Errorf("node %q at %s: %w: %s, not %s", id, m.address, errForeign, fingerprint, i.fingerprint)
	}
	return nil
}

// movesToLocked reports whether a cluster that a node has just named is the client's from now on.
func (i *clusterIdentity) movesToLocked(fingerprint string) bool {
	if i.given || i.fingerprint == "" {
		return !i.given
	}
	var own, other int
	for _, named := range i.named {
		switch named {
		case i.fingerprint:
			own++
		case fingerprint:
			other++
		}
	}
	if own == 0 {
		return i.downFor() >= identityKept
	}
	return other > own
}

// has reports whether the node that answered last at an address is of the client's cluster, or may be.
func (i *clusterIdentity) has(m *member) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	named := i.named[m]
	return named == "" || named == i.fingerprint
}

// forget removes an address that is not asked any more.
func (i *clusterIdentity) forget(m *member) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.named, m)
}
