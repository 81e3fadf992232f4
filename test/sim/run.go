package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Result is what came of a plan.
type Result struct {
	Plan    Plan
	RunLog  *RunLog
	Records *Answers

	// Broken is violations that do not depend on the counters: errors, views that differ, nodes that end,
	// partitions with several deciding nodes or, in the end, none.
	Broken []string
	// Exceeded are counters of which more was granted than is promised.
	Exceeded []string
	// Undecided are checks that a node should have decided, and none has.
	Undecided []string

	// Stories are the decisions of each node on every key that was granted too much, and on one that was
	// undecided.
	Stories []string
}

// Hooks are called in a run in addition to its plan.
type Hooks struct {
	// During runs in parallel with the load, from the start of the plan on.
	During func(w *World)
}

// Run plays a plan. It must be called in a bubble, and leaves nothing behind in it.
func Run(p Plan, hooks Hooks) (*Result, error) {
	w, err := NewWorld()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.waived = p.waived
	for id, by := range p.Clocks {
		w.setClock(id, by)
	}
	if err := w.startNodes(p); err != nil {
		return nil, err
	}
	r := &Result{Plan: p, RunLog: w.RunLog, Records: newAnswers()}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.load(ctx, p, r.Records); err != nil {
			w.fail("load: %v", err)
		}
	})
	running.Go(func() { w.watchDeciders(ctx) })
	if hooks.During != nil {
		running.Go(func() { hooks.During(w) })
	}
	w.play(p)
	w.sleepUntil(p.End())
	r.Broken = append(w.differences(), notHeldOnce(w.deciding())...)
	cancel()
	running.Wait()
	r.judge(w)
	return r, nil
}

// startNodes starts the first nodes, and gives them their rules.
func (w *World) startNodes(p Plan) error {
	if err := w.place(p.Seed); err != nil {
		return err
	}
	for _, id := range p.Start {
		if err := w.Start(id); err != nil {
			return err
		}
	}
	time.Sleep(settle / 2) // until all are members
	conn, err := w.connect(p.Start[0])
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is under way
	_, err = weirv1.NewRateLimiterConfigClient(conn).ApplyRules(context.Background(), &weirv1.ApplyRulesRequest{Rules: text()})
	time.Sleep(settle / 4) // until all have them
	return err
}

// place makes the cluster's secret from a seed, so that every play of it has the same keys in the same partitions.
func (w *World) place(seed uint64) error {
	ctx := context.Background()
	registry, err := etcd.Open(ctx, etcd.Config{Endpoints: []string{etcdAddress}, Cluster: clusterName, Dial: w.checker.Dial})
	if err != nil {
		return err
	}
	defer registry.Close()
	params, err := registry.Bootstrap(ctx, cluster.Params{Ring: ring.Params{Partitions: w.size}, Secret: binary.LittleEndian.AppendUint64(make([]byte, ring.SecretSize-8), seed)})
	if err != nil {
		return err
	}
	set, err := rules.Parse("rules", []byte(text()))
	if err != nil {
		return err
	}
	for rule := range Rules {
		for user := range usersPerRule {
			matches := set.Match(ring.NewHasher([ring.SecretSize]byte(params.Secret)), &rules.Request{Domain: "default", Attributes: []rules.Attribute{
				{Key: "user", Value: userName(user)}, {Key: "endpoint", Value: Rules[rule].Name},
			}}, nil)
			if len(matches) != 1 {
				return fmt.Errorf("%v has %d limits", Key{rule, user}, len(matches))
			}
			k, p := Key{rule, user}, matches[0].Key.Partition(uint32(params.Ring.Partitions))
			w.partitions[k] = p
			w.record.follow(k, matches[0].Key, p)
		}
	}
	return nil
}

// differences says what of the view is not as it must be when all faults are over.
func (w *World) differences() (problems []string) {
	ids := w.ids()
	var first *weirv1.GetRingResponse
	for _, id := range ids {
		ring, err := w.ring(id)
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("node %s does not tell its view: %v", id, err))
		case first == nil:
			first = ring
			if members := membersOf(ring); !slices.Equal(members, ids) {
				problems = append(problems, fmt.Sprintf("members of view %d are %v, nodes that run are %v", ring.GetView(), members, ids))
			}
		case ring.GetView() != first.GetView() || !slices.Equal(ring.GetOwners(), first.GetOwners()) || !slices.Equal(membersOf(ring), membersOf(first)):
			problems = append(problems, fmt.Sprintf("node %s has view %d, node %s has view %d", ids[0], first.GetView(), id, ring.GetView()))
		}
	}
	return problems
}

