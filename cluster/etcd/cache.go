package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
)

// etcdCache is a copy of what etcd holds of a cluster, and what to believe of it.
// It does no I/O but logging. It belongs to one goroutine.
type etcdCache struct {
	keys keys
	log  *slog.Logger

	revision int64 // of etcd, that the entries are of
	nodes    map[string]nodeEntry
	params   []byte    // as stored; nil if absent
	stored   *keyValue // the view's key; nil if absent
	rules    *keyValue // nil if absent
	tokens   *keyValue // nil if absent

	view     viewBelief
	believed believedValues
	reported map[string]string // key to the malformed value that was logged

	handedOut bool // content has returned true before
	last      cluster.RegistryContent
}

// nodeEntry is a node's key.
type nodeEntry struct {
	node        cluster.Node
	valid       bool // whether value is a node, which is then node
	modRevision int64
}

func newCache(k keys, log *slog.Logger) *etcdCache {
	return &etcdCache{keys: k, log: log, nodes: make(map[string]nodeEntry), reported: make(map[string]string)}
}

// recall believes what is known from an earlier run.
func (m *etcdCache) recall(known *Known) error {
	raw, err := view.Marshal(known.View)
	if err != nil {
		return err
	}
	if err := m.view.trust(known.View, raw); err != nil {
		return err
	}
	if known.Rules != nil {
		m.believed.rules = &keyValue{Value: known.Rules}
	}
	if known.Tokens != nil {
		m.believed.tokens = &keyValue{Value: known.Tokens}
	}
	return nil
}

// replace forgets all entries and takes those of a full list at revision.
func (m *etcdCache) replace(kvs []*keyValue, revision int64) {
	old := m.reported
	m.reported = make(map[string]string) // only what is still there stays
	clear(m.nodes)
	m.params, m.stored, m.rules, m.tokens = nil, nil, nil, nil
	for _, kv := range kvs {
		if said, ok := old[string(kv.Key)]; ok {
			m.reported[string(kv.Key)] = said
		}
		m.set(kv)
	}
	m.revision = revision
}

// set takes a key that was put.
func (m *etcdCache) set(kv *keyValue) {
	m.revision = max(m.revision, kv.ModRevision)
	key := string(kv.Key)
	switch id, isNode := strings.CutPrefix(key, m.keys.nodes); {
	case isNode:
		e := nodeEntry{modRevision: kv.ModRevision}
		var err error
		if e.node, err = parseNode(id, kv.Value); err != nil {
			m.report(key, kv.Value, "node in etcd ignored", err)
		}
		e.valid = err == nil
		m.nodes[id] = e
	case key == m.keys.params:
		m.params = kv.Value
	case key == m.keys.view:
		m.stored = kv
	case key == m.keys.rules:
		m.rules = kv
	case key == m.keys.tokens:
		m.tokens = kv
	}
}

// unset takes a key that was deleted at revision.
func (m *etcdCache) unset(key string, revision int64) {
	m.revision = max(m.revision, revision)
	delete(m.reported, key)
	switch id, isNode := strings.CutPrefix(key, m.keys.nodes); {
	case isNode:
		delete(m.nodes, id)
	case key == m.keys.params:
		m.params = nil
	case key == m.keys.view:
		m.stored = nil
	case key == m.keys.rules:
		m.rules = nil
	case key == m.keys.tokens:
		m.tokens = nil
	}
}

// parseNode reads what Announce wrote under id.
func parseNode(id string, value []byte) (cluster.Node, error) {
	var n cluster.Node
	if err := checkName("id", id, maxNodeID); err != nil {
		return cluster.Node{}, err
	}
	if len(value) > maxNodeValue {
		return cluster.Node{}, fmt.Errorf("%d bytes are more than %d", len(value), maxNodeValue)
	}
	if err := json.Unmarshal(value, &n); err != nil {
		return cluster.Node{}, err
	}
	switch {
	case n.ID != id:
		return cluster.Node{}, fmt.Errorf("id is %q", n.ID)
	case n.Address == "":
		return cluster.Node{}, errors.New("address is missing")
	case n.Incarnation == 0:
		return cluster.Node{}, errors.New("incarnation is missing")
	case n.State == "":
		return cluster.Node{}, errors.New("state is missing")
	}
	if n.Restored > view.MaxRestored {
		return cluster.Node{}, fmt.Errorf("restored: %d is above %d", n.Restored, uint64(view.MaxRestored))
	}
	if err := checkAddress(n.Address); err != nil {
		return cluster.Node{}, err
	}
	return n, nil
}

// report logs a malformed value once for as long as it stands there.
func (m *etcdCache) report(key string, value []byte, msg string, err error) {
	if said, ok := m.reported[key]; ok && said == string(value) {
		return
	}
	m.reported[key] = string(value)
	m.log.Error(msg, "key", key, "error", err)
}

// content returns what to believe and whether that is new. The first is. params
// are those that must stand in etcd, or nil if that is not known.
func (m *etcdCache) content(params []byte) (cluster.RegistryContent, bool) {
	m.believe(params)
	m.believeValues()
	content := cluster.RegistryContent{Nodes: m.sortedNodes(), View: m.view.good, Routing: m.view.routing}
	if content.View != nil {
		content.ViewRevision = m.view.revision
	}
	if m.believed.rules != nil {
		content.Rules = m.believed.rules.Value
	}
	if m.believed.tokens != nil {
		content.Tokens = m.believed.tokens.Value
	}
	if m.handedOut && content.View == m.last.View && content.ViewRevision == m.last.ViewRevision &&
		bytes.Equal(content.Rules, m.last.Rules) && bytes.Equal(content.Tokens, m.last.Tokens) && slices.Equal(content.Nodes, m.last.Nodes) {
		return m.last, false
	}
	m.handedOut = true
	// The receiver may do with its slice what it likes.
	m.last = content
	m.last.Nodes = slices.Clone(content.Nodes)
	return content, true
}

func (m *etcdCache) sortedNodes() []cluster.Node {
	nodes := make([]cluster.Node, 0, len(m.nodes))
	for _, e := range m.nodes {
		if e.valid {
			nodes = append(nodes, e.node)
		}
	}
	slices.SortFunc(nodes, func(a, b cluster.Node) int { return strings.Compare(a.ID, b.ID) })
	return nodes
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

// Nodes returns the nodes that are announced now, sorted by ID.
func (r *Registry) Nodes(ctx context.Context) ([]cluster.Node, error) {
	var resp *clientv3.GetResponse
	err := r.call(ctx, openTimeout, func(ctx context.Context) (err error) {
		resp, err = r.client.Get(ctx, r.keys.nodes, clientv3.WithPrefix(), clientv3.WithLimit(maxNodes))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing nodes of cluster %q: %w", r.cluster, err)
	}
	m := newCache(r.keys, r.log)
	m.replace(resp.Kvs, resp.Header.Revision)
	return m.sortedNodes(), nil
}
