package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/decisionlog"
)

// Times of starting and stopping. Stopping as a whole stays below 5 s, once others have what
// this node has held.
const (
	joinPatience     = 5 * time.Second         // how long to wait quietly for a place in the view
	leavePatience    = 1500 * time.Millisecond // for the view without this node
	handOverPatience = 20 * time.Second        // for others to get what this node has
	drainPatience    = 1500 * time.Millisecond // for calls under way
	peerPatience     = time.Second             // for the peers to answer, once in the view, and to say what they have
	flushPatience    = time.Second             // to tell the standbys what they do not know yet
	lookEvery        = 10 * time.Millisecond   // at conditions that nothing signals
)

// Info says where a node can be reached, with the ports that were really bound.
type Info struct {
	ID           string
	GRPC, HTTP   string // host:port
	Admin        string // host:port; empty without an admin port
	Etcd         string // host:port, comma-separated
	EmbeddedEtcd bool
	Rules        int
	RulesPath    string // of files; empty if there are none
	XDS          string // the server of the rules; empty if there is none
	RLS          string // host:port; empty without a port for Envoy alone
	// Descriptors says that all rules are envoyproxy/ratelimit's, which only Envoy's API reads.
	Descriptors bool
	// Reloader has the node read again what it has read when it was started.
	Reloader *Reloader
	// Parts of the node say whether it is stuck.
	Parts *Parts
}

// Parts are what a node is made of.
type Parts struct{ node *node }

// Answer returns once all parts of the node have answered, and never if one of them is stuck. The network, etcd and other
// nodes have no say: a node that is cut off, or has too much to do, is not stuck:
// another start would not help it.
func (p *Parts) Answer() { p.node.answer() }

// Reloader has a node read again what may change while it runs.
type Reloader struct {
	rules     ruleSource
	certs     *certs.Source    // nil without TLS
	tokens    *tokenFile       // nil without one
	audit     *auditFile       // nil without one
	decisions *decisionlog.Log // nil without one
}

// Reload reads the rules, the certificate and the tokens again, and opens the files of the audit log and the decision log again. It
// waits for these files only, and not for the decision log; the log says what comes of it.
func (r *Reloader) Reload() {
	r.rules.Reread()
	if r.certs != nil {
		r.certs.Reread()
	}
	if r.tokens != nil {
		r.tokens.Reread()
	}
	if r.audit != nil {
		r.audit.Reopen()
	}
	if r.decisions != nil {
		r.decisions.Reopen()
	}
}

// Run runs a node until ctx ends, which is no error, or until it cannot go on. It
// calls ready once the node is a member and serves.
func Run(ctx context.Context, opts Options, log *slog.Logger, ready func(Info)) error {
	return RunOn(ctx, Network{}, opts, log, ready)
}

// RunOn is Run on another network than TCP.
func RunOn(ctx context.Context, network Network, opts Options, log *slog.Logger, ready func(Info)) error {
	n, err := build(ctx, network, opts, log)
	if err != nil {
		return err
	}
	defer n.close()
	processBallast.begin()
	defer processBallast.end()
	err = n.run(ctx, ready)
	if network.Killed == nil || !network.Killed() {
		n.snapshots.finish()
	}
	return err
}

