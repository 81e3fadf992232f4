package memetcd

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// keyValue is immutable once it is in a store.
type keyValue = mvccpb.KeyValue

// store holds keys with their versions. It does no I/O, and has no lock.
type store struct {
	revision  int64 // of the last change; 1 at first
	compacted int64 // older revisions cannot be read; -1 before the first compaction
	base      map[string]*keyValue
	history   []*mvccpb.Event // since base, which is as of compacted; PrevKv is always there
	live      map[string]*keyValue
	leases    map[int64]*lease
}

func newStore() *store {
	return &store{revision: 1, compacted: -1, base: make(map[string]*keyValue), live: make(map[string]*keyValue), leases: make(map[int64]*lease)}
}

// interval is a range of keys as requests give it.
type interval struct{ key, end []byte }

func (i interval) contains(key string) bool {
	switch {
	case len(i.end) == 0:
		return key == string(i.key)
	case len(i.end) == 1 && i.end[0] == 0:
		return key >= string(i.key)
	}
	return key >= string(i.key) && key < string(i.end)
}

// at returns all keys as they were at a revision, 0 for now. The map is not to be changed.
func (s *store) at(revision int64) (map[string]*keyValue, error) {
	switch {
	case revision <= 0 || revision == s.revision:
		return s.live, nil
	case revision > s.revision:
		return nil, rpctypes.ErrGRPCFutureRev
	case revision < s.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	}
	keys := maps.Clone(s.base)
	for _, e := range s.history {
		if e.Kv.ModRevision > revision {
			break
		}
		apply(keys, e)
	}
	return keys, nil
}

func apply(keys map[string]*keyValue, e *mvccpb.Event) {
	if e.Type == mvccpb.DELETE {
		delete(keys, string(e.Kv.Key))
	} else {
		keys[string(e.Kv.Key)] = e.Kv
	}
}

// in returns those of keys that lie in an interval, sorted.
func in(keys map[string]*keyValue, i interval) []*keyValue {
	var found []*keyValue
	for key, kv := range keys {
		if i.contains(key) {
			found = append(found, kv)
		}
	}
	slices.SortFunc(found, byKey)
	return found
}

func byKey(a, b *keyValue) int { return bytes.Compare(a.Key, b.Key) }

// compact forgets what was before revision.
func (s *store) compact(revision int64) error {
	switch {
	case revision <= s.compacted:
		return rpctypes.ErrGRPCCompacted
	case revision > s.revision:
		return rpctypes.ErrGRPCFutureRev
	}
	s.compacted = revision
	for _, e := range s.history {
		if e.Kv.ModRevision <= revision {
			apply(s.base, e)
		}
	}
	s.history = slices.DeleteFunc(s.history, func(e *mvccpb.Event) bool { return e.Kv.ModRevision < revision })
	return nil
}

// update is a change of a store under way: all of it has one revision.
type update struct {
	*store
	events []*mvccpb.Event
}

// now returns the revision that a reader within the update sees.
func (u *update) now() int64 {
	if len(u.events) > 0 {
		return u.revision + 1
	}
	return u.revision
}

// commit makes the update the newest revision, and returns its events.
func (u *update) commit() []*mvccpb.Event {
	u.revision = u.now()
	u.history = append(u.history, u.events...)
	return u.events
}

func (u *update) record(kind mvccpb.Event_EventType, kv *keyValue) {
	e := &mvccpb.Event{Type: kind, Kv: kv, PrevKv: u.live[string(kv.Key)]}
	if e.PrevKv != nil {
		u.detach(e.PrevKv)
	}
	u.events = append(u.events, e)
	apply(u.live, e)
}

func (u *update) put(r *pb.PutRequest) *pb.PutResponse {
	old := u.live[string(r.Key)]
	kv := &keyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, Version: 1, CreateRevision: u.revision + 1, ModRevision: u.revision + 1}
	if old != nil {
		kv.Version, kv.CreateRevision = old.Version+1, old.CreateRevision
	}
	if r.IgnoreValue {
		kv.Value = old.Value
	}
	if r.IgnoreLease {
		kv.Lease = old.Lease
	}
	u.record(mvccpb.PUT, kv)
	u.attach(kv)
	resp := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: u.now()}}
	if r.PrevKv {
		resp.PrevKv = old
	}
	return resp
}

