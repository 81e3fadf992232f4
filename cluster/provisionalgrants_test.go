package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// TestGrantsOfSeveral fetches what a node has granted whose copy is not the best one: it counts on top of that, and no other node sends it.
func TestGrantsOfSeveral(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		k, p, other := c.unheld()
		key := ownershipKey(0)
		for i := 1; key.Partition(uint32(ownershipRing.Partitions)) != p; i++ {
			key = ownershipKey(i)
		}
		decide := func(n *Ownership, cost int64) int64 {
			n.Shard.Withhold(p, false)
			g := []shard.Group{{Takes: []shard.Take{{Key: key, Limit: ownershipLimit, Cost: cost}}, Provisional: true}}
			n.Shard.Decide(g)
			return ownershipLimit.Limit - g[0].Takes[0].Decision.Remaining
		}
		there := c.alive["c"].ownership
		decide(k, 2)
		decide(there, 3)
		there.mu.Lock()
		there.parts[p].copy = copyVersion{term: 1, seq: 1, whole: true}
		there.enclose(p, there.Shard.TakeGrants(p, maxGrantBatch))
		there.mu.Unlock()
		decide(there, 1) // kept apart, as the others are under way
		found, _ := k.locate(t.Context(), []uint32{p})
		if len(found[0].grantors) != 1 || found[0].grantors[0] != other {
			t.Fatalf("%+v", found[0])
		}
		if !k.begin(p) {
			t.Fatal("it is being fetched already")
		}
		k.collect(t.Context(), &found[0])
		if used := decide(k, 0); used != 2+3+1 {
			t.Errorf("%d are used where 2, 3 and 1 were granted", used)
		}
		k.mu.Lock()
		k.parts[p].pulling = false
		told := len(k.outbox[p].grants)
		k.mu.Unlock()
		there.mu.Lock()
		defer there.mu.Unlock()
		if told != 2 || len(there.outbox[p].grants) > 0 || there.Shard.HasGrants(p) || there.parts[p].copyAt != k.ownParty {
			t.Errorf("%d grants are to be told, %d by the other; the copy is said to be at %v", told, len(there.outbox[p].grants), there.parts[p].copyAt)
		}
	})
}

// grantOf returns a grant of tokens of the i-th key.
func grantOf(i int, tokens int64) shard.Grant {
	now := time.Now().UnixNano()
	return shard.Grant{Key: ownershipKey(i), Limit: ownershipLimit, State: algorithms.Charge(&ownershipLimit, algorithms.State{}, now, now, tokens)}
}

// TestGrantsCountOnce sends a batch of grants again, as after an answer that was lost, and one of
// the next life of its sender, which numbers its batches from the start.
func TestGrantsCountOnce(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a")
		c.settled()
		a := c.alive["a"]
		send := func(incarnation, batch uint64) {
			resp, err := a.ownership.server().AddGrants(t.Context(), &peerv1.AddGrantsRequest{
				Caller:    &peerv1.Caller{Version: connVersion, Cluster: 1, Id: "b", Incarnation: incarnation, ToId: "a"},
				Partition: ownershipKey(1).Partition(uint32(ownershipRing.Partitions)), Batch: batch,
				Grants: appendGrants(nil, []shard.Grant{grantOf(1, 3)}),
			})
			if err != nil || !resp.GetAdded() {
				t.Errorf("%v, %v", resp, err)
			}
		}
		send(1, 7)
		send(1, 7)
		send(2, 1)
		allowed := make(map[ring.Key]int)
		for range 10 {
			ok, _ := c.check(ownershipKey(1))
			allowed[ownershipKey(1)] += int(boolByte(ok))
		}
		if got := allowed[ownershipKey(1)]; got != 4 {
			t.Errorf("%d of 10 are left after grants of 3 and 3", got)
		}
	})
}

// TestLastGrantsOfAFencedOwner has a view begin a new epoch for partitions that a dead node owns, which was restarted, while a living one still
// holds them: it leaves, and could not hand them over. What that has granted last, the standby is told.
func TestLastGrantsOfAFencedOwner(t *testing.T) {
	for _, pause := range []time.Duration{0, 3 * replicateEvery} { // of which the standby is sent all before
		t.Run(pause.String(), func(t *testing.T) {
			inOwnership(t, func(t *testing.T, c *ownershipCluster) {
				c.start("a", "b", "c", "d")
				c.settled()
				c.replicated()
				c.crash("d")
				leaver, asker := c.alive["c"], c.alive["a"]
				c.announce(leaver, Leaving)
				synctest.Wait()
				time.Sleep(pause)
				allowed, keys := make(map[ring.Key]int), []ring.Key(nil)
				count := func(n *ownershipNode, key ring.Key) bool {
					ok, source := c.checkAt(n, key)
					if source == shard.Unanswered {
						t.Errorf("no node decides what %s is asked", n.id)
						return false
					}
					allowed[key] += int(boolByte(ok))
					return ok
				}
				for i := range 200 {
					key := ownershipKey(i)
					p := key.Partition(uint32(ownershipRing.Partitions))
					leaver.ownership.mu.Lock()
					theirs := leaver.ownership.parts[p].tenure.state == active && leaver.ownership.claim(p).owner.id == "d"
					leaver.ownership.mu.Unlock()
					if theirs && count(asker, key) {
						keys = append(keys, key)
					}
				}
				if len(keys) == 0 {
					t.Fatal("the leaver holds nothing that the dead node owns")
				}
				c.start("d")
				synctest.Wait()
				for _, key := range keys {
					count(leaver, key)
				}
				c.await("all was handed over", leaver.handedOver)
				c.end("c")
				for range 2 {
					for _, key := range keys {
						for count(asker, key) {
						}
						if allowed[key] != 10 {
							t.Errorf("%d were allowed of 10", allowed[key])
						}
					}
					c.settled()
				}
			})
		})
	}
}