// run serves. The parts have contexts of their own, because they must end one
// after the other: the servers keep answering while the node leaves the ring.
func (n *node) run(ctx context.Context, ready func(Info)) error {
	parts, endParts := context.WithCancel(context.Background())
	defer endParts()
	registry, endRegistry := context.WithCancel(parts)
	g, failed := errgroup.WithContext(parts)
	g.Go(func() error {
		if err := n.grpc.Serve(n.grpcListener); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil // stopped before it began
	})
	g.Go(func() error { return serveHTTP(n.http, n.httpListener) })
	if n.admin != nil {
		g.Go(func() error { return serveHTTP(n.admin.http, n.adminListener) })
	}
	if n.pprof != nil {
		g.Go(func() error { return serveHTTP(n.pprof, n.pprofListener) })
	}
	if n.rls != nil {
		g.Go(func() error {
			if err := n.rls.grpc.Serve(n.rlsListener); !errors.Is(err, grpc.ErrServerStopped) {
				return err
			}
			return nil
		})
	}
	g.Go(func() error { return n.rules.Run(failed) })
	if n.rls != nil {
		g.Go(func() error { n.rls.cert.Run(failed); return nil })
	}
	if n.opts.XDSCert != "" {
		g.Go(func() error { n.watchXDSCert(failed); return nil })
	}
	if n.certs != nil {
		g.Go(func() error { n.certs.Run(failed); return nil })
	}
	if n.tokens != nil {
		g.Go(func() error { n.tokens.Run(failed); return nil })
	}
	g.Go(func() error { return n.shard.Run(failed) })
	if n.network.Listen == nil { // else what the kernel does has nothing to do with how late calls are read
		g.Go(func() error { return n.overload.Run(failed) })
		g.Go(func() error { n.ui.Run(failed); return nil })
	}
	g.Go(func() error { n.evictions.Run(failed); return nil })
	g.Go(func() error { n.watchOwnAddress(failed); return nil })
	g.Go(func() error { n.snapshots.Run(failed); return nil })
	g.Go(func() error { n.membership.Run(failed); return nil })
	g.Go(func() error { n.owners.Run(failed); return nil })
	registryEnded := make(chan struct{})
	g.Go(func() error {
		defer close(registryEnded)
		if err := n.registry.Run(registry, n.update); err != nil {
			return fmt.Errorf("node %s: %w", n.opts.ID, err)
		}
		return nil
	})
	g.Go(func() error { n.watchEtcd(failed); return nil })
	g.Go(func() error { n.state.Run(parts); return nil })
	if n.offline.Load() {
		g.Go(func() error { return n.join(ctx, failed) })
	} else {
		g.Go(func() error { return n.enter(ctx, failed) })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			n.leave(failed)
		case <-failed.Done(): // something broke: go at once
		}
		endRegistry()
		<-registryEnded
		if n.owners.IsOver() { // so that less is to be sent while no caller is answered
			n.owners.SendLast()
		}
		n.stopServers()
		n.owners.SayFarewell()
		endParts()
		return nil
	})
	g.Go(func() error { return n.untilReady(ctx, failed, ready) })
	return g.Wait()
}

// serveHTTP serves until the server is stopped, which is no error.
func serveHTTP(s *http.Server, l net.Listener) error {
	serve := func() error { return s.Serve(l) }
	if s.TLSConfig != nil {
		serve = func() error { return s.ServeTLS(l, "", "") }
	}
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// update passes on what the registry holds.
func (n *node) update(content cluster.RegistryContent) {
	if n.store != nil {
		n.store.Update(content.Rules)
	}
	n.useTokens(content.Tokens)
	n.membership.Update(content)
	n.seen.Store(true)
}

// watchEtcd tells when the etcd in this process has died, as when its disk is full.
// The node serves on by its last view: that is what callers need of it, and no
// restart would help them.
func (n *node) watchEtcd(ctx context.Context) {
	if n.etcd == nil {
		return
	}
	select {
	case <-ctx.Done():
	case err, died := <-n.etcd.Err():
		if died {
			n.etcdDied.Store(&err)
			n.log.Error("the embedded etcd has died; checks go on", "error", err)
		}
	}
}

// untilReady waits for a place in the view, and calls ready.
func (n *node) untilReady(ctx, failed context.Context, ready func(Info)) error {
	if !n.await(ctx, failed, joinPatience, n.canDecide) {
		if ctx.Err() == nil && failed.Err() == nil {
			n.log.Warn("still not a member: waiting for a node that writes the next view", "id", n.opts.ID)
		}
		if !n.await(ctx, failed, 0, n.canDecide) {
			return nil
		}
	}
	n.await(ctx, failed, peerPatience, n.reachesAll)
	n.started.Store(true)
	n.await(ctx, failed, peerPatience, n.owners.Sought)
	n.await(ctx, failed, joinPatience, func() bool { return len(n.View().Present()) > 1 || n.owners.HandoverStatus().Wanted == 0 })
	if !n.hasRules() && n.network.Waiting != nil {
		n.network.Waiting("waiting for the first rules of the xDS server "+n.opts.XDSServer, &Parts{n})
	}
	if !n.await(ctx, failed, joinPatience, n.hasRules) && ctx.Err() == nil && failed.Err() == nil {
		n.log.Warn("not serving before the xDS server has sent rules", "server", n.opts.XDSServer, "node", n.opts.XDSNodeID)
		n.await(ctx, failed, 0, n.hasRules)
	}
	if ctx.Err() != nil || failed.Err() != nil {
		return nil // leaving already
	}
	n.beginServing()
	ready(n.info())
	return nil
}

// await reports whether the condition came true before ctx or failed ended, or
// the patience, unless that is 0.
func (n *node) await(ctx, failed context.Context, patience time.Duration, condition func() bool) bool {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var over <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		over = timer.C
	}
	for !condition() {
		select {
		case <-ctx.Done():
			return false
		case <-failed.Done():
			return false
		case <-over:
			return false
		case <-look.C:
		}
	}
	return true
}

