package cluster

import (
	"fmt"
	"time"
)

// Bounds of what is remembered of strangers.
const (
	maxStrangers   = 64               // more are neither logged nor named
	strangerNamed  = 10 * time.Second // after it was met last; connections are tried again far more often
	strangerForgot = 10 * time.Minute // after that it is logged again
)

// stranger is a node that was met instead of another one.
type stranger struct {
	met     Identity
	instead Identity         // the node that was meant: by this node at address, or by the one that was met
	address string           // its address; "" if the stranger has called this node
	version connVersionError // that it speaks, if that is why it is one; else zero
}

// error says how the stranger was met by the node self.
func (s stranger) error(self Identity) error { return strangerError(s.describe(self)) }

// strangerError says that a connection leads to the wrong node.
type strangerError string

func (e strangerError) Error() string { return string(e) }

func (s stranger) describe(self Identity) string {
	if s.version != (connVersionError{}) {
		if s.met.ID == "" {
			return fmt.Sprintf("a node at %s %v", s.address, s.version)
		}
		return fmt.Sprintf("node %q at %s %v", s.met.ID, s.address, s.version)
	}
	met, meant := fmt.Sprintf("node %q", s.met.ID), fmt.Sprintf("node %q", s.instead.ID)
	switch {
	case s.met.Cluster != self.Cluster:
		met += " of another cluster"
	case s.isEarlier(self):
		meant = fmt.Sprintf("incarnation %d of %s", s.instead.Incarnation, meant)
	}
	if s.address == "" {
		return fmt.Sprintf("%s calls this node and means %s", met, meant)
	}
	return fmt.Sprintf("%s answers at %s instead of %s", met, s.address, meant)
}

// isEarlier reports whether the node that was met is an earlier incarnation of the one that was meant.
func (s stranger) isEarlier(self Identity) bool {
	met := s.met
	if s.address == "" {
		met.ID = self.ID
	}
	return s.met.Cluster == self.Cluster && met.ID == s.instead.ID
}