func membersOf(r *weirv1.GetRingResponse) (ids []string) {
	for _, s := range r.GetShares() {
		ids = append(ids, s.GetId())
	}
	return ids
}

func (w *World) ring(id string) (*weirv1.GetRingResponse, error) {
	conn, err := w.connect(id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is under way
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return weirv1.NewClusterClient(conn).GetRing(ctx, &weirv1.GetRingRequest{Tables: true})
}

// judge says what the records show.
func (r *Result) judge(w *World) {
	w.mu.Lock()
	r.Broken = append(r.Broken, w.failures...)
	w.mu.Unlock()
	r.Broken = append(r.Broken, r.some("failed", r.Records.errors)...)
	refused := slices.DeleteFunc(slices.Clone(r.Records.refused), func(p problem) bool { return r.Plan.undecidable(p.at) })
	late := slices.DeleteFunc(slices.Clone(r.Records.late), func(p problem) bool { return r.Plan.unanswerable(p.at) })
	r.Undecided = append(r.Undecided, r.some("were not answered", late)...)
	r.Undecided = append(r.Undecided, r.some("were undecided", refused)...)
	for _, p := range [][]problem{late, refused} {
		if len(p) > 0 {
			r.Stories = append(r.Stories, r.story(p[0].String(), p[0].key, stretch{p[0].at, p[0].at + before/4}, w))
		}
	}
	for _, k := range r.Records.keys() {
		if e, found := r.Plan.Excess(k, r.Records.hits[k], w.start); found {
			r.RunLog.addAt(e.Since, "CHECK", "too much from now on: %v", e)
			r.Exceeded = append(r.Exceeded, e.String())
			r.tell(k, w.traces[k])
			r.Stories = append(r.Stories, r.story(e.String(), k, e.Within, w))
		}
	}
}

// tell tells the run log where a key was and what was admitted of it.
func (r *Result) tell(k Key, trace []entry) {
	for _, e := range trace {
		r.RunLog.addAt(e.at, e.who, "%s", e.what)
	}
	for _, h := range r.Records.hits[k] {
		r.RunLog.addAt(h.To, "HIT", "%v: %d by %v, asked at %.3fs", k, h.Tokens, h.Source, h.From.Seconds())
	}
}

// story is what happened around a stretch in which something was wrong with a key, with all that is known of that.
func (r *Result) story(wrong string, k Key, within stretch, w *World) string {
	told := RunLog{entries: slices.Clone(w.traces[k])}
	for _, n := range w.record.of[k] {
		told.addAt(n.at, n.who, "%v", n)
	}
	for _, h := range r.Records.hits[k] {
		told.addAt(h.To, "HIT", "%d by %v, asked at %.3fs", h.Tokens, h.Source, h.From.Seconds())
	}
	r.RunLog.mu.Lock()
	for _, n := range r.RunLog.entries {
		if n.who != "OWNER" && n.who != "HIT" {
			told.entries = append(told.entries, n)
		}
	}
	r.RunLog.mu.Unlock()
	told.entries = slices.DeleteFunc(told.entries, func(n entry) bool {
		return n.who != "FAULT" && n.at < within.from-before || n.at > within.to+before/4
	})
	return fmt.Sprintf("%s\n%v", wrong, &told)
}

// some returns the first problems of many, and tells the run log how many there were in
// every second.
func (r *Result) some(what string, problems []problem) (texts []string) {
	const most = 3
	perSecond := make(map[time.Duration]int)
	for i, p := range problems {
		perSecond[p.at.Truncate(time.Second)]++
		if i < most {
			texts = append(texts, p.String())
		}
	}
	for second, n := range perSecond {
		r.RunLog.addAt(second+time.Second, "CHECK", "%d checks of the last second %s", n, what)
	}
	if n := len(problems); n > most {
		texts = append(texts, fmt.Sprintf("%d checks %s", n, what))
	}
	return texts
}

// Summary says in one line what was asked and what came of it.
func (r *Result) Summary() string {
	admitted := 0
	for _, hits := range r.Records.hits {
		admitted += len(hits)
	}
	var by []string
	for _, source := range slices.Sorted(maps.Keys(r.Records.sources)) {
		by = append(by, fmt.Sprintf("%v %d", source, r.Records.sources[source]))
	}
	return fmt.Sprintf("seed %d: %d faults, %d checks, %d admitted, %d denied, %v; %d broken, %d exceeded, %d undecided",
		r.Plan.Seed, len(r.Plan.Faults), r.Records.checks, admitted, r.Records.denied, by, len(r.Broken), len(r.Exceeded), len(r.Undecided))
}
