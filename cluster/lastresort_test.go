package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// lostKeys are keys of which owner and standby died together, and what was granted of them since.
type lostKeys struct {
	*ownershipCluster
	keys      []ring.Key
	granted   map[ring.Key]int
	undecided int
}

// loseBoth has b own and c stand by for keys, of which much is granted, and both die, with or without etcd. No other node has a copy, nor an old one. It returns once others have seen
// that.
func (c *ownershipCluster) loseBoth(etcd bool) *lostKeys {
	c.t.Helper()
	c.settled()
	pass(time.Minute)
	if !etcd {
		c.loseEtcd()
	}
	keys := c.keysOf("b", "c", 20)
	for _, key := range keys {
		for range 7 {
			c.check(key)
		}
	}
	c.replicated()
	c.crash("b")
	c.crash("c")
	pass(lastResortAfter + 2*wordWithin)
	return &lostKeys{c, keys, make(map[ring.Key]int), 0}
}

// loseEtcd has no view written, and no lease renewed any more.
func (c *ownershipCluster) loseEtcd() {
	c.registry.change(func() { c.registry.down = true })
	c.loseRegistry()
}

func (c *ownershipCluster) standIn(at string, key ring.Key) string {
	return locator{c.alive[at].owners}.StandIn(key.Partition(uint32(ownershipRing.Partitions)))
}

// ask asks nodes once for each key, all that live if none are named.
func (l *lostKeys) ask(nodes ...string) {
	for _, key := range l.keys {
		for id, n := range l.alive {
			if len(nodes) > 0 && !slices.Contains(nodes, id) {
				continue
			}
			switch ok, source := l.checkAt(n, key); {
			case source == shard.Undecided:
				l.undecided++
			case ok:
				l.granted[key]++
			}
		}
	}
}

// askFor asks again and again.
func (l *lostKeys) askFor(d time.Duration, nodes ...string) {
	for began := time.Now(); time.Since(began) < d; pass(5 * time.Millisecond) {
		l.ask(nodes...)
	}
}

// isOneLimit expects that a limit was granted of each key, and that there were few checks that no node has decided.
func (l *lostKeys) isOneLimit(undecided int) {
	l.t.Helper()
	for _, key := range l.keys {
		if n := l.granted[key]; n != 10 {
			l.t.Errorf("%d were granted of key %v, want a limit of 10", n, key.Lo)
		}
	}
	if l.undecided > undecided {
		l.t.Errorf("%d checks were undecided, want %d at most", l.undecided, undecided)
	}
}

// Owner and standby of some counters die together. One other node grants a limit in their place, and what it has granted counts once others own these counters.
func TestOwnerAndStandbyDieTogether(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d", "e")
		l := c.loseBoth(true)
		l.askFor(4 * time.Second)
		c.registry.expire("b")
		c.registry.expire("c")
		l.askFor(5 * time.Second)
		l.isOneLimit(100)
		for _, key := range l.keys {
			if _, source := c.check(key); source != shard.Owner {
				t.Errorf("once others own it: source %v", source)
			}
		}
	})
}

// Most members die, so that it takes 37 s until a view replaces them.
func TestMostMembersDieTogether(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d", "e")
		l := c.loseBoth(true)
		c.crash("d")
		pass(lastResortAfter + 2*wordWithin)
		for _, id := range []string{"b", "c", "d"} {
			c.registry.expire(id)
		}
		for range 90 {
			l.ask()
			pass(500 * time.Millisecond)
		}
		for key, n := range l.granted {
			if n < 10 || n > 20 { // d may have granted, and lost that
				t.Errorf("%d were granted of key %v, want a limit of 10, or two", n, key.Lo)
			}
		}
		if l.undecided > 20 {
			t.Errorf("%d checks were undecided", l.undecided)
		}
		for _, key := range l.keys {
			if _, source := c.check(key); source != shard.Owner {
				t.Errorf("in the end: source %v", source)
			}
		}
	})
}

