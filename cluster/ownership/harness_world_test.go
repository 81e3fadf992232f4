package ownership

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// nodeWorld is a cluster of nodes in one bubble, with real counters and a register in place of etcd. Messages take 100 to 600 µs and the way. A writer
// writes views as view.Next wants them, from what the nodes report that it reaches.
type nodeWorld struct {
	t       *testing.T
	params  ring.Params
	way     time.Duration // that each message takes longer
	ctx     context.Context
	running sync.WaitGroup

	mu        sync.Mutex
	random    *rand.Rand                  // guarded by mu
	view      *view.View                  // the register; guarded by mu
	nodes     map[view.Life]*worldNodeRun // all that ever ran; guarded by mu
	cut       map[[2]string]bool          // ways on which nothing arrives, by ids; guarded by mu
	farewells map[view.Life]bool          // lives that have said farewell; guarded by mu
	doubts    map[[2]string]bool          // nodes that do not believe that they reach the other one; guarded by mu
	mute      string                      // the id of a node that stands still, as no other knows yet; guarded by mu
	wishes    map[view.Life]view.State    // what the registry says of nodes; guarded by mu
	held      bool                        // no view is written; guarded by mu
	began     time.Time
	story     []string       // guarded by mu
	lost      float64        // how many messages are lost; guarded by mu
	views     int            // how many were written; guarded by mu
	finals    finals         // guarded by mu
	fed       map[string]int // bytes of records, by the id of the sender; guarded by mu
}

// finals counts final states that have arrived, and feeds of nodes that have given theirs.
type finals struct{ taken, useless, followed, refused int }

// worldNodeRun is a node that runs, or has run.
type worldNodeRun struct {
	*Node
	world *nodeWorld
	stop  context.CancelFunc
	dead  atomic.Bool
	died  time.Time
}

const (
	worldEtcdLease = time.Second
	worldWaive     = 10 * time.Second // for half of the members to adopt a change of members
)

func runWorld(t *testing.T, seed uint64, play func(w *nodeWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &nodeWorld{
			t: t, began: time.Now(), params: ring.Params{Partitions: 67, ReplicationFactor: 40, Load: 1.25}, ctx: ctx, random: rand.New(rand.NewPCG(seed, 1)),
			nodes: make(map[view.Life]*worldNodeRun), cut: make(map[[2]string]bool), doubts: make(map[[2]string]bool), wishes: make(map[view.Life]view.State), farewells: make(map[view.Life]bool), fed: make(map[string]int),
		}
		w.running.Go(w.write)
		defer w.running.Wait()
		defer cancel()
		play(w)
	})
}

// wait lets virtual time pass.
func (w *nodeWorld) wait(d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	<-over.C
}

func (w *nodeWorld) chance() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Float64()
}

// lose has a share of the messages lost from now on.
func (w *nodeWorld) lose(share float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = share
}

// loses reports whether a message is lost.
func (w *nodeWorld) loses() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Float64() < w.lost
}

// start runs a life of a node, which is to join.
func (w *nodeWorld) start(id string, incarnation uint64) *worldNodeRun {
	x := w.newNode(id, incarnation)
	w.begin(x)
	return x
}

func (w *nodeWorld) newNode(id string, incarnation uint64) *worldNodeRun {
	l := view.Life{ID: id, Incarnation: incarnation}
	counters, err := shard.New(shard.Config{Partitions: uint32(w.params.Partitions), MaxBytes: 8 << 20, Metrics: prometheus.NewRegistry()})
	if err != nil {
		w.t.Fatal(err)
	}
	x := &worldNodeRun{world: w}
	x.Node = NewNode(Config{
		Self: l, Shard: counters, Partitions: w.params.Partitions, Plan: w.plan, Peers: x, Reports: func() view.Reports { return w.reports(l.ID) },
		IsGone: w.isGone, HasSaidFarewell: w.hasSaidFarewell, StandIns: func() []view.Life { return nil }, Attest: func() {}, Observer: unobserved{}, Logger: slog.New(slog.DiscardHandler),
	})
	return x
}

