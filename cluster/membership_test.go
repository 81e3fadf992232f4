package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
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
	view     *view.View
	routing  *View
	revision int64
	down     bool
	hangs    bool
	watchers []func(RegistryContent)
	views    []*view.View // all that were ever stored
	tries    int          // of SwapView
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

func (r *fakeRegistry) SwapView(ctx context.Context, v *view.View, revision int64) error {
	routing, err := RoutingView(v)
	if err != nil {
		return err
	}
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
	r.view, r.routing = v, routing
	r.revision++
	r.views = append(r.views, v)
	r.tellLocked()
	return nil
}

func (r *fakeRegistry) ReadView(context.Context) (*view.View, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errors.New("etcd is down")
	}
	return r.view, nil
}

// newest returns the stored view.
func (r *fakeRegistry) newest() *view.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view
}

func (r *fakeRegistry) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.tellLocked()
}

func (r *fakeRegistry) tellLocked() {
	s := RegistryContent{View: r.view, Routing: r.routing, ViewRevision: r.revision}
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
	params   ring.Params
	parts    []*Membership
	log      syncBuffer // of all nodes
}

// prompt is an electorate of which every node adopts every view at once, and has all that it is to have, unless it was killed.
type prompt struct {
	m    *membershipTest
	node *testNode

	mu      sync.Mutex
	view    *view.View      // guarded by mu
	planned view.CachedPlan // guarded by mu
}

func (e *prompt) Update(RegistryContent) {}

func (e *prompt) Adopt(v *view.View) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.view != nil && v.Number <= e.view.Number {
		return
	}
	routing, err := RoutingView(v)
	if err != nil {
		e.m.t.Error(err)
	}
	e.view = v
	e.node.router.SetView(routing)
}

func (e *prompt) Reports() (reports view.Reports) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var newest view.NewestReports
	newest.Keep(e.view)
	for _, l := range slices.Concat(e.view.Lives(), e.view.Before) {
		if !e.m.killed(l.ID) {
			newest.Note(view.Report{Life: l, Adopted: e.view.Number, Settled: view.Set{0}, Complete: view.Set{0}})
		}
	}
	return newest.All()
}

func (e *prompt) Plan(v *view.View) view.Plan {
	e.mu.Lock()
	defer e.mu.Unlock()
	plan, err := e.planned.For(e.m.params, v)
	if err != nil {
		e.m.t.Error(err)
	}
	e.planned = plan
	return plan.Plan
}

func (e *prompt) Reached(l Life) bool            { return !e.m.killed(l.ID) }
func (e *prompt) Unconnected() []view.Pair       { return nil }
func (e *prompt) Farewells() []view.Life         { return nil }
func (e *prompt) FarewellHeard() <-chan struct{} { return nil }
func (e *prompt) Consider(*View, []Node)         {}
func (e *prompt) Admits(Node) bool               { return true }
func (e *prompt) Accused() map[Life][]string     { return nil }

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
	inRegistryOf(t, ring.DefaultParams, size, f)
}