// While one node grants in the place of others, it stays one limit.
func TestLastResortIsOneLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		offline   bool
		undecided int
		meanwhile func(l *lostKeys)
	}{
		"nothing happens": {true, 0, func(l *lostKeys) { l.askFor(10 * time.Second) }},
		"another one joins": {false, 30, func(l *lostKeys) {
			l.start("aa")
			l.askFor(6*time.Second, "e")
		}},
		"the owner is started again": {false, 20, func(l *lostKeys) {
			l.registry.expire("b")
			l.start("b")
			l.askFor(6*time.Second, "e")
		}},
		"the owner is started again without etcd": {true, 20, func(l *lostKeys) {
			l.startOffline("b", l.alive["a"].owners.View())
			l.askFor(6*time.Second, "e")
		}},
		"it is late": {true, 6000, func(l *lostKeys) {
			id := l.standIn("a", l.keys[0])
			goOn := l.alive[id].halt()
			l.askFor(300*time.Millisecond, l.others(id)...)
			goOn()
			l.askFor(2*time.Second, l.others(id)...)
		}},
		"it is not reached for a moment": {true, 6000, func(l *lostKeys) {
			id := l.standIn("a", l.keys[0])
			l.unreach(true, id+":1", l.others(id)...)
			l.askFor(200*time.Millisecond, l.others(id)...)
			l.unreach(false, id+":1", l.others(id)...)
			l.askFor(2*time.Second, l.others(id)...)
		}},
		"one node does not reach it": {true, 0, func(l *lostKeys) {
			id := l.standIn("a", l.keys[0])
			asker := l.others(id)[0]
			l.unreach(true, id+":1", asker)
			pass(time.Second)
			l.askFor(2*time.Second, asker)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.start("a", "b", "c", "d", "e")
				l := c.loseBoth(!tc.offline)
				l.askFor(100 * time.Millisecond)
				tc.meanwhile(l)
				l.isOneLimit(tc.undecided)
			})
		})
	}
}

// others returns the nodes that live but one, sorted.
func (l *lostKeys) others(but string) (ids []string) {
	for id := range l.alive {
		if id != but {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// If the node dies as well that grants in their place, another one does, which knows nothing of that.
func TestLastResortDies(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d", "e")
		l := c.loseBoth(false)
		l.askFor(time.Second)
		l.isOneLimit(0)
		id := l.standIn("a", l.keys[0])
		c.crash(id)
		pass(lastResortAfter + 2*wordWithin)
		l.granted = make(map[ring.Key]int)
		l.askFor(time.Second)
		l.keys = slices.DeleteFunc(l.keys, func(key ring.Key) bool { return l.granted[key] == 0 }) // of another node
		if l.isOneLimit(0); len(l.keys) == 0 {
			t.Error("no other node grants")
		}
	})
}

// Nodes that are lost for a moment only have no other grant in their place, nor have those of which another node reaches some life, or that have said farewell, nor
// after a halt of this node.
func TestNoLastResort(t *testing.T) {
	for name, lose := range map[string]func(c *ownershipCluster) (at []string){
		"lost for a moment": func(c *ownershipCluster) []string {
			for _, to := range []string{"b:1", "c:1"} {
				c.unreach(true, to, "a", "d", "e")
			}
			pass(lastResortAfter - 2*wordWithin)
			return []string{"a", "d", "e"}
		},
		"others reach them": func(c *ownershipCluster) []string {
			c.unreach(true, "b:1", "a")
			c.unreach(true, "c:1", "a")
			pass(3 * time.Second)
			return []string{"a"}
		},
		"others reach a later life": func(c *ownershipCluster) []string {
			v := c.alive["a"].owners.View()
			c.loseEtcd()
			c.crash("b")
			c.crash("c")
			c.startOffline("b", v)
			pass(2 * time.Second)
			c.unreach(true, "b:1", "a")
			pass(3 * time.Second)
			return []string{"a", "d", "e"}
		},
		"one that may reach them has not said so yet": func(c *ownershipCluster) []string {
			v := c.alive["a"].owners.View()
			c.loseEtcd()
			c.crash("e")
			for _, to := range []string{"b:1", "c:1"} {
				c.unreach(true, to, "d", "e")
			}
			c.unreach(true, "a:1", "e")
			pass(2 * time.Second)
			c.startOffline("e", v) // d says to it that it has lost b and c, and a would say that it reaches them
			pass(2 * time.Second)
			return []string{"d", "e"}
		},
		"after a halt": func(c *ownershipCluster) []string {
			for _, to := range []string{"b:1", "c:1"} {
				c.unreach(true, to, "a")
			}
			pass(wordWithin)
			goOn := c.alive["a"].halt()
			for _, to := range []string{"b:1", "c:1"} {
				c.unreach(false, to, "a")
			}
			pass(2 * time.Second)
			goOn()
			synctest.Wait()
			return []string{"a"}
		},
		"they have said farewell": func(c *ownershipCluster) []string {
			c.loseEtcd()
			c.endWithFarewell("b", func() {})
			c.endWithFarewell("c", func() {})
			pass(3 * time.Second)
			return []string{"a", "d", "e"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.start("a", "b", "c", "d", "e")
				c.settled()
				key := c.anyKey("b", "c")
				for _, id := range lose(c) {
					if by := c.standIn(id, key); by != "" {
						t.Errorf("at %s: %s stands in", id, by)
					}
				}
			})
		})
	}
}

