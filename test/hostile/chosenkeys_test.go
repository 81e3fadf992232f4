package hostile

import (
	"fmt"
	"math"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// chosen is a way to choose names for an attacker who knows all of Weir except the cluster's secret.
type chosen struct {
	name  string
	size  int                     // names that are chosen
	aimed func(key ring.Key) bool // that its counter is where the attacker wants it
}

// aimedAt is the partition that attackers choose.
const aimedAt = 7

// slotShare is the part of a table that counts as one slot with its neighbours.
const slotShare = 64

// Names that are to meet in one partition, or in one slot of it, are spread over all nodes and partitions as any others are: their
// places come from a keyed hash. The attacker chooses them with another secret. Limits in use stay exact meanwhile.
func TestChosenKeys(t *testing.T) {
	form.NotInBrief(t)
	const partitions = 1021
	for _, c := range []chosen{
		{"one partition", 2000, func(k ring.Key) bool { return k.Partition(partitions) == aimedAt }},
		{"one slot", 40, func(k ring.Key) bool { return k.Partition(partitions) == aimedAt && k.Hi < math.MaxUint64/slotShare }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "one slot" { // which is in one partition, too
				form.NotInBrief(t)
			}
			t.Parallel()
			nodes, secret := startThree(t)
			names, places := c.choose(t, secret)
			v := newRegulars(t, nodes...)
			sent := v.during(t, nameFlood{next: func(i int) *weirv1.RateLimitRequest { return userRequest(names[i%len(names)]) }}, nodes...)
			if want := int64(limitOfVictim * len(names)); !sent.exactly(want) {
				t.Errorf("%d of %d names were allowed, %d of those by standbys, and %d undecided; want %d",
					sent.allowed.Load(), len(names), sent.apart.Load(), sent.unknown.Load(), want)
			}
			judgePlaces(t, nodes[0], names, places)
		})
	}
}

// startThree starts three nodes, and returns their secret as well.
func startThree(t *testing.T) ([]*process.Node, ring.Hasher) {
	t.Helper()
	store := process.StartEtcd(t)
	file := rulesFile(t, rulesOfFloods)
	nodes := make([]*process.Node, 3)
	for i := range nodes {
		nodes[i] = process.Start(t, "--rules", file, "--etcd", store.Endpoint, "--peer-timeout", "5s")
	}
	process.AwaitMembers(t, 20*time.Second, nodes...)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{store.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resp, err := c.Get(t.Context(), "/weir/default/params")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("parameters: %v, %v", resp, err)
	}
	params, err := etcd.ParseParams(resp.Kvs[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	return nodes, ring.NewHasher([ring.SecretSize]byte(params.Secret))
}

// choose returns names that are aimed with a secret of the attacker, and the keys that they have with the cluster's.
func (c chosen) choose(t *testing.T, cluster ring.Hasher) (names []string, places []ring.Key) {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(rulesOfFloods))
	if err != nil {
		t.Fatal(err)
	}
	key := func(h ring.Hasher, name string) ring.Key {
		matches := set.Match(h, &rules.Request{Domain: "default", Attributes: []rules.Attribute{{Key: "user", Value: name}}}, nil)
		if len(matches) != 1 {
			t.Fatalf("%d limits apply to %s", len(matches), name)
		}
		return matches[0].Key
	}
	attackers := ring.NewHasher([ring.SecretSize]byte{1})
	for i := 0; len(names) < c.size; i++ {
		name := fmt.Sprint("chosen-", i)
		if c.aimed(key(attackers, name)) {
			names, places = append(names, name), append(places, key(cluster, name))
		}
	}
	return names, places
}

// judgePlaces fails if the places are not spread, or are not those that a node knows the names' counters to have.
func judgePlaces(t *testing.T, n *process.Node, names []string, places []ring.Key) {
	t.Helper()
	table, err := n.Client.GetRing(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	partitions, slots, owners := map[uint32]int{}, map[uint64]int{}, map[string]int{}
	most := 0
	for _, place := range places {
		p := place.Partition(table.GetPartitions())
		partitions[p]++
		slots[place.Hi/(math.MaxUint64/slotShare)]++
		owners[table.GetShares()[table.GetOwners()[p]].GetId()]++
		most = max(most, partitions[p])
	}
	// By Poisson's distribution, the fullest partition exceeds the bound once in a million times.
	bound := fullest(float64(len(places))/float64(table.GetPartitions()), float64(table.GetPartitions()))
	t.Logf("%d names: %d partitions, at most %d in one (bound %d); %d parts of a table; owners %v", len(places), len(partitions), most, bound, len(slots), owners)
	if most > bound || len(slots) < min(slotShare, len(places))/3 || len(owners) != 3 {
		t.Errorf("the names have %d partitions, at most %d in one, %d parts of a table, owners %v", len(partitions), most, len(slots), owners)
	}
	for i := range min(20, len(names)) {
		resp, err := n.Client.Explain(t.Context(), userRequest(names[i]))
		if err != nil {
			t.Fatal(err)
		}
		want := table.GetShares()[table.GetOwners()[places[i].Partition(table.GetPartitions())]].GetId()
		if got := resp.GetRules()[0].GetLimits()[0].GetOwner(); got != want {
			t.Errorf("%s: owner %s, want %s", names[i], got, want)
		}
	}
}

// fullest returns the smallest k such that, except once in a million times, none of the places has more than k where each has mean on
// average.
func fullest(mean, places float64) int {
	p := math.Exp(-mean) // of k in one place
	beyond := 1 - p
	k := 0
	for ; beyond*places > 1e-6; k++ {
		p *= mean / float64(k+1)
		beyond -= p
	}
	return k
}
