package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

// fakeRegistry is a Registry in memory that tells its watchers at once. What etcd
// really does is tested in package etcd.
type fakeRegistry struct {
	mu       sync.Mutex
	nodes    map[string]Node
	view     *View
	placed   *view.View // that view, if it names the node that has each partition
	revision int64
	down     bool
	hangs    bool
	watchers []func(RegistryContent)
	swaps    []time.Time
	tries    int // of SwapView
	evicted  []Life
	again    func(Node) // is told of those that were evicted, under mu; may be nil
}

func (r *fakeRegistry) Announce(n Node) { r.change(func() { r.nodes[n.ID] = n }) }

func (r *fakeRegistry) expire(ids ...string) {
	r.change(func() {
		for _, id := range ids {
			delete(r.nodes, id)
		}
	})
}

func (r *fakeRegistry) Evict(_ context.Context, l Life) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, registered := r.nodes[l.ID]; registered && n.Incarnation == l.Incarnation {
		delete(r.nodes, l.ID)
		r.evicted = append(r.evicted, l)
		r.tellLocked()
		if r.again != nil {
			r.again(n)
		}
	}
	return nil
}

func (r *fakeRegistry) SwapView(ctx context.Context, v *View, revision int64) error {
	return r.swap(ctx, v, nil, revision)
}

func (r *fakeRegistry) swap(ctx context.Context, v *View, placed *view.View, revision int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if r.hangs {
		r.mu.Unlock()
		<-ctx.Done()
		r.mu.Lock()
		return ctx.Err()
	}
	switch {
	case r.down:
		return errors.New("etcd is down")
	case revision != r.revision:
		return ErrViewChanged
	}
	r.view, r.placed = v, placed
	r.revision++
	r.swaps = append(r.swaps, time.Now())
	r.tellLocked()
	return nil
}

func (r *fakeRegistry) SwapPlacement(ctx context.Context, v *view.View, revision int64) error {
	routing, err := RoutingView(v)
	if err != nil {
		return err
	}
	return r.swap(ctx, routing, v, revision)
}

// ReadPlacement returns the view that names the node which has each partition.
func (r *fakeRegistry) ReadPlacement(context.Context) (*view.View, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errors.New("etcd is down")
	}
	return r.placed, nil
}

func (r *fakeRegistry) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.tellLocked()
}

