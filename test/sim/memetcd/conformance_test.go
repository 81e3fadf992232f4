package memetcd_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The scenarios on the real etcd do little but wait.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// patience is how long an answer may take that must come.
const patience = 5 * time.Second

// scenarios are carried out on both etcds, and must tell the same of both.
var scenarios = map[string]func(*script){
	"keys":                     keys,
	"ranges":                   ranges,
	"transactions":             transactions,
	"refusals":                 refusals,
	"compaction":               compaction,
	"watches":                  watches,
	"cancelling":               cancelling,
	"leases":                   leases,
	"expiry":                   expiry,
	"restart":                  restart,
	"wipe":                     wipe,
	"registry":                 registry,
	"registry after an outage": registryAfterOutage,
	"registry after a wipe":    registryAfterWipe,
}

// The etcd in memory answers as the real one does.
func TestConformance(t *testing.T) {
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var original, memory []string
			t.Run("embedded", func(t *testing.T) { original = play(t, newEmbedded(t), scenario) })
			t.Run("in memory", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { memory = play(t, newInMemory(t), scenario) })
			})
			if !slices.Equal(original, memory) {
				t.Errorf("embedded:\n%s\n\nin memory:\n%s\n\nfirst difference: %s",
					strings.Join(original, "\n"), strings.Join(memory, "\n"), firstDifference(original, memory))
			}
		})
	}
}

func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("\n%s\n%s", a[i], b[i])
		}
	}
	return "one ends"
}

func play(t *testing.T, s system, scenario func(*script)) []string {
	p := &script{T: t, system: s, client: client(t, s)}
	scenario(p)
	if len(p.lines) == 0 {
		t.Error("nothing was told")
	}
	return p.lines
}

// script is a scenario being played. Its exchanges note what they were answered.
type script struct {
	*testing.T
	system system
	client *clientv3.Client
	lines  []string
	leases []clientv3.LeaseID // in the order of granting
}

func (p *script) note(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// sleep waits in earnest on the real etcd, whose leases know no other time.
func (*script) sleep(d time.Duration) { time.Sleep(d) }

// do carries out an exchange within patience and notes its error.
func (p *script) do(what string, exchange func(context.Context) error) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	if err := exchange(ctx); err != nil {
		p.note("%s: %v", what, err)
	}
}

func (p *script) put(key, value string, opts ...clientv3.OpOption) (revision int64) {
	p.do("put "+key, func(ctx context.Context) error {
		resp, err := p.client.Put(ctx, key, value, opts...)
		if err == nil {
			p.note("put %s: revision %d, before %s", key, resp.Header.Revision, p.kv(resp.PrevKv))
			revision = resp.Header.Revision
		}
		return err
	})
	return revision
}

func (p *script) get(key string, opts ...clientv3.OpOption) {
	p.do("get "+key, func(ctx context.Context) error {
		resp, err := p.client.Get(ctx, key, opts...)
		if err == nil {
			p.note("get %s: %s", key, p.ranged((*pb.RangeResponse)(resp)))
		}
		return err
	})
}

func (p *script) delete(key string, opts ...clientv3.OpOption) {
	p.do("delete "+key, func(ctx context.Context) error {
		resp, err := p.client.Delete(ctx, key, opts...)
		if err == nil {
			p.note("delete %s: revision %d, %d, before %s", key, resp.Header.Revision, resp.Deleted, p.kvs(resp.PrevKvs))
		}
		return err
	})
}

