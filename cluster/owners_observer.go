package cluster

import (
	"time"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/view"
)

// observer is the ownership.Observer of Owners.
type observer struct{ o *Owners }

// Opened implements ownership.Observer.
func (b observer) Opened(p uint32) {
	b.o.Router.own.denialLeases.Opened(p, uint32(b.o.params.Partitions))
}

// Moved implements ownership.Observer.
func (b observer) Moved(how ownership.Move) {
	switch m := &b.o.metrics; how {
	case ownership.HandedOver:
		m.handedOver.Inc()
	case ownership.Displaced:
		m.displaced.Inc()
	case ownership.Received:
		m.received.Inc()
	case ownership.Continued:
		m.continued.Inc()
	}
}

// Added implements ownership.Observer.
func (b observer) Added(counters int) { b.o.metrics.merged.Add(float64(counters)) }

// Followed implements ownership.Observer: it records which member is fed as the standby of a partition.
func (b observer) Followed(p uint32, standby view.Life) {
	var c *otherMember
	if standby != (view.Life{}) {
		c = b.o.knownMembers.of(standby)
	}
	if old := b.o.standbys[p].Swap(c); old != nil {
		old.awaited.Store(0) // what waited for it waits for the next one, if there is one
	}
	if c == nil {
		b.o.Router.own.denialLeases.strictAcks.drop(p)
	}
}

// Begin implements ownership.Observer.
func (b observer) Begin(p uint32) uint64 { return b.o.Router.own.denialLeases.strictAcks.begin(p) }

// Acknowledged implements ownership.Observer.
func (b observer) Acknowledged(p uint32, round uint64, sent time.Time) {
	if c := b.o.standbys[p].Load(); c != nil {
		b.o.Router.own.denialLeases.strictAcks.acknowledged(c, sent, p, round)
	}
}