func (r *fakeRegistry) tellLocked() {
	s := RegistryContent{View: r.view, Placement: r.placed, ViewRevision: r.revision}
	for _, n := range r.nodes {
		s.Nodes = append(s.Nodes, n)
	}
	slices.SortFunc(s.Nodes, func(a, b Node) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	for _, w := range r.watchers {
		w(s)
	}
}

// membershipTest is a cluster whose members follow one fake registry.
type membershipTest struct {
	*testCluster
	registry *fakeRegistry
	parts    []*Membership
	log      syncBuffer // of all nodes
}

// prompt is an electorate of which every node adopts every view at once, unless it was killed.
type prompt struct {
	m     *membershipTest
	known adoptions
}

func (e prompt) adopted(v *View) adoptions {
	for _, l := range append(livesOf(v.Members), v.Before...) {
		if !e.m.killed(l.ID) {
			e.known.note(l, v.Number)
		}
	}
	return e.known
}

func (e prompt) Confirmed(v *View) bool        { return e.adopted(v).confirmed(v) }
func (e prompt) Missing(v *View) []Life        { return e.adopted(v).missing(v) }
func (e prompt) Returned(v *View, l Life) bool { return !e.m.killed(l.ID) }
func (e prompt) Consider(*View, []Node)        {}
func (e prompt) Admits(Node) bool              { return true }
func (e prompt) Accused() []Life               { return nil }

// killed reports whether a node of that id was killed.
func (m *membershipTest) killed(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, listens := m.listeners[id+":1"]
	return !listens && slices.ContainsFunc(m.nodes, func(n *testNode) bool { return n.id == id })
}

// syncBuffer is a buffer that several may write to.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// inRegistry runs a test in a bubble with nodes that have not been announced.
func inRegistry(t *testing.T, size int, f func(t *testing.T, m *membershipTest)) {
	synctest.Test(t, func(t *testing.T) {
		m := &membershipTest{testCluster: newTestCluster(t, size), registry: &fakeRegistry{nodes: make(map[string]Node)}}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, n := range m.nodes {
			n.router.table.Store(nil) // the harness has set a view already
			part := NewMembership(n.id, ring.DefaultParams, m.registry, n.router, n.router.SetView, prompt{m, make(adoptions)}, slog.New(slog.NewTextHandler(&m.log, nil)))
			m.parts = append(m.parts, part)
			m.registry.watchers = append(m.registry.watchers, part.Update)
			wg.Go(func() { part.Run(ctx) })
		}
		f(t, m)
		cancel()
		wg.Wait()
		m.close()
	})
}

// announce announces nodes one after the other.
func (m *membershipTest) announce(ids string) {
	for _, n := range parseNodes(ids) {
		m.registry.Announce(n)
		synctest.Wait()
	}
}

// members returns what all nodes route by, or complains if they differ.
func (m *membershipTest) members() string {
	m.t.Helper()
	synctest.Wait()
	first := m.nodes[0].router.View()
	for _, n := range m.nodes[1:] {
		if n.router.View() != first {
			m.t.Errorf("%s routes by another view", n.id)
		}
	}
	if first == nil {
		return ""
	}
	return fmt.Sprintf("%d: %s", first.Number, formatMembers(first.Members))
}

func (m *membershipTest) want(when, members string) {
	m.t.Helper()
	if got := m.members(); got != members {
		m.t.Errorf("%s: %q, want %q", when, got, members)
	}
}

func TestFirstViewIsWrittenAtOnceAndJoinsAreBatched(t *testing.T) {
	inRegistry(t, 3, func(t *testing.T, m *membershipTest) {
		m.announce("a")
		m.want("at once", "1: a")
		m.announce("b")
		time.Sleep(joinBatch / 2)
		m.announce("c")
		m.want("before the batch is full", "1: a")
		if n := m.parts[0].LeftOut(); n != 0 {
			t.Errorf("%d left out, although they only wait", n)
		}
		time.Sleep(joinBatch/2 + time.Millisecond)
		m.want("after it", "2: a b c")
	})
}

func TestLeavingIsNotDelayed(t *testing.T) {
	inRegistry(t, 3, func(t *testing.T, m *membershipTest) {
		m.announce("a b c")
		time.Sleep(2 * joinBatch)
		m.want("all", "2: a b c")
		m.announce("a/leaving") // the one that writes
		m.want("at once", "3: a/leaving b c")
		m.announce("b@2")
		m.want("restarted", "4: a/leaving b@2 c")
		m.announce("a/left")
		m.want("has left", "5: b@2 c")
	})
}

// A key that was gone before has its whole grace again.
func TestGraceStartsAgain(t *testing.T) {
	inRegistry(t, 3, func(t *testing.T, m *membershipTest) {
		m.announce("a b c")
		time.Sleep(2 * joinBatch)
		m.registry.expire("a", "c") // b writes now
		time.Sleep(time.Minute)
		m.announce("a c")
		m.kill(m.nodes[2])
		time.Sleep(time.Minute)
		m.registry.expire("c")
		m.want("c at once", "2: a b c")
		time.Sleep(goneGrace + recheck + time.Millisecond)
		m.want("c later", "3: a b")
		m.kill(m.nodes[0])
		time.Sleep(time.Minute)
		m.registry.expire("a")
		m.want("a at once", "3: a b")
		time.Sleep(goneGrace + recheck + time.Millisecond)
		m.want("a later", "4: b")
	})
}

func TestDeadNodeIsDroppedOnceItsLeaseHasEnded(t *testing.T) {
	inRegistry(t, 3, func(t *testing.T, m *membershipTest) {
		m.announce("a b c")
		time.Sleep(2 * joinBatch)
		m.kill(m.nodes[0])
		time.Sleep(time.Minute)
		m.want("while it has a lease", "2: a b c")
		m.registry.expire("a")
		time.Sleep(goneGrace + recheck + time.Millisecond)
		m.want("after it", "3: b c")
	})
}

// When etcd loses all leases at once, no node is dropped that still answers; and
// when the keys come back, nothing has changed.
func TestMassExpiryIsHarmless(t *testing.T) {
	inRegistry(t, 4, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d")
		time.Sleep(2 * joinBatch)
		m.want("all", "2: a b c d")
		m.registry.expire("a", "b", "c", "d")
		time.Sleep(time.Minute)
		m.announce("a")
		time.Sleep(time.Minute)
		m.want("three keys missing for a minute", "2: a b c d")
		m.announce("b c d")
		time.Sleep(time.Minute)
		m.want("the keys are back", "2: a b c d")
	})
}