func (p *script) txn(when []clientv3.Cmp, then, otherwise []clientv3.Op) {
	p.do("txn", func(ctx context.Context) error {
		resp, err := p.client.Txn(ctx).If(when...).Then(then...).Else(otherwise...).Commit()
		if err != nil {
			return err
		}
		p.note("txn: %v, revision %d", resp.Succeeded, resp.Header.Revision)
		for _, op := range resp.Responses {
			switch r := op.Response.(type) {
			case *pb.ResponseOp_ResponseRange:
				p.note("  range: %s", p.ranged(r.ResponseRange))
			case *pb.ResponseOp_ResponsePut:
				p.note("  put: revision %d, before %s", r.ResponsePut.Header.Revision, p.kv(r.ResponsePut.PrevKv))
			case *pb.ResponseOp_ResponseDeleteRange:
				p.note("  delete: revision %d, %d", r.ResponseDeleteRange.Header.Revision, r.ResponseDeleteRange.Deleted)
			}
		}
		return nil
	})
}

func (p *script) compact(revision int64) {
	p.do(fmt.Sprintf("compact %d", revision), func(ctx context.Context) error {
		resp, err := p.client.Compact(ctx, revision)
		if err == nil {
			p.note("compacted %d at revision %d", revision, resp.Header.Revision)
		}
		return err
	})
}

func (p *script) grant(ttl int64) (id clientv3.LeaseID) {
	p.do("grant", func(ctx context.Context) error {
		resp, err := p.client.Grant(ctx, ttl)
		if err == nil {
			id = resp.ID
			p.leases = append(p.leases, id)
			p.note("granted for %d: %d", ttl, resp.TTL)
		}
		return err
	})
	return id
}

func (p *script) renew(id clientv3.LeaseID) {
	p.do("renew", func(ctx context.Context) error {
		resp, err := p.client.KeepAliveOnce(ctx, id)
		if err == nil {
			p.note("renewed %s: %d", p.lease(int64(id)), resp.TTL)
		}
		return err
	})
}

func (p *script) revoke(id clientv3.LeaseID) {
	p.do("revoke", func(ctx context.Context) error {
		resp, err := p.client.Revoke(ctx, id)
		if err == nil {
			p.note("revoked %s at revision %d", p.lease(int64(id)), resp.Header.Revision)
		}
		return err
	})
}

func (p *script) timeToLive(id clientv3.LeaseID) {
	p.do("time to live", func(ctx context.Context) error {
		resp, err := p.client.TimeToLive(ctx, id, clientv3.WithAttachedKeys())
		if err == nil {
			slices.SortFunc(resp.Keys, slices.Compare)
			p.note("%s of %d s lives: %v, with %q", p.lease(int64(id)), resp.GrantedTTL, resp.TTL > 0, resp.Keys)
		}
		return err
	})
}

// lease names a lease by when it was granted.
func (p *script) lease(id int64) string {
	if i := slices.Index(p.leases, clientv3.LeaseID(id)); i >= 0 {
		return fmt.Sprintf("lease %d", i)
	}
	return fmt.Sprintf("no lease of ours (%v)", id != 0)
}

func (p *script) kv(kv *mvccpb.KeyValue) string {
	if kv == nil {
		return "nothing"
	}
	text := fmt.Sprintf("%s=%s v%d c%d m%d", kv.Key, kv.Value, kv.Version, kv.CreateRevision, kv.ModRevision)
	if kv.Lease != 0 {
		text += " " + p.lease(kv.Lease)
	}
	return text
}