// TestGrantsUnderWayStayInTheCopy has an owner send what it has while a batch of grants is on its way to it, and after it has added that, whether
// or not its answer has arrived.
func TestGrantsUnderWayStayInTheCopy(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a")
		c.settled()
		k, key := c.alive["a"].ownership, ownershipKey(1)
		p := key.Partition(uint32(ownershipRing.Partitions))
		owner, err := shard.New(shard.Config{Partitions: uint32(ownershipRing.Partitions), MaxBytes: 16 << 20, Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		k.mu.Lock()
		was := k.parts[p]
		k.parts[p].tenure.state, k.parts[p].copy = absent, copyVersion{term: 1}
		k.Shard.Seal(p)
		k.mu.Unlock()
		seq := uint64(0)
		replica := func(added uint64) (used int64) {
			owner.Follow(p, shard.ToStandby)
			records, _ := owner.Changes(p, shard.ToStandby, nil, recordBytes)
			seq++
			_, err := k.server().Replicate(t.Context(), &peerv1.ReplicateRequest{Caller: &peerv1.Caller{Version: connVersion, Cluster: 1, Id: "b", ToId: k.Self.ID}, Replicas: []*peerv1.Replica{
				{Partition: p, Term: 1 << 30, Sequence: seq, Records: records, Begin: seq == 1, Whole: true, Added: delivery{k.origin, added}.message("a")},
			}})
			if err != nil {
				t.Fatal(err)
			}
			g := []shard.Group{{Takes: []shard.Take{{Key: key, Limit: ownershipLimit}}, Peek: true, Provisional: true}}
			k.Shard.Decide(g)
			return ownershipLimit.Limit - g[0].Takes[0].Decision.Remaining
		}
		owner.Decide([]shard.Group{{Takes: []shard.Take{{Key: key, Limit: ownershipLimit, Cost: 1}}}})
		replica(0)
		k.Shard.Decide([]shard.Group{{Takes: []shard.Take{{Key: key, Limit: ownershipLimit, Cost: 3}}, Provisional: true}})
		k.mu.Lock()
		k.enclose(p, k.Shard.TakeGrants(p, maxGrantBatch))
		o := k.outbox[p]
		k.mu.Unlock()
		if used := replica(o.batch - 1); used != 1+3 {
			t.Errorf("%d are used of the copy while 3 are on their way to an owner that has granted 1", used)
		}
		if owner.AddGrants(o.grants); replica(o.batch) != 1+3 || len(k.outbox) != 0 {
			t.Errorf("%d are used of the copy after the owner has added 3 to 1, and %d batches are on their way", replica(o.batch), len(k.outbox))
		}
		k.mu.Lock()
		k.parts[p] = was
		k.mu.Unlock()
	})
}

// TestGrantsStayWhileTheOwnerIsUnreachable keeps what was granted in the place of an owner that does not answer in the copy, even
// if other nodes answer.
func TestGrantsStayWhileTheOwnerIsUnreachable(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.replicated()
		c.crash("c")
		c.take(allowed, keys, 2)
		time.Sleep(3 * replicateEvery)
		for _, id := range []string{"a", "b"} {
			k := c.alive[id].ownership
			k.mu.Lock()
			if !k.Shard.HasAnyGrants() || len(k.outbox) > 0 {
				t.Errorf("%s keeps grants: %v, and has %d batches on their way to a dead node", id, k.Shard.HasAnyGrants(), len(k.outbox))
			}
			k.mu.Unlock()
		}
	})
}

// openStream is a stream to a side that takes everything.
type openStream struct {
	grpc.ServerStreamingServer[peerv1.PullResponse]
}

func (openStream) Send(*peerv1.PullResponse) error { return nil }

// TestGrantsAreSentByOneNode has a copy fetched, and grants told of that are part of it, which both would tell.
func TestGrantsAreSentByOneNode(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a")
		c.settled()
		k := c.alive["a"].ownership
		k.mu.Lock()
		k.parts[1].tenure.state = absent
		k.enclose(1, []shard.Grant{grantOf(1, 3)})
		batch := k.outbox[1].batch
		k.mu.Unlock()
		if !k.post(1, batch) {
			t.Fatal("they are not to be told")
		}
		if err := k.giveCopy(openStream{}, 1, party{}); status.Code(err) != codes.Unavailable {
			t.Errorf("the copy goes while they are told: %v", err)
		}
		if k.begin(1) {
			t.Error("a copy comes while they are told")
		}
		k.posted(1)
		if err := k.giveCopy(openStream{}, 1, party{}); err != nil {
			t.Error(err)
		}
		if k.post(1, batch) {
			t.Error("they are told by both")
		}
	})
}