func TestDropsAreSpreadOut(t *testing.T) {
	inRegistry(t, 6, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d e f")
		time.Sleep(2 * joinBatch)
		for _, n := range m.nodes[3:] {
			m.kill(n)
		}
		m.registry.expire("d", "e", "f")
		time.Sleep(goneGrace + 500*time.Millisecond)
		m.want("the first third", "3: a b c f")
		time.Sleep(10 * time.Second)
		m.want("one by one", "4: a b c")
		swaps := m.registry.swaps[2:]
		for i := 1; i < len(swaps); i++ {
			if gap := swaps[i].Sub(swaps[i-1]); gap < recheck {
				t.Errorf("only %v between two drops", gap)
			}
		}
	})
}

// Members change again only once half of the members of before have adopted the last change: else those that keep etcd would shrink
// their majority one removal after the other. After waiveAfter the others go on without those that are missing, and say so.
func TestMembersChangeOnlyAsFastAsTheyAdopt(t *testing.T) {
	inRegistry(t, 5, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d e")
		time.Sleep(2 * joinBatch)
		for _, n := range m.nodes[2:] {
			m.kill(n)
		}
		m.registry.expire("c", "d", "e")
		time.Sleep(goneGrace + 500*time.Millisecond)
		m.want("the first third", "3: a b d e")
		m.announce("f") // which would be a change as well
		m.announce("b@2")
		m.want("a restart changes no members", "4: a b@2 d e")
		m.announce("b@2/leaving")
		m.want("nor does a drain", "5: a b@2/leaving d e")
		m.announce("b@2/left")
		time.Sleep(waiveAfter - 2*time.Second - 10*confirmEvery)
		m.want("two of five have adopted view 3", "5: a b@2/leaving d e")
		if v := m.nodes[0].router.View(); v.Changed != 3 || v.Waived != 0 || len(v.GivenUp) > 0 {
			t.Errorf("view 5: changed %d, waived %d, given up %v", v.Changed, v.Waived, v.GivenUp)
		}
		time.Sleep(2*time.Second + 8*confirmEvery)
		v := m.nodes[0].router.View()
		if want := []Life{{"c", 1}, {"d", 1}, {"e", 1}}; v.Waived != 5 || v.Changed != 6 || !slices.Equal(v.GivenUp, want) {
			t.Errorf("%s: changed %d, waived %d, given up %v, want %v", m.members(), v.Changed, v.Waived, v.GivenUp, want)
		}
		if _, member := v.Index("f"); !member || !strings.Contains(m.log.String(), "fewer than half") {
			t.Errorf("%s:\n%s", m.members(), m.log.String())
		}
		time.Sleep(waiveAfter)
		m.want("a and f are two of four, and of three", "7: a f")
		m.announce("c@2")
		time.Sleep(2 * joinBatch)
		if v := m.nodes[0].router.View(); !slices.Equal(v.GivenUp, []Life{{"d", 1}, {"e", 1}}) {
			t.Errorf("%s: given up %v", m.members(), v.GivenUp)
		}
	})
}

// An operator's word that a node is dead counts as its adoption.
func TestRemovedByAnOperator(t *testing.T) {
	inRegistry(t, 5, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d e")
		time.Sleep(2 * joinBatch)
		for _, n := range m.nodes[2:] {
			m.kill(n)
		}
		m.registry.expire("c", "d", "e")
		time.Sleep(goneGrace + 500*time.Millisecond)
		m.want("the first third", "3: a b d e")
		for _, id := range []string{"x", ""} {
			if _, err := m.parts[1].Remove(t.Context(), id); !errors.Is(err, ErrNoMember) {
				t.Errorf("removing %q: %v", id, err)
			}
		}
		if _, err := m.parts[1].Remove(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		m.want("c was missing", "6: a b")
		if v := m.nodes[0].router.View(); v.Waived != 0 || len(v.GivenUp) > 0 {
			t.Errorf("waived %d, given up %v", v.Waived, v.GivenUp)
		}
	})
	inRegistry(t, 5, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d e")
		time.Sleep(2 * joinBatch)
		m.kill(m.nodes[2])
		if v, err := m.parts[0].Remove(t.Context(), "c"); err != nil || v.IsMember("c") {
			t.Fatal(v, err)
		}
		if want := []Life{{"c", 1}}; !slices.Equal(m.registry.evicted, want) {
			t.Errorf("evicted: %v, want %v", m.registry.evicted, want)
		}
		m.want("at once", "3: a b d e")
		if v := m.nodes[0].router.View(); v.Changed != 3 || !slices.Equal(v.Ended, []Life{{"c", 1}}) {
			t.Errorf("changed %d, ended %v", v.Changed, v.Ended)
		}
	})
}