func (p *script) kvs(kvs []*mvccpb.KeyValue) string {
	texts := make([]string, len(kvs))
	for i, kv := range kvs {
		texts[i] = p.kv(kv)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (p *script) ranged(r *pb.RangeResponse) string {
	return fmt.Sprintf("revision %d, %d of %d, more %v: %s", r.Header.Revision, len(r.Kvs), r.Count, r.More, p.kvs(r.Kvs))
}

// watcher is a stream of watches.
type watcher struct {
	*script
	stream pb.Watch_WatchClient
}

func (p *script) watcher() watcher {
	p.Helper()
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(p.Context()))
	p.Cleanup(cancel)
	stream, err := pb.NewWatchClient(p.client.ActiveConnection()).Watch(ctx)
	if err != nil {
		p.Fatal(err)
	}
	return watcher{p, stream}
}

func (w watcher) send(r *pb.WatchRequest) {
	w.Helper()
	if err := w.stream.Send(r); err != nil {
		w.Fatal(err)
	}
}

// watch creates a watch and notes the answer.
func (w watcher) watch(r *pb.WatchCreateRequest) {
	w.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
	w.next()
}

func (w watcher) progress() {
	w.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (w watcher) cancel(id int64) {
	w.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

// next notes one answer, and returns how many events it has.
func (w watcher) next() int {
	w.Helper()
	timeout := time.AfterFunc(patience, func() { _ = w.client.Close() })
	defer timeout.Stop()
	resp, err := w.stream.Recv()
	if err != nil {
		w.note("watch ended: %v", rpctypes.Error(err))
		return 0
	}
	if len(resp.Events) == 0 {
		w.note("watch %d: revision %d, created %v, canceled %v %q, compacted %d",
			resp.WatchId, resp.Header.Revision, resp.Created, resp.Canceled, resp.CancelReason, resp.CompactRevision)
	}
	for _, e := range resp.Events {
		w.note("watch %d: %v %s, before %s", resp.WatchId, e.Type, w.kv(e.Kv), w.kv(e.PrevKv))
	}
	return len(resp.Events)
}

// events notes n events, however they are parcelled.
func (w watcher) events(n int) {
	w.Helper()
	for n > 0 {
		got := w.next()
		if got == 0 {
			w.Fatalf("%d events are missing: %q", n, w.lines)
		}
		n -= got
	}
}

func keys(p *script) {
	p.get("a")
	p.put("a", "1")
	p.put("a", "2", clientv3.WithPrevKV())
	p.put("a", "", clientv3.WithPrevKV())
	p.put("a", "", clientv3.WithIgnoreValue(), clientv3.WithPrevKV())
	p.get("a")
	p.get("a", clientv3.WithRev(2))
	p.get("a", clientv3.WithRev(1))
	p.delete("absent")
	p.delete("a", clientv3.WithPrevKV())
	p.delete("a")
	p.get("a")
	p.get("a", clientv3.WithRev(4))
	p.put("a", "again")
	p.get("a")
}

func ranges(p *script) {
	for _, key := range []string{"b", "a", "b/1", "b/2", "c", "b/3"} {
		p.put(key, "of "+key)
	}
	p.put("b/1", "aaa")
	p.get("b/", clientv3.WithPrefix())
	p.get("b", clientv3.WithRange("b/2"))
	p.get("b/2", clientv3.WithFromKey())
	p.get("", clientv3.WithPrefix())
	p.get("b/", clientv3.WithPrefix(), clientv3.WithLimit(2))
	p.get("b/", clientv3.WithPrefix(), clientv3.WithLimit(3))
	p.get("b/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	p.get("b/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	p.get("b/", clientv3.WithPrefix(), clientv3.WithRev(5))
	p.get("b/", clientv3.WithPrefix(), clientv3.WithMinModRev(5))
	p.get("b/", clientv3.WithPrefix(), clientv3.WithMaxModRev(7), clientv3.WithLimit(1))
	p.get("b/", clientv3.WithPrefix(), clientv3.WithMinCreateRev(5), clientv3.WithMaxCreateRev(6))
	for _, target := range []clientv3.SortTarget{clientv3.SortByKey, clientv3.SortByVersion, clientv3.SortByCreateRevision, clientv3.SortByModRevision, clientv3.SortByValue} {
		for _, order := range []clientv3.SortOrder{clientv3.SortNone, clientv3.SortAscend, clientv3.SortDescend} {
			if target != clientv3.SortByVersion { // in which there are equals
				p.get("b/", clientv3.WithPrefix(), clientv3.WithSort(target, order))
			}
		}
	}
	p.delete("b/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	p.get("", clientv3.WithPrefix())
}

func transactions(p *script) {
	put := func(key, value string) []clientv3.Op { return []clientv3.Op{clientv3.OpPut(key, value)} }
	get := []clientv3.Op{clientv3.OpGet("a")}
	when := func(c ...clientv3.Cmp) []clientv3.Cmp { return c }
	p.txn(when(clientv3.Compare(clientv3.ModRevision("a"), "=", 0)), put("a", "1"), get)
	p.txn(when(clientv3.Compare(clientv3.ModRevision("a"), "=", 0)), put("a", "2"), get)
	p.txn(when(clientv3.Compare(clientv3.ModRevision("a"), "=", 2)), put("a", "2"), get)
	p.txn(when(clientv3.Compare(clientv3.Version("a"), "=", 2)), put("a", "3"), get)
	p.txn(when(clientv3.Compare(clientv3.Version("a"), ">", 3)), put("a", "4"), get)
	p.txn(when(clientv3.Compare(clientv3.CreateRevision("a"), "<", 3)), put("a", "4"), get)
	p.txn(when(clientv3.Compare(clientv3.Value("a"), "!=", "4")), put("a", "5"), get)
	p.txn(when(clientv3.Compare(clientv3.Value("a"), "=", "4"), clientv3.Compare(clientv3.Version("b"), "=", 0)), put("b", "1"), get)
	p.txn(when(clientv3.Compare(clientv3.Value("absent"), "=", "")), put("a", "6"), get)
	p.txn(when(clientv3.Compare(clientv3.Value("absent"), "!=", "x")), put("a", "6"), get)
	p.txn(when(clientv3.Compare(clientv3.LeaseValue("a"), "=", 0)), get, nil)
	p.txn(when(clientv3.Compare(clientv3.ModRevision("a"), ">", 1).WithRange("c")), get, nil)
	p.txn(when(clientv3.Compare(clientv3.ModRevision("a"), "=", 5).WithRange("c")), get, nil)
	p.txn(nil, nil, nil)
	p.txn(nil, []clientv3.Op{
		clientv3.OpGet("", clientv3.WithPrefix()), clientv3.OpPut("c", "1", clientv3.WithPrevKV()), clientv3.OpPut("b", "2", clientv3.WithPrevKV()),
		clientv3.OpGet("", clientv3.WithPrefix()), clientv3.OpDelete("a"), clientv3.OpDelete("absent"), clientv3.OpGet("", clientv3.WithPrefix()),
	}, nil)
	p.txn(nil, []clientv3.Op{clientv3.OpDelete("absent"), clientv3.OpGet("c")}, nil)
	p.txn(nil, []clientv3.Op{clientv3.OpGet("a", clientv3.WithRev(3)), clientv3.OpGet("", clientv3.WithPrefix(), clientv3.WithLimit(1))}, nil)
	p.get("", clientv3.WithPrefix())
}

func refusals(p *script) {
	p.put("a", "1")
	p.put("", "1")
	p.put("a", "1", clientv3.WithLease(4711))
	p.put("absent", "", clientv3.WithIgnoreValue())
	p.put("absent", "1", clientv3.WithIgnoreLease())
	p.get("a", clientv3.WithRev(99))
	p.delete("")
	p.txn(nil, []clientv3.Op{clientv3.OpPut("b", "1"), clientv3.OpPut("b", "2")}, nil)
	p.txn(nil, []clientv3.Op{clientv3.OpPut("b", "1"), clientv3.OpDelete("a", clientv3.WithRange("c"))}, nil)
	p.txn(nil, []clientv3.Op{clientv3.OpPut("b", "1"), clientv3.OpPut("c", "2", clientv3.WithLease(4711))}, nil)
	p.txn(nil, []clientv3.Op{clientv3.OpPut("b", "1"), clientv3.OpGet("a", clientv3.WithRev(99))}, nil)
	p.txn([]clientv3.Cmp{clientv3.Compare(clientv3.Version(""), "=", 0)}, nil, nil)
	p.txn(nil, slices.Repeat([]clientv3.Op{clientv3.OpGet("a")}, 129), nil)
	p.compact(0)
	p.compact(99)
	p.revoke(4711)
	p.renew(4711)
	p.timeToLive(4711)
	p.grant(9_000_000_001)
	p.do("grant", func(ctx context.Context) error {
		for range 2 {
			resp, err := pb.NewLeaseClient(p.client.ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 4711, TTL: 60})
			if err != nil {
				return err
			}
			p.note("granted %d", resp.ID)
		}
		return nil
	})
	p.get("", clientv3.WithPrefix())
}

func compaction(p *script) {
	for i := range 5 {
		p.put("a", fmt.Sprint(i))
		p.put("b", fmt.Sprint(i))
	}
	p.delete("b")
	p.compact(6)
	p.compact(6)
	p.compact(5)
	for _, revision := range []int64{5, 6, 7, 0} {
		p.get("", clientv3.WithPrefix(), clientv3.WithRev(revision))
	}
	p.txn(nil, []clientv3.Op{clientv3.OpGet("a", clientv3.WithRev(5))}, nil)
	w := p.watcher()
	w.watch(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 5})
	w.next()
	w.watch(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 6})
	w.events(3)
	p.compact(12)
	p.put("a", "later")
	w.events(1)
	p.get("", clientv3.WithPrefix(), clientv3.WithRev(12))
}

func watches(p *script) {
	p.put("a", "1")
	p.put("b/1", "1")
	p.delete("a")
	w := p.watcher()
	w.watch(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2, PrevKv: true})
	w.events(2)
	prefix, open := p.watcher(), p.watcher()
	prefix.watch(&pb.WatchCreateRequest{Key: []byte("b/"), RangeEnd: []byte("b0")})
	open.watch(&pb.WatchCreateRequest{Key: []byte("c"), RangeEnd: []byte{0}, StartRevision: 1})
	p.sleep(300 * time.Millisecond) // until the real one has caught up
	for _, w := range []watcher{w, prefix, open} {
		w.progress()
		w.next()
	}
	p.txn(nil, []clientv3.Op{clientv3.OpPut("b/2", "1"), clientv3.OpPut("b/1", "2"), clientv3.OpPut("x", "1"), clientv3.OpDelete("a")}, nil)
	p.txn(nil, []clientv3.Op{clientv3.OpPut("b/2", "2"), clientv3.OpDelete("b/1")}, nil)
	late := p.watcher()
	late.watch(&pb.WatchCreateRequest{Key: []byte("b/"), RangeEnd: []byte("b0"), StartRevision: 3})
	late.events(5)
	prefix.next() // what is of one revision comes together
	prefix.next()
	open.next()
	p.put("a", "2")
	w.events(1)
	p.put("unseen", "1")
	// A watch that waits for what is to come tells nothing of its progress.
	ahead := p.watcher()
	ahead.watch(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 9})
	ahead.progress()
	p.sleep(300 * time.Millisecond) // until it has been looked at
	p.put("a", "3")
	ahead.events(1)
	ahead.progress()
	ahead.next()
	filtered := p.watcher()
	filtered.watch(&pb.WatchCreateRequest{Key: []byte{}, RangeEnd: []byte{0}, StartRevision: 1, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}})
	filtered.events(2)
}