// leave announces that the node leaves, and waits until the members use other nodes.
func (n *node) leave(failed context.Context) {
	n.log.Info("leaving", "id", n.opts.ID)
	n.leaving.Store(true)
	n.health.Shutdown() // not to be undone by untilReady, which may have passed its last look
	alone := func() bool { return len(n.View().Present()) < 2 }
	if alone() || n.Self().Incarnation == 0 { // it was never registered
		return
	}
	n.announce(func(self *cluster.Node) { self.State = cluster.Leaving })
	given := func() bool { return n.handedOver() || !n.EtcdReachable() }
	if n.await(context.Background(), failed, leavePatience, func() bool { return n.seenLeaving() || given() }) {
		n.await(context.Background(), failed, handOverPatience, given)
	}
	if !n.handedOver() {
		s := n.owners.HandoverStatus()
		n.log.Warn("leaving with partitions that were not handed over, to the standbys", "id", n.opts.ID, "partitions", s.Active+s.Leaving)
		n.flush()
		return
	}
	n.owners.EndConfirming()
	n.announce(func(self *cluster.Node) { self.State = cluster.Left })
	gone := func() bool {
		return !n.View().IsMember(n.opts.ID) || !n.othersReady()
	}
	if !n.await(context.Background(), failed, leavePatience, gone) {
		n.log.Warn("leaving although the others still count on this node", "id", n.opts.ID)
	}
}

// flush leaves the partitions to their standbys: without etcd there is no handover.
func (n *node) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	n.owners.Flush(ctx)
}

// seenLeaving reports whether etcd has told that this node leaves. One that takes nothing more,
// as with a full disk, may be reachable all the same.
func (n *node) seenLeaving() bool {
	return slices.ContainsFunc(n.Nodes(), func(o cluster.Node) bool { return o.ID == n.opts.ID && o.State == cluster.Leaving })
}

// handedOver reports whether other nodes have all partitions of this node, or there is no node that could.
func (n *node) handedOver() bool {
	v := n.View()
	i, member := v.Index(n.opts.ID)
	s := n.owners.HandoverStatus()
	return (!member || v.Members[i].Leaving || v.Members[i].Gone) && s.Active+s.Leaving == 0 || !n.othersReady()
}

// othersReady reports whether there is another node that serves.
func (n *node) othersReady() bool {
	return slices.ContainsFunc(n.Nodes(), func(o cluster.Node) bool { return o.ID != n.opts.ID && o.State == cluster.Ready })
}

// stopServers lets calls under way finish.
func (n *node) stopServers() {
	if n.owners.IsOver() {
		n.peers.Close() // views still name it: others would take it for one that hands over, and not decide from their copies
	}
	n.config.Stop()
	n.limiter.Stop()
	patience, cancel := context.WithTimeout(context.Background(), drainPatience+n.opts.AuthMaxDelay)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		n.grpc.GracefulStop()
	}()
	if err := n.http.Shutdown(patience); err != nil {
		_ = n.http.Close() // the clients had their time
	}
	if n.admin != nil {
		n.admin.stop(patience)
	}
	if n.pprof != nil {
		_ = n.pprof.Close() // the rest of a profile is not worth waiting for
	}
	if n.rls != nil {
		n.rls.stop(patience)
	}
	n.peers.Shutdown(patience)
	select {
	case <-drained:
	case <-patience.Done():
		n.grpc.Stop()
		<-drained
	}
}
