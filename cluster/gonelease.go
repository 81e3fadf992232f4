package cluster

import (
	"slices"
	"sync"

	"github.com/weirlimit/weir/cluster/view"
)

// goneLeases knows which lives of members have no etcd lease any more. The zero value is ready, and safe for concurrent use.
type goneLeases struct {
	mu sync.Mutex
	at map[view.Life]uint64 // by life whose etcd lease was gone, the number of the newest view that was written before; guarded by mu
}

// Update implements Electorate: it records what the registry holds.
func (g *goneLeases) Update(content RegistryContent) {
	if content.View == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	registered := func(l view.Life) bool {
		return slices.ContainsFunc(content.Nodes, func(n Node) bool { return n.ID == l.ID && n.Incarnation == l.Incarnation })
	}
	if g.at == nil {
		g.at = make(map[view.Life]uint64)
	}
	for _, m := range content.View.Members {
		if !registered(m.Life) {
			g.at[m.Life] = max(g.at[m.Life], content.View.Number)
		}
	}
	for l := range g.at {
		if !content.View.Names(l) {
			delete(g.at, l)
		}
	}
}

// isGone reports whether the etcd lease of a life was gone at some moment after the view of that number was written.
func (g *goneLeases) isGone(l view.Life, number uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, gone := g.at[l]
	return gone && at >= number
}