func (w *nodeWorld) begin(x *worldNodeRun) {
	var ctx context.Context
	ctx, x.stop = context.WithCancel(w.ctx)
	w.mu.Lock()
	w.nodes[x.Self], w.wishes[x.Self] = x, view.Ready
	w.mu.Unlock()
	w.running.Go(func() { x.Run(ctx) })
	w.running.Go(func() { x.live(ctx) })
}

// kill ends a node at once.
func (w *nodeWorld) kill(x *worldNodeRun) {
	x.dead.Store(true)
	w.mu.Lock()
	x.died = time.Now()
	w.mu.Unlock()
	x.stop()
}

func (w *nodeWorld) isGone(l view.Life, number uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.nodes[l]
	return x.dead.Load() && time.Since(x.died) >= worldEtcdLease && w.view.Number >= number
}

func (w *nodeWorld) plan(v *view.View) view.Plan {
	plan, err := view.PlanOf(w.params, v)
	if err != nil {
		w.t.Error(err)
	}
	return plan
}

// reaches reports whether messages arrive from one node at another.
func (w *nodeWorld) reaches(from, to string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.cut[[2]string{from, to}]
}

// separate cuts all ways between two nodes, or mends them.
func (w *nodeWorld) separate(a, b string, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[[2]string{a, b}], w.cut[[2]string{b, a}] = cut, cut
}

func (w *nodeWorld) hasSaidFarewell(l view.Life) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.farewells[l]
}

// written returns the view in the register.
func (w *nodeWorld) written() *view.View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.view
}

// halt has a node stand still: nothing arrives there, nor leaves it, and it adopts no view.
func (w *nodeWorld) halt(id string) {
	w.separate(id, "etcd", true)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = id
}

func (w *nodeWorld) isMute(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return id == w.mute
}

// doubt has a node not believe that it reaches another one, as before its next heartbeat.
func (w *nodeWorld) doubt(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubts[[2]string{from, to}] = true
}

// reports returns what the nodes report that are reached from one, or all for "".
func (w *nodeWorld) reports(from string) (all view.Reports) {
	for _, x := range w.living() {
		if from == "" || w.reaches(x.Self.ID, from) {
			all = append(all, x.Report())
		}
	}
	slices.SortFunc(all, func(a, b view.Report) int { return compareWorldLives(a.Life, b.Life) })
	return all
}

func compareWorldLives(a, b view.Life) int {
	switch {
	case a.ID < b.ID, a.ID == b.ID && a.Incarnation < b.Incarnation:
		return -1
	case a == b:
		return 0
	}
	return 1
}

// living returns the nodes that run, by id.
func (w *nodeWorld) living() (all []*worldNodeRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.nodes {
		if !x.dead.Load() {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *worldNodeRun) int { return compareWorldLives(a.Self, b.Self) })
	return all
}

// hold has no view written from now on, or views again.
func (w *nodeWorld) hold(held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = held
}

// write writes views: planned ones once a second.
func (w *nodeWorld) write() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var planned, unsure time.Time
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		reports := w.reports("")
		w.mu.Lock()
		if w.held {
			w.mu.Unlock()
			continue
		}
		v := w.view
		seen := view.Seen{}
		for l, state := range w.wishes {
			x := w.nodes[l]
			if x.dead.Load() && state != view.Left {
				state = view.Gone
				if time.Since(x.died) < worldEtcdLease {
					continue
				}
			}
			seen.Nodes = append(seen.Nodes, view.Member{Life: l, Address: l.ID + ":1", State: state})
		}
		var next *view.View
		urgency := view.Urgent
		if v == nil {
			next = w.first(seen)
		} else {
			if v.Confirmed(reports) {
				unsure = time.Now()
			}
			seen.Overdue = time.Since(unsure) >= worldWaive
			next, urgency = view.Next(v, seen, reports, w.plan(v))
		}
		if next != nil && (urgency == view.Urgent || time.Since(planned) >= time.Second) {
			w.view, planned = next, time.Now()
			w.views++
		}
		w.mu.Unlock()
	}
}

