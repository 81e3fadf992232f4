package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
)

// Run keeps the announced node known to the others and calls onChange with every
// change of what the registry holds: with all that it holds at one moment,
// never twice with the same, and never concurrently. onChange should return
// soon: further changes wait for it.
//
// While etcd is unreachable Run goes on and onChange is not called. When ctx ends, or
// Close is called, Run takes the node's key away, which takes at most 1 s, and
// returns nil. It returns ErrSuperseded, wrapped, if another node was started
// under the announced id. It may be called once; onChange must not call Close.
func (r *Registry) Run(ctx context.Context, onChange func(cluster.RegistryContent)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	r.mu.Lock()
	if r.closed || r.stop != nil {
		r.mu.Unlock()
		return errors.New("etcd registry: closed or run before")
	}
	r.stop, r.ended = cancel, ended
	r.mu.Unlock()

	kept := make(chan error, 1)
	go func() {
		defer cancel()
		kept <- newNodeLease(r).run(ctx)
	}()
	f := follower{r: r, cache: newCache(r.keys, r.log), onChange: onChange}
	err := f.recall()
	if err == nil {
		err = f.run(ctx)
	}
	cancel()
	if keptErr := <-kept; err == nil {
		err = keptErr
	}
	return err
}

// follower mirrors etcd and hands out its content. It belongs to one goroutine.
type follower struct {
	r        *Registry
	cache    *etcdCache
	onChange func(cluster.RegistryContent)
	params   []byte // of our cluster, once they were seen in etcd; they must stay
}

// recall begins with what is known from an earlier run.
func (f *follower) recall() error {
	if f.r.known == nil {
		return nil
	}
	f.params = f.r.known.Params
	return f.cache.recall(f.r.known)
}

// run lists and watches until ctx ends, when it returns nil, or until the node is
// superseded.
func (f *follower) run(ctx context.Context) error {
	pause := minPause
	for why := listFirst; ; {
		f.r.metrics.lists.WithLabelValues(why).Inc()
		began := time.Now()
		err := f.list(ctx)
		if err != nil {
			why = listFailed
		} else {
			err = f.watch(ctx)
			why = whyList(err)
			f.r.log.Debug("watch of etcd ended", "error", err)
		}
		switch {
		case errors.Is(err, ErrSuperseded):
			return err
		case ctx.Err() != nil:
			return nil
		}
		// A watch that held shows that etcd is well; one that breaks at once must
		// not make us spin.
		if time.Since(began) > maxPause {
			pause = minPause
		}
		sleep(ctx, pause/2+rand.N(pause))
		pause = min(2*pause, maxPause)
	}
}

// whyList names the end of a watch.
func whyList(err error) string {
	switch {
	case errors.Is(err, errScheduled):
		return listScheduled
	case errors.Is(err, errCompacted):
		return listCompacted
	}
	return listCut
}

// list reads everything at one revision.
func (f *follower) list(ctx context.Context) error {
	k := f.r.keys
	resp, err := f.r.txn(ctx, callTimeout, transaction{then: []clientv3.Op{
		clientv3.OpGet(k.nodes, clientv3.WithPrefix(), clientv3.WithLimit(maxNodes+1)),
		clientv3.OpGet(k.params),
		clientv3.OpGet(k.view),
		clientv3.OpGet(k.rules),
		clientv3.OpGet(k.tokens),
	}})
	if err != nil {
		return err
	}
	var kvs []*keyValue
	for _, op := range resp.Responses {
		kvs = append(kvs, op.GetResponseRange().GetKvs()...)
	}
	if len(kvs) > maxNodes+4 {
		return fmt.Errorf("listing nodes: more than %d", maxNodes)
	}
	f.cache.replace(kvs, resp.Header.Revision)
	return f.deliver()
}

// watch follows the changes since the list. It begins with the last one that the list
// has: etcd tells no progress to a watch that waits for a revision that is still to come,
// so that one in peace would seem to be silent.
func (f *follower) watch(ctx context.Context) error {
	return f.r.watchFrom(ctx, f.cache.revision, func(resp *etcdserverpb.WatchResponse) error {
		if len(resp.Events) == 0 { // progress
			return f.checkOwn()
		}
		for _, ev := range resp.Events {
			if ev.Type == mvccpb.DELETE {
				f.cache.unset(string(ev.Kv.Key), ev.Kv.ModRevision)
			} else {
				f.cache.set(ev.Kv)
			}
		}
		return f.deliver()
	})
}

// deliver hands out the content if it is new.
func (f *follower) deliver() error {
	r, m := f.r, f.cache
	if f.params == nil && m.params != nil && bytes.Equal(m.params, r.Params()) {
		f.params = m.params
	}
	content, changed := m.content(f.params)

	seen := seenView{alarm: m.view.alarm, wiped: m.view.wiped}
	if m.view.good != nil {
		seen.number = m.view.good.Number
	}
	r.mu.Lock()
	was := r.view.alarm
	r.view = seen
	r.mu.Unlock()
	r.metrics.setAlarm(seen.alarm != "")
	switch {
	case seen.alarm == was:
	case seen.alarm != "":
		r.log.Error("view in etcd refused", "reason", seen.alarm)
	default:
		r.log.Info("view in etcd is good again")
	}
	if changed {
		f.onChange(content)
	}
	return f.checkOwn()
}

// checkOwn looks after our own key.
func (f *follower) checkOwn() error {
	r, m := f.r, f.cache
	r.mu.Lock()
	node, put := r.node, r.put
	r.mu.Unlock()
	own := m.nodes[node.ID]
	if own.valid && own.node.Incarnation > node.Incarnation {
		return superseded(node, own.node)
	}
	if put.modRevision != 0 && m.revision >= put.modRevision && own.modRevision != put.modRevision {
		r.nudge() // another client changed or deleted our key, or a newer put is on its way
	}
	return nil
}