func (u *update) deleteRange(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	found := in(u.live, interval{r.Key, r.RangeEnd})
	for _, kv := range found {
		u.record(mvccpb.DELETE, &keyValue{Key: kv.Key, ModRevision: u.revision + 1})
	}
	resp := &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{Revision: u.now()}, Deleted: int64(len(found))}
	if r.PrevKv {
		resp.PrevKvs = found
	}
	return resp
}

func (u *update) read(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	keys, err := u.at(r.Revision)
	if err != nil {
		return nil, err
	}
	found := in(keys, interval{r.Key, r.RangeEnd})
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: u.now()}, Count: int64(len(found))}
	if r.CountOnly {
		return resp, nil
	}
	found = slices.DeleteFunc(found, func(kv *keyValue) bool { return filtered(r, kv) })
	sortKeys(found, r)
	if r.Limit > 0 && int64(len(found)) > r.Limit {
		found, resp.More = found[:r.Limit], true
	}
	if r.KeysOnly {
		for i, kv := range found {
			found[i] = &keyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
		}
	}
	resp.Kvs = found
	return resp, nil
}

func filtered(r *pb.RangeRequest, kv *keyValue) bool {
	outside := func(revision, least, most int64) bool {
		return revision < least || most != 0 && revision > most
	}
	return outside(kv.ModRevision, r.MinModRevision, r.MaxModRevision) ||
		outside(kv.CreateRevision, r.MinCreateRevision, r.MaxCreateRevision)
}

func sortKeys(kvs []*keyValue, r *pb.RangeRequest) {
	if r.SortTarget == pb.RangeRequest_KEY && r.SortOrder == pb.RangeRequest_NONE {
		return
	}
	slices.SortStableFunc(kvs, func(a, b *keyValue) int {
		if r.SortOrder == pb.RangeRequest_DESCEND {
			a, b = b, a
		}
		switch r.SortTarget {
		case pb.RangeRequest_VERSION:
			return int(a.Version - b.Version)
		case pb.RangeRequest_CREATE:
			return int(a.CreateRevision - b.CreateRevision)
		case pb.RangeRequest_MOD:
			return int(a.ModRevision - b.ModRevision)
		case pb.RangeRequest_VALUE:
			return bytes.Compare(a.Value, b.Value)
		}
		return byKey(a, b)
	})
}

// holds evaluates a comparison of a transaction.
func (s *store) holds(c *pb.Compare) bool {
	found := in(s.live, interval{c.Key, c.RangeEnd})
	if len(found) == 0 {
		// What is absent has no value, not even an empty one.
		return c.Target != pb.Compare_VALUE && compares(c, &keyValue{})
	}
	return !slices.ContainsFunc(found, func(kv *keyValue) bool { return !compares(c, kv) })
}

func compares(c *pb.Compare, kv *keyValue) bool {
	var order int64
	switch c.Target {
	case pb.Compare_VERSION:
		order = kv.Version - c.GetVersion()
	case pb.Compare_CREATE:
		order = kv.CreateRevision - c.GetCreateRevision()
	case pb.Compare_MOD:
		order = kv.ModRevision - c.GetModRevision()
	case pb.Compare_VALUE:
		order = int64(bytes.Compare(kv.Value, c.GetValue()))
	case pb.Compare_LEASE:
		order = kv.Lease - c.GetLease()
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	}
	return order < 0
}

// revoke deletes the keys of a lease, and the lease.
func (u *update) revoke(l *lease) {
	for _, key := range slices.SortedFunc(maps.Keys(l.keys), strings.Compare) {
		u.deleteRange(&pb.DeleteRangeRequest{Key: []byte(key)})
	}
	delete(u.leases, l.id)
	close(l.revoked)
}