func cancelling(p *script) {
	w := p.watcher()
	w.watch(&pb.WatchCreateRequest{Key: []byte("a")})
	w.watch(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 7})
	w.watch(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 7})
	w.watch(&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")})
	w.watch(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: -1})
	w.cancel(0)
	w.next()
	w.cancel(0) // is not there: not answered
	p.put("a", "1")
	w.events(1)
	w.watch(&pb.WatchCreateRequest{Key: []byte("b")})
	w.cancel(7)
	w.next()
	if err := w.stream.CloseSend(); err != nil {
		p.Fatal(err)
	}
	p.put("b", "1") // the watches go on
	w.events(1)
}

func leases(p *script) {
	first, second := p.grant(60), p.grant(0)
	p.put("a", "1", clientv3.WithLease(first))
	p.put("b", "1", clientv3.WithLease(first))
	p.put("c", "1", clientv3.WithLease(first))
	p.put("d", "1", clientv3.WithLease(first))
	p.timeToLive(first)
	p.put("b", "2", clientv3.WithLease(second))
	p.put("c", "2")
	p.put("d", "2", clientv3.WithIgnoreLease())
	p.timeToLive(first)
	p.txn([]clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue("a"), "=", first)}, []clientv3.Op{clientv3.OpGet("a")}, nil)
	p.renew(first)
	w := p.watcher()
	w.watch(&pb.WatchCreateRequest{Key: []byte{}, RangeEnd: []byte{0}, PrevKv: true})
	p.revoke(first)
	w.events(2)
	p.revoke(first)
	p.renew(first)
	p.timeToLive(first)
	p.get("", clientv3.WithPrefix())
	p.delete("b")
	p.put("b", "without")
	p.revoke(second)
	p.get("b")
}