func TestViewIsWrittenWhenEtcdIsBack(t *testing.T) {
	inRegistry(t, 2, func(t *testing.T, m *membershipTest) {
		m.announce("a b")
		time.Sleep(2 * joinBatch)
		m.registry.change(func() { m.registry.down = true })
		m.announce("b/leaving")
		time.Sleep(time.Minute)
		m.want("while etcd is down", "2: a b")
		m.registry.mu.Lock() // no node is told
		m.registry.down = false
		m.registry.mu.Unlock()
		time.Sleep(recheck)
		m.want("after it", "3: a b/leaving")
	})
}

// However much changes while writes fail, they are tried once per recheck, and one
// that hangs is given up.
func TestFailedWritesAreSpreadOut(t *testing.T) {
	inRegistry(t, 2, func(t *testing.T, m *membershipTest) {
		m.announce("a b")
		time.Sleep(2 * joinBatch)
		m.registry.change(func() { m.registry.down, m.registry.tries = true, 0 })
		for range 100 {
			m.announce("b/leaving")
			time.Sleep(recheck / 10)
		}
		synctest.Wait()
		if n := m.registry.tries; n < 9 || n > 11 {
			t.Errorf("%d tries in 10 times %v", n, recheck)
		}
		m.registry.change(func() { m.registry.down, m.registry.hangs = false, true })
		time.Sleep(recheck + recheck/2)
		m.registry.change(func() { m.registry.hangs = false })
		m.want("while a write hangs", "2: a b")
		time.Sleep(swapTimeout + recheck)
		m.want("after it", "3: a b/leaving")
	})
}

func TestOldViewsAreIgnored(t *testing.T) {
	inRegistry(t, 1, func(t *testing.T, m *membershipTest) {
		m.announce("a")
		time.Sleep(2 * joinBatch)
		old := m.nodes[0].router.View()
		m.announce("a@2")
		m.want("new", "2: a@2")
		m.parts[0].Update(RegistryContent{View: old})
		m.want("still", "2: a@2")
		m.parts[0].Update(RegistryContent{View: m.nodes[0].router.View()})
		m.want("again", "2: a@2")
		if got := strings.Count(m.log.String(), "new view"); got != 2 {
			t.Errorf("told of %d new views, want 2:\n%s", got, m.log.String())
		}
	})
}

// One node more than the ring has room for stops no other node: it waits for a place.
func TestTooManyNodes(t *testing.T) {
	inRegistry(t, 1, func(t *testing.T, m *membershipTest) {
		for _, p := range m.parts {
			p.params.Partitions = 64 // 8 members
		}
		m.announce("a b c d e f g h i j")
		time.Sleep(2 * joinBatch)
		m.want("full", "2: a b c d e f g h")
		if got := m.parts[0].LeftOut(); got != 2 {
			t.Errorf("%d left out, want 2", got)
		}
		time.Sleep(time.Minute)
		m.announce("i@2")
		time.Sleep(time.Minute)
		m.want("a minute later", "2: a b c d e f g h")
		if got := strings.Count(m.log.String(), "left_out=2"); got != 1 {
			t.Errorf("told %d times:\n%s", got, m.log.String())
		}
		m.announce("b/leaving")
		m.want("one leaves", "3: a b/leaving c d e f g h i@2")
		if got := m.parts[0].LeftOut(); got != 1 {
			t.Errorf("%d left out, want 1", got)
		}
		m.announce("c/leaving d/leaving")
		time.Sleep(2 * joinBatch)
		if got := m.parts[0].LeftOut(); got != 0 {
			t.Errorf("%d left out of %s", got, m.members())
		}
	})
}