// A node that does not reach owner and standby of a key does not take them for lost because others have lost them, as long as one may reach them, or has lost them
// for a moment only. It is looked at all the while.
func TestNoLastResortWhileOthersMayReachThem(t *testing.T) {
	both := []string{"b:1", "c:1"}
	cut := func(c *ownershipCluster, is bool, from ...string) {
		for _, to := range both {
			c.unreach(is, to, from...)
		}
	}
	restart := func(c *ownershipCluster) {
		c.crash("e")
		c.registry.expire("e")
		pass(300 * time.Millisecond)
		c.start("e")
	}
	for name, lose := range map[string]func(c *ownershipCluster){
		"one has lost them for a moment": func(c *ownershipCluster) {
			cut(c, true, "d", "e")
			pass(1200 * time.Millisecond)
			cut(c, true, "a")
			time.AfterFunc(150*time.Millisecond, func() { cut(c, false, "a") })
		},
		"one has lost them for a moment, to a node that was just started": func(c *ownershipCluster) {
			cut(c, true, "d", "e")
			restart(c)
			pass(1200 * time.Millisecond)
			cut(c, true, "a")
			time.AfterFunc(150*time.Millisecond, func() { cut(c, false, "a") })
		},
		"one was halted": func(c *ownershipCluster) {
			v := c.alive["a"].owners.View()
			c.loseEtcd()
			c.crash("e")
			c.crash("d")
			pass(2 * time.Second)
			cut(c, true, "a", "e")
			pass(wordWithin)
			goOn := c.alive["a"].halt()
			cut(c, false, "a")
			pass(2 * time.Second)
			c.startOffline("e", v)
			time.AfterFunc(100*time.Millisecond, goOn)
		},
		"the only one that is reached yet was divided from them": func(c *ownershipCluster) {
			v := c.alive["a"].owners.View()
			c.loseEtcd()
			c.crash("e")
			cut(c, true, "a", "e")
			c.unreach(true, "d:1", "a", "e")
			c.unreach(true, "a:1", "b", "c", "d")
			pass(2 * time.Second)
			c.startOffline("e", v)
			time.AfterFunc(200*time.Millisecond, func() {
				cut(c, false, "e")
				c.unreach(false, "d:1", "e")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.hears = 20 * time.Millisecond
				c.start("a", "b", "c", "d", "e")
				c.settled()
				key := c.anyKey("b", "c")
				lose(c)
				for began := time.Now(); time.Since(began) < 2*time.Second; pass(10 * time.Millisecond) {
					if by := c.standIn("e", key); by != "" {
						t.Errorf("after %v %s stands in", time.Since(began), by)
						return
					}
				}
			})
		})
	}
}

// Another member is halted again and again. It says of the dead ones all the same that it has lost them.
func TestLastResortWhileAnotherIsHalted(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d", "e")
		l := c.loseBoth(false)
		l.askFor(time.Second)
		key := l.keys[0]
		others := l.others(l.standIn("a", key))
		halted, asked := others[0], c.alive[others[1]]
		check := func(d time.Duration) {
			for began := time.Now(); time.Since(began) < d; pass(10 * time.Millisecond) {
				if _, source := c.checkAt(asked, key); source == shard.Undecided {
					l.undecided++
				}
			}
		}
		for range 5 {
			goOn := c.alive[halted].halt()
			check(250 * time.Millisecond)
			goOn()
			check(400 * time.Millisecond)
		}
		if l.undecided > 0 {
			t.Errorf("%d checks were undecided", l.undecided)
		}
	})
}

// Owner and standby die, and all others but one are started again before a view names their new lives. All keys are decided 1.5 s after that.
func TestLastResortAfterRestarts(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d", "e")
		l := c.loseBoth(false)
		v := c.alive["a"].owners.View()
		c.crash("d")
		c.crash("e")
		pass(2 * time.Second)
		c.startOffline("d", v)
		c.startOffline("e", v)
		pass(1500 * time.Millisecond)
		l.askFor(time.Second)
		if l.undecided > 0 {
			t.Errorf("%d checks were undecided", l.undecided)
		}
	})
}