func (w *nodeWorld) first(seen view.Seen) *view.View {
	for _, m := range seen.Nodes {
		only := &view.View{Members: []view.Member{m}}
		return view.First(only.Members, w.plan(only))
	}
	return nil
}

// live renews what confirms a node's decision lease, and adopts views.
func (x *worldNodeRun) live(ctx context.Context) {
	x.Granted()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		began := time.Now()
		x.world.mu.Lock()
		v := x.world.view
		x.world.mu.Unlock()
		if v != nil && x.world.reaches(x.Self.ID, "etcd") {
			x.Adopt(v)
			x.Read(began, v.Number)
			x.Renewed(began)
		}
		for _, y := range x.world.living() {
			if i%20 == 0 && y != x && x.world.reaches(x.Self.ID, y.Self.ID) && x.world.reaches(y.Self.ID, x.Self.ID) {
				if w := y.View(); w != nil {
					x.Answered(y.Self, w.Number, began)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pass has a message arrive, or returns why it does not.
func (x *worldNodeRun) pass(ctx context.Context, to view.Life) (*worldNodeRun, error) {
	w := x.world
	over := time.NewTimer(w.way + time.Duration(100+w.chance()*500)*time.Microsecond)
	defer over.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-over.C:
	}
	w.mu.Lock()
	y := w.nodes[to]
	w.mu.Unlock()
	if x.dead.Load() || y == nil || y.dead.Load() || !w.reaches(x.Self.ID, to.ID) || w.isMute(x.Self.ID) || w.isMute(to.ID) || w.loses() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return y, nil
}

// back has an answer arrive, or returns why it does not.
func (x *worldNodeRun) back(ctx context.Context, y *worldNodeRun) error {
	_, err := y.pass(ctx, x.Self)
	return err
}

func (x *worldNodeRun) Feed(ctx context.Context, to view.Life, changes []*Changes, final <-chan struct{}) ([]Receipt, error) {
	sender, take := x, (*Node).Take
	if relay := x.relayTo(ctx, to, final); relay != nil {
		if _, err := x.pass(ctx, relay.Self); err != nil {
			return nil, err
		}
		sender, take = relay, (*Node).TakeAwaited
	}
	y, err := sender.pass(ctx, to)
	if err != nil {
		return nil, err
	}
	receipts := take(y.Node, x.Self, changes)
	x.world.countFeeds(x.Self.ID, changes, receipts)
	return receipts, sender.back(ctx, y)
}

// relayTo returns through which node changes go, once a final state is due, to one that this node does not reach; nil for none.
func (x *worldNodeRun) relayTo(ctx context.Context, to view.Life, final <-chan struct{}) *worldNodeRun {
	if x.world.reaches(x.Self.ID, to.ID) {
		return nil
	}
	pause(ctx, time.Hour, final)
	for _, y := range x.world.living() {
		if y.Self.ID != to.ID && x.world.reaches(x.Self.ID, y.Self.ID) && x.world.reaches(y.Self.ID, to.ID) {
			return y
		}
	}
	return nil
}

func (w *nodeWorld) countFeeds(from string, changes []*Changes, receipts []Receipt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, m := range changes {
		w.fed[from] += len(m.Records)
		switch {
		case m.Base != (replica.Version{}) && m.Index == 1 && receipts[i] == Again:
			w.finals.refused++
		case m.Base != (replica.Version{}) && m.Index == 1:
			w.finals.followed++
		case m.FinalFor == 0:
		case receipts[i] == Useless:
			w.finals.useless++
		case m.Complete:
			w.finals.taken++
		}
	}
}

// bytesFed returns how many bytes of records a node has fed others.
func (w *nodeWorld) bytesFed(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fed[id]
}

func (x *worldNodeRun) Post(ctx context.Context, to view.Life, posts []Post) ([]Posting, error) {
	y, err := x.pass(ctx, to)
	if err != nil {
		return nil, err
	}
	answers := y.Add(x.Self, posts)
	return answers, x.back(ctx, y)
}

func (x *worldNodeRun) Hear(ctx context.Context, to view.Life) (posts []Post, adopted uint64, err error) {
	y, err := x.pass(ctx, to)
	if err != nil {
		return nil, 0, err
	}
	y.Adopt(x.View()) // a call names the caller's view
	posts, adopted = y.Node.Hear(x.Self), y.View().Number
	return posts, adopted, x.back(ctx, y)
}

func (x *worldNodeRun) Ask(ctx context.Context, to view.Life, requests []Request) error {
	y, err := x.pass(ctx, to)
	if err != nil {
		return err
	}
	y.Give(x.Self, requests)
	return x.back(ctx, y)
}

func (x *worldNodeRun) Versions(ctx context.Context, to view.Life, partitions []uint32) ([]replica.Version, error) {
	y, err := x.pass(ctx, to)
	if err != nil {
		return nil, err
	}
	versions := y.Node.Versions(partitions)
	return versions, x.back(ctx, y)
}

func (x *worldNodeRun) ReachesID(id string) bool {
	w := x.world
	w.mu.Lock()
	var lives []view.Life
	for l := range w.nodes {
		if l.ID == id {
			lives = append(lives, l)
		}
	}
	w.mu.Unlock()
	return slices.ContainsFunc(lives, x.Reaches)
}

func (x *worldNodeRun) HasEnded(l view.Life) bool {
	w := x.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for other := range w.nodes {
		if other.ID == l.ID && other.Incarnation > l.Incarnation {
			return true
		}
	}
	return false
}

func (x *worldNodeRun) Reaches(l view.Life) bool {
	w := x.world
	w.mu.Lock()
	y, doubts := w.nodes[l], w.doubts[[2]string{x.Self.ID, l.ID}]
	w.mu.Unlock()
	return y != nil && !doubts && !y.dead.Load() && w.reaches(x.Self.ID, l.ID) && w.reaches(l.ID, x.Self.ID)
}

// worldKey returns the n-th key.
func worldKey(n int) ring.Key {
	random := rand.New(rand.NewPCG(uint64(n), 7))
	return ring.Key{Hi: random.Uint64(), Lo: random.Uint64()}
}

// keyOf returns a key of which a node is the owner.
func (x *worldNodeRun) keyOf() (key ring.Key, p uint32) {
	partitions := uint32(x.world.params.Partitions)
	for n := 0; ; n++ {
		key = worldKey(n)
		if p = key.Partition(partitions); x.View().Partitions[p].Owner == x.Self {
			return key, p
		}
	}
}

var worldLimit = algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 60, Window: int64(24 * time.Hour)}

// outcome is what has become of a check.
type outcome struct {
	allowed bool
	source  shard.Source
}

// mayGrant reports whether a node may grant from its copy: it is the owner, or does not reach that.
func (x *worldNodeRun) mayGrant(p uint32) bool {
	r, _ := x.Replica(p)
	return x.IsGrantable(p) && (r.Claim.Owner == x.Self || !x.Reaches(r.Claim.Owner))
}

// check asks a node that runs for one token: the owner by its view, which may name a predecessor, or else the standby.
func (w *nodeWorld) check(key ring.Key) outcome {
	p := key.Partition(uint32(w.params.Partitions))
	for range 40 {
		living := w.living()
		asked := living[int(w.chance()*float64(len(living)))]
		v := asked.View()
		if v == nil {
			w.wait(time.Millisecond)
			continue
		}
		part := v.Partitions[p]
		for _, l := range append([]view.Life{part.Owner}, part.Predecessors...) {
			if x := w.reached(asked, l); x != nil {
				if g := x.decide(key, false); g.Takes[0].Source == shard.Owner {
					return outcome{g.Allowed, shard.Owner}
				}
			}
		}
		for _, l := range []view.Life{part.Owner, part.Standby} {
			x := w.reached(asked, l)
			if x == nil || !x.mayGrant(p) {
				continue
			}
			if g := x.decide(key, true); g.Takes[0].Source == shard.Provisional {
				return outcome{g.Allowed, shard.Provisional}
			}
		}
		w.wait(5 * time.Millisecond)
	}
	return outcome{true, shard.Undecided}
}

func (w *nodeWorld) reached(from *worldNodeRun, to view.Life) *worldNodeRun {
	if from.Self == to {
		return from
	}
	if !from.Reaches(to) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[to]
}

func (x *worldNodeRun) decide(key ring.Key, provisional bool) shard.Group {
	g := []shard.Group{{Provisional: provisional, Takes: []shard.Take{{Key: key, Limit: worldLimit, Cost: 1}}}}
	x.Shard.Decide(g)
	return g[0]
}

func (w *nodeWorld) wish(x *worldNodeRun) view.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wishes[x.Self]
}

// settled returns "" if all partitions are where the plan wants them, their owners decide, and the nodes that reach etcd know it; else what is not so.
func (w *nodeWorld) settled() string {
	v := w.written()
	if v == nil {
		return "there is no view"
	}
	for _, x := range w.living() {
		if w.wish(x) == view.Ready && !v.IsMember(x.Self) {
			return x.Self.ID + " is no member"
		}
		if has := x.View(); w.reaches(x.Self.ID, "etcd") && (has == nil || has.Number < v.Number) {
			return x.Self.ID + " has not adopted the view"
		}
	}
	plan := w.plan(v)
	deciding := make([]view.Life, len(plan))
	for _, x := range w.living() {
		for p, term := range x.Deciding() {
			if term > 0 && deciding[p] != (view.Life{}) {
				w.t.Errorf("partition %d: %v and %v decide", p, deciding[p], x.Self)
			}
			if term > 0 {
				deciding[p] = x.Self
			}
		}
	}
	for p := range plan {
		if !v.Follows(p, plan) || deciding[p] != v.Partitions[p].Owner {
			return fmt.Sprintf("partition %d: %+v, the plan is %v, %v decides", p, v.Partitions[p], plan[p], deciding[p])
		}
	}
	return ""
}

// awaitSettled waits until all is settled.
func (w *nodeWorld) awaitSettled() {
	w.t.Helper()
	problem := ""
	for range 1200 {
		if problem = w.settled(); problem == "" {
			return
		}
		w.wait(50 * time.Millisecond)
	}
	w.t.Fatalf("after a minute: %s\n%s", problem, w.describe())
}

// describe says how things stand, for people to read.
func (w *nodeWorld) describe() string {
	var b strings.Builder
	v := w.written()
	fmt.Fprintf(&b, "view %d, members %v, before %v, changed %d\n", v.Number, v.Lives(), v.Before, v.Changed)
	plan := w.plan(v)
	for p := range plan {
		if v.Follows(p, plan) && w.unposted(p) == 0 {
			continue
		}
		fmt.Fprintf(&b, "partition %d: %+v, the plan is %v\n", p, v.Partitions[p], plan[p])
		for _, x := range w.living() {
			q := &x.parts[p]
			fmt.Fprintf(&b, "    %v: state %d, version %v, complete %d, claim %d, deltas %v acknowledged %v safe %v added %d\n    feeds %+v\n    intake %+v\n", x.Self, q.replica.State, q.replica.Version,
				q.replica.Complete, q.replica.Claim.Number, q.replica.Deltas, q.replica.Acknowledged, q.deltas.safe, q.deltas.own.added, q.out.feeds, q.in.feed)
		}
		break
	}
	for _, s := range w.story {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

// unposted returns how many deltas of a partition nodes have.
func (w *nodeWorld) unposted(p int) (n int) {
	for _, x := range w.living() {
		n += len(x.parts[p].deltas.own.batches)
	}
	return n
}

// unobserved is an Observer that waits for nothing.
type unobserved struct{}

func (unobserved) Opened(uint32)                          {}
func (unobserved) Moved(Move)                             {}
func (unobserved) Added(int)                              {}
func (unobserved) Followed(uint32, view.Life)             {}
func (unobserved) Begin(uint32) uint64                    { return 0 }
func (unobserved) Acknowledged(uint32, uint64, time.Time) {}