func inRegistryOf(t *testing.T, params ring.Params, size int, f func(t *testing.T, m *membershipTest)) {
	synctest.Test(t, func(t *testing.T) {
		m := &membershipTest{testCluster: newTestCluster(t, size), registry: &fakeRegistry{nodes: make(map[string]Node)}, params: params}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, n := range m.nodes {
			n.router.table.Store(nil) // the harness has set a view already
			part := NewMembership(n.id, params, m.registry, n.router, &prompt{m: m, node: n}, slog.New(slog.NewTextHandler(&m.log, nil)))
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

// members returns the members by which all nodes route, or complains if they differ.
func (m *membershipTest) members() string {
	m.t.Helper()
	synctest.Wait()
	first := m.nodes[0].router.View()
	for _, n := range m.nodes[1:] {
		if v := n.router.View(); (v == nil) != (first == nil) || v != nil && v.Number != first.Number {
			m.t.Errorf("%s routes by another view", n.id)
		}
	}
	return formatMembers(first.Present())
}

func (m *membershipTest) want(when, members string) {
	m.t.Helper()
	if got := m.members(); got != members {
		m.t.Errorf("%s: %q, want %q", when, got, members)
	}
}

// parseNodes reads "a b/joining c/leaving d@2": ids, states and incarnations.
func parseNodes(s string) (nodes []Node) {
	for _, f := range strings.Fields(s) {
		n := Node{State: Ready, Incarnation: 1}
		f, state, found := strings.Cut(f, "/")
		if found {
			n.State = State(state)
		}
		id, inc, found := strings.Cut(f, "@")
		if found {
			n.Incarnation, _ = strconv.ParseUint(inc, 10, 64) // 0 shows
		}
		n.ID, n.Address = id, id+":1"
		nodes = append(nodes, n)
	}
	return nodes
}

func parseView(s string) *View {
	if s == "" {
		return nil
	}
	v := &View{Number: 1}
	for _, n := range parseNodes(s) {
		v.Members = append(v.Members, Member{ID: n.ID, Address: n.Address, Incarnation: n.Incarnation, Leaving: n.State == Leaving})
	}
	return v
}

func formatMembers(members []Member) string {
	var s []string
	for _, m := range members {
		text := m.ID
		if m.Incarnation != 1 {
			text += fmt.Sprintf("@%d", m.Incarnation)
		}
		if m.Leaving {
			text += "/leaving"
		}
		s = append(s, text)
	}
	return strings.Join(s, " ")
}

func TestWriter(t *testing.T) {
	for _, tc := range []struct{ view, nodes, want string }{
		{"", "", ""},
		{"", "a/joining b c", "b"},
		{"b c", "a b c", "b"}, // a is new and knows no member yet
		{"b c", "a c", "c"},
		{"b c", "a", "a"}, // the members are all gone
		{"b c", "b/leaving c", "c"},
		{"b", "b/leaving", ""},
	} {
		if got := writer(parseView(tc.view), parseNodes(tc.nodes)); got != tc.want {
			t.Errorf("view (%s), nodes (%s): %q, want %q", tc.view, tc.nodes, got, tc.want)
		}
	}
}

// settling is a time in which the partitions of a few nodes come where the plan wants them.
const settling = 20 * time.Second

func TestFirstViewAndJoins(t *testing.T) {
	inRegistry(t, 3, func(t *testing.T, m *membershipTest) {
		m.announce("a")
		m.want("first", "a")
		m.announce("b")
		time.Sleep(plannedEvery + confirmEvery)
		m.want("b", "a b")
		m.announce("c")
		time.Sleep(plannedEvery + confirmEvery)
		m.want("c", "a b c")
		if n := m.parts[0].LeftOut(); n != 0 {
			t.Errorf("%d left out", n)
		}
		time.Sleep(settling)
		number := m.nodes[0].router.View().Number
		time.Sleep(settling)
		if v := m.nodes[0].router.View(); v.Number != number {
			t.Errorf("view %d follows view %d, although nothing has happened", v.Number, number)
		}
	})
}

func TestLeavingIsNotDelayed(t *testing.T) {
	inRegistry(t, 3, func(t *testing.T, m *membershipTest) {
		m.announce("a b c")
		time.Sleep(settling)
		m.want("all", "a b c")
		m.announce("a/leaving") // the one that writes
		m.want("at once", "a/leaving b c")
		m.announce("b@2")
		m.want("restarted", "a/leaving b@2 c")
		m.announce("a/left")
		m.want("has left", "b@2 c")
	})
}

// A key that was gone before has its whole grace again.
func TestGraceStartsAgain(t *testing.T) {
	inRegistry(t, 3, func(t *testing.T, m *membershipTest) {
		m.announce("a b c")
		time.Sleep(settling)
		m.registry.expire("a", "c") // b writes now
		time.Sleep(time.Minute)
		m.announce("a c")
		m.kill(m.nodes[2])
		time.Sleep(time.Minute)
		m.registry.expire("c")
		m.want("c at once", "a b c")
		time.Sleep(goneGrace + settling)
		m.want("c later", "a b")
		m.kill(m.nodes[0])
		time.Sleep(time.Minute)
		m.registry.expire("a")
		m.want("a at once", "a b")
		time.Sleep(goneGrace + settling)
		m.want("a later", "b")
	})
}

func TestDeadNodeIsDroppedOnceItsLeaseHasEnded(t *testing.T) {
	inRegistry(t, 3, func(t *testing.T, m *membershipTest) {
		m.announce("a b c")
		time.Sleep(settling)
		m.kill(m.nodes[0])
		time.Sleep(time.Minute)
		m.want("while it has a lease", "a b c")
		m.registry.expire("a")
		time.Sleep(goneGrace + settling)
		m.want("after it", "b c")
	})
}

// When etcd loses all leases at once, no node is dropped that still answers; and
// when the keys come back, nothing has changed.
func TestMassExpiryIsHarmless(t *testing.T) {
	inRegistry(t, 4, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d")
		time.Sleep(settling)
		m.want("all", "a b c d")
		m.registry.expire("a", "b", "c", "d")
		time.Sleep(time.Minute)
		m.announce("a")
		time.Sleep(time.Minute)
		m.want("three keys missing for a minute", "a b c d")
		m.announce("b c d")
		time.Sleep(time.Minute)
		m.want("the keys are back", "a b c d")
	})
}

func TestDropsAreSpreadOut(t *testing.T) {
	inRegistry(t, 6, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d e f")
		time.Sleep(settling)
		for _, n := range m.nodes[3:] {
			m.kill(n)
		}
		m.registry.expire("d", "e", "f")
		time.Sleep(goneGrace + 500*time.Millisecond)
		time.Sleep(10 * time.Second)
		m.want("all three", "a b c")
		for i, v := range m.registry.views[1:] {
			if before := m.registry.views[i].Lives(); len(v.Lives()) < len(before)-max(1, len(before)/3) {
				t.Errorf("view %d drops more than a third of %v: it has %v", v.Number, before, v.Lives())
			}
		}
	})
}

// Members change again only once half of the members of before have adopted the last change: else those that keep etcd would shrink
// their majority one removal after the other. After waiveAfter the others go on without those that are missing, and say so.
func TestMembersChangeOnlyAsFastAsTheyAdopt(t *testing.T) {
	inRegistry(t, 5, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d e")
		time.Sleep(settling)
		for _, n := range m.nodes[2:] {
			m.kill(n)
		}
		m.registry.expire("c", "d", "e")
		time.Sleep(goneGrace + 500*time.Millisecond)
		m.want("the first third", "a b d e")
		m.announce("f") // which would be a change as well
		m.announce("b@2")
		m.want("a restart changes no members", "a b@2 d e")
		m.announce("b@2/leaving")
		m.want("nor does a drain", "a b@2/leaving d e")
		m.announce("b@2/left")
		time.Sleep(waiveAfter - 2*time.Second - 10*confirmEvery)
		m.want("two of five have adopted view 3", "a b@2/leaving d e")
		if v := m.registry.newest(); v.Waived != 0 || len(v.GivenUp) > 0 {
			t.Errorf("view %d: waived %d, given up %v", v.Number, v.Waived, v.GivenUp)
		}
		time.Sleep(2*time.Second + 12*confirmEvery)
		v := m.registry.newest()
		if want := []Life{{ID: "c", Incarnation: 1}, {ID: "d", Incarnation: 1}, {ID: "e", Incarnation: 1}}; v.Waived == 0 || v.Changed <= v.Waived || !slices.Equal(v.GivenUp, want) {
			t.Errorf("%s: changed %d, waived %d, given up %v, want %v", m.members(), v.Changed, v.Waived, v.GivenUp, want)
		}
		if !strings.Contains(m.members(), "f") || !strings.Contains(m.log.String(), "fewer than half") {
			t.Errorf("%s:\n%s", m.members(), m.log.String())
		}
		time.Sleep(waiveAfter)
		m.want("a and f are two of four, and of three", "a f")
		m.announce("c@2")
		time.Sleep(settling)
		if v := m.registry.newest(); !slices.Equal(v.GivenUp, []Life{{ID: "d", Incarnation: 1}, {ID: "e", Incarnation: 1}}) {
			t.Errorf("%s: given up %v", m.members(), v.GivenUp)
		}
	})
}

// An operator's word that a node is dead counts as its adoption.
func TestRemovedByAnOperator(t *testing.T) {
	inRegistry(t, 5, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d e")
		time.Sleep(settling)
		for _, n := range m.nodes[2:] {
			m.kill(n)
		}
		m.registry.expire("c", "d", "e")
		time.Sleep(goneGrace + 500*time.Millisecond)
		m.want("the first third", "a b d e")
		for _, id := range []string{"x", ""} {
			if _, err := m.parts[1].Remove(t.Context(), id); !errors.Is(err, ErrNoMember) {
				t.Errorf("removing %q: %v", id, err)
			}
		}
		if _, err := m.parts[1].Remove(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		m.want("c was missing", "a b")
		if v := m.registry.newest(); v.Waived != 0 || len(v.GivenUp) > 0 {
			t.Errorf("waived %d, given up %v", v.Waived, v.GivenUp)
		}
	})
	inRegistry(t, 5, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d e")
		time.Sleep(settling)
		m.kill(m.nodes[2])
		if v, err := m.parts[0].Remove(t.Context(), "c"); err != nil || v.IsMember("c") {
			t.Fatal(v, err)
		}
		if want := []Life{{ID: "c", Incarnation: 1}}; !slices.Equal(m.registry.evicted, want) {
			t.Errorf("evicted: %v, want %v", m.registry.evicted, want)
		}
		m.want("at once", "a b d e")
		if v := m.registry.newest(); !slices.Equal(v.Ended, []Life{{ID: "c", Incarnation: 1}}) {
			t.Errorf("changed %d, ended %v", v.Changed, v.Ended)
		}
	})
}