func expiry(p *script) {
	left, kept := p.grant(2), p.grant(2)
	p.put("left", "1", clientv3.WithLease(left))
	p.put("kept", "1", clientv3.WithLease(kept))
	w := p.watcher()
	w.watch(&pb.WatchCreateRequest{Key: []byte{}, RangeEnd: []byte{0}})
	began := time.Now()
	for range 4 {
		p.sleep(900 * time.Millisecond)
		p.renew(kept)
	}
	w.events(1)
	p.note("expired in time: %v", time.Since(began) < 4*time.Second)
	p.renew(left)
	p.timeToLive(left)
	p.timeToLive(kept)
	p.get("", clientv3.WithPrefix())
	// A renewal after the time is over fails when the keys are gone.
	last := p.grant(1)
	p.put("last", "1", clientv3.WithLease(last))
	p.sleep(1050 * time.Millisecond)
	p.renew(last)
	p.get("last")
}

func restart(p *script) {
	id := p.grant(2)
	p.put("a", "1", clientv3.WithLease(id))
	p.put("b", "1")
	w := p.watcher()
	w.watch(&pb.WatchCreateRequest{Key: []byte("a")})
	p.system.stop()
	if _, err := w.stream.Recv(); err == nil {
		p.Error("a watch survives its etcd")
	}
	ctx, cancel := context.WithTimeout(p.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := p.client.Get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		p.Errorf("%v", err)
	}
	p.sleep(2500 * time.Millisecond) // longer than the lease
	p.system.start(p.T)
	p.get("", clientv3.WithPrefix())
	p.sleep(1500 * time.Millisecond) // of the lease's whole time, which has begun again
	p.timeToLive(id)
	w = p.watcher()
	w.watch(&pb.WatchCreateRequest{Key: []byte{}, RangeEnd: []byte{0}, StartRevision: 3})
	w.events(2) // the last of them the end of the lease
	p.put("a", "again")
}

func wipe(p *script) {
	identity := func() (id uint64) {
		p.do("get", func(ctx context.Context) error {
			resp, err := p.client.Get(ctx, "a")
			if err == nil {
				id = resp.Header.ClusterId
			}
			return err
		})
		return id
	}
	lease := p.grant(60)
	p.put("a", "1", clientv3.WithLease(lease))
	before := identity()
	p.system.stop()
	p.system.start(p.T)
	p.note("the same after a restart: %v", identity() == before)
	p.system.stop()
	p.system.wipe(p.T)
	p.system.start(p.T)
	p.get("", clientv3.WithPrefix())
	p.renew(lease)
	p.put("b", "1")
	w := p.watcher()
	w.watch(&pb.WatchCreateRequest{Key: []byte{}, RangeEnd: []byte{0}, StartRevision: 1})
	w.events(1)
}