func TestViewIsWrittenWhenEtcdIsBack(t *testing.T) {
	inRegistry(t, 2, func(t *testing.T, m *membershipTest) {
		m.announce("a b")
		time.Sleep(settling)
		m.registry.change(func() { m.registry.down = true })
		m.announce("b/leaving")
		time.Sleep(time.Minute)
		m.want("while etcd is down", "a b")
		m.registry.mu.Lock() // no node is told
		m.registry.down = false
		m.registry.mu.Unlock()
		time.Sleep(recheck)
		m.want("after it", "a b/leaving")
	})
}

// However much changes while writes fail, they are tried once per recheck, and one
// that hangs is given up.
func TestFailedWritesAreSpreadOut(t *testing.T) {
	inRegistry(t, 2, func(t *testing.T, m *membershipTest) {
		m.announce("a b")
		time.Sleep(settling)
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
		m.want("while a write hangs", "a b")
		time.Sleep(swapTimeout + recheck)
		m.want("after it", "a b/leaving")
	})
}

func TestOldViewsAreIgnored(t *testing.T) {
	inRegistry(t, 1, func(t *testing.T, m *membershipTest) {
		m.announce("a")
		time.Sleep(settling)
		old := m.registry.newest()
		m.announce("a@2")
		time.Sleep(settling)
		m.want("new", "a@2")
		told := strings.Count(m.log.String(), "new view")
		for _, v := range []*view.View{old, m.registry.newest()} {
			m.parts[0].Update(RegistryContent{View: v})
			m.want("still", "a@2")
		}
		if got := strings.Count(m.log.String(), "new view"); got != told {
			t.Errorf("told of %d new views, want %d:\n%s", got, told, m.log.String())
		}
	})
}

// One node more than the ring has room for stops no other node: it waits for a place.
func TestTooManyNodes(t *testing.T) {
	params := ring.DefaultParams
	params.Partitions = 64 // 8 members
	inRegistryOf(t, params, 1, func(t *testing.T, m *membershipTest) {
		m.announce("a b c d e f g h i j")
		time.Sleep(settling)
		m.want("full", "a b c d e f g h")
		if got := m.parts[0].LeftOut(); got != 2 {
			t.Errorf("%d left out, want 2", got)
		}
		time.Sleep(time.Minute)
		m.announce("i@2")
		time.Sleep(time.Minute)
		m.want("a minute later", "a b c d e f g h")
		if got := strings.Count(m.log.String(), "left_out=2"); got != 1 {
			t.Errorf("told %d times:\n%s", got, m.log.String())
		}
		m.announce("b/leaving")
		m.want("one leaves", "a b/leaving c d e f g h i@2")
		if got := m.parts[0].LeftOut(); got != 1 {
			t.Errorf("%d left out, want 1", got)
		}
		m.announce("c/leaving d/leaving")
		time.Sleep(settling)
		if got := m.parts[0].LeftOut(); got != 0 {
			t.Errorf("%d left out of %s", got, m.members())
		}
	})
}
