package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// traffic is a cluster whose nodes count what a test says, by the time since it began.
type traffic struct {
	began  time.Time
	stored *weirv1.RateLimit
	// perSecond is what each node counts in a second: allowed, and without room.
	perSecond [2]float64
	perCheck  uint32
	members   []string
	fault     func(node string, since time.Duration) error // of counts; nil: none
	changes   func(since time.Duration, rule *weirv1.RateLimit)
	restarts  map[string]time.Duration // when a node was started again
	lag       time.Duration            // until nodes run what was stored
	askedLag  time.Duration            // until the asked one returns it
	wrote     time.Time
	updateErr error
	failsFrom int64 // updates fail with updateErr once the rule has this revision
	before    int64 // revision of the rule before the last change
}

func newTraffic(enforce uint32, allowed, noRoom float64) *traffic {
	return &traffic{
		began: time.Now(), perSecond: [2]float64{allowed, noRoom}, perCheck: 1, members: []string{"a", "b", "c"},
		stored: &weirv1.RateLimit{Domain: "default", Id: "r", Revision: 4, Rule: &weirv1.Rule{Enforce: proto.Uint32(enforce), Limits: []*weirv1.Limit{{Limit: 3, Window: "1m"}}}},
	}
}

func (f *traffic) rule(context.Context) (*weirv1.RateLimit, error) {
	if f.changes != nil {
		f.changes(time.Since(f.began), f.stored)
	}
	if f.stored.GetRule() == nil {
		return nil, status.Error(codes.NotFound, "there is no such rule")
	}
	rule := proto.CloneOf(f.stored)
	if time.Since(f.wrote) < f.askedLag {
		rule.Revision = f.before
	}
	return rule, nil
}

func (f *traffic) update(_ context.Context, rule *weirv1.RateLimit) (*weirv1.RateLimit, error) {
	if f.updateErr != nil && f.stored.GetRevision() >= f.failsFrom {
		return nil, f.updateErr
	}
	if rule.GetRevision() != f.stored.GetRevision() {
		return nil, status.Error(codes.Aborted, "the rule has changed")
	}
	f.before = f.stored.GetRevision()
	f.stored = proto.CloneOf(rule)
	f.stored.Revision++
	f.wrote = time.Now()
	return proto.CloneOf(f.stored), nil
}

func (f *traffic) nodes(context.Context) (nodes []*weirv1.Node, err error) {
	for _, id := range f.members {
		nodes = append(nodes, &weirv1.Node{Id: id, Member: true})
	}
	return append(nodes, &weirv1.Node{Id: "waits"}), nil
}

func (f *traffic) counts(_ context.Context, n *weirv1.Node) (*weirv1.GetRuleCountsResponse, error) {
	since := time.Since(f.began)
	if n.GetId() == "waits" {
		return nil, status.Error(codes.Unavailable, "it starts")
	}
	if f.fault != nil {
		if err := f.fault(n.GetId(), since); err != nil {
			return nil, err
		}
	}
	incarnation := uint64(1)
	if at, ok := f.restarts[n.GetId()]; ok && since >= at {
		incarnation, since = 2, since-at
	}
	revision := f.stored.GetRevision()
	if time.Since(f.wrote) < f.lag {
		revision = f.before
	}
	allowed, noRoom := f.perSecond[0]*since.Seconds(), f.perSecond[1]*since.Seconds()+1e-6 // which rounds a quotient times since back to a count
	return &weirv1.GetRuleCountsResponse{
		NodeId: n.GetId(), Incarnation: incarnation, Revision: revision, LimitsPerCheck: f.perCheck,
		Allowed: uint64(allowed), Denied: uint64(noRoom / 4), WouldDeny: uint64(noRoom) - uint64(noRoom/4),
	}, nil
}

// promoteWith carries out a plan with steps to 10, 50 and 100 percent, and returns the events, the steps that were stored, and why it stopped.
func promoteWith(t *testing.T, f *traffic, change func(*plan)) (events []rolloutEvent, stored []uint32, stopped string) {
	t.Helper()
	p := plan{name: ruleName{"", "r"}, below: 0.01, steps: []int64{10, 50, 100}, wait: time.Minute, minChecks: 300, patience: 10 * time.Second}
	if change != nil {
		change(&p)
	}
	err := (&rollout{plan: p, cluster: f, report: func(e rolloutEvent) error {
		events = append(events, e)
		if e.Event == "stored" {
			stored = append(stored, e.Enforce)
		}
		return nil
	}}).run(t.Context())
	if err != nil {
		if _, isStop := errors.AsType[*stopError](err); isStop != (len(events) > 0 && events[len(events)-1].Event == "stopped") {
			t.Errorf("the last event is %+v, the error %v", events, err)
		}
		stopped = err.Error()
	}
	return events, stored, stopped
}

// A rule that denies little goes through all steps, each after its time, and the checks of all nodes are counted once.
func TestRolloutReachesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTraffic(0, 10, 0.04)
		f.lag, f.askedLag = 3*time.Second, 2*time.Second
		events, stored, stopped := promoteWith(t, f, nil)
		if stopped != "" || !slices.Equal(stored, []uint32{10, 50, 100}) || f.stored.GetRule().GetEnforce() != 100 || f.stored.GetRevision() != 7 {
			t.Fatalf("stored %v, stopped %q, the rule is %v", stored, stopped, f.stored)
		}
		if since := time.Since(f.began); since < 3*time.Minute || since > 4*time.Minute {
			t.Errorf("three minutes took %v", since)
		}
		for i, e := range events {
			if next := min(i+1, len(events)-1); e.Event == "watched" && events[next].Event == "stored" {
				// 3 nodes with 10.04 checks per second, for 60 s or up to a reading more
				if *e.Checks < 1800 || *e.Checks > 2000 || *e.Denied < 5 || *e.Denied > 9 || e.Bound {
					t.Errorf("a step counts %d checks, %d without room", *e.Checks, *e.Denied)
				}
			}
		}
		if events[0].Event != "plan" || events[len(events)-1].Event != "done" {
			t.Errorf("%+v", events)
		}
	})
}

// Steps that a rule has reached are left out. At the end there is nothing to do.
func TestRolloutGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, stored, stopped := promoteWith(t, newTraffic(20, 10, 0), nil); stopped != "" || !slices.Equal(stored, []uint32{50, 100}) {
			t.Errorf("stored %v, %s", stored, stopped)
		}
		f := newTraffic(20, 10, 0)
		f.stored.Rule.Enforce = nil // which is 100
		if events, stored, stopped := promoteWith(t, f, nil); stopped != "" || len(stored) > 0 || len(events) != 1 || len(events[0].Steps) > 0 {
			t.Errorf("%+v, stored %v, %s", events, stored, stopped)
		}
	})
}

// What ends a roll-out is said, and the rule stays as it is.
func TestRolloutStops(t *testing.T) {
	unreachable := status.Error(codes.Unavailable, "connection refused")
	from := func(at time.Duration, node string, err error) func(string, time.Duration) error {
		return func(id string, since time.Duration) error {
			if id == node && since >= at {
				return err
			}
			return nil
		}
	}
	rising := func(change func(*traffic)) func() *traffic { // in the second step, of 10 %
		return func() *traffic {
			f := newTraffic(0, 10, 0)
			f.changes = func(since time.Duration, _ *weirv1.RateLimit) {
				if since > 70*time.Second {
					f.perSecond[1] = 2
				}
			}
			if change != nil {
				change(f)
			}
			return f
		}
	}
	for name, tc := range map[string]struct {
		traffic func() *traffic
		plan    func(*plan)
		stored  []uint32
		want    string
	}{
		"too many denied": {traffic: func() *traffic { return newTraffic(0, 10, 0.5) }, want: "default/r stopped at 0%: 3"},
		"as many as the share": {traffic: func() *traffic { return newTraffic(0, 0, 10) },
			plan: func(p *plan) { p.below = 1 }, want: "0 without room (100%), which is not below 100%"},
		"too many denied later":                  {traffic: rising(nil), stored: []uint32{10, 0}, want: "default/r went back from 10% to 0%: "},
		"too many denied later, and it stays":    {traffic: rising(nil), plan: func(p *plan) { p.stay = true }, stored: []uint32{10}, want: "default/r stopped at 10%: "},
		"too many denied later, from 5%":         {traffic: rising(func(f *traffic) { f.stored.Rule.Enforce = proto.Uint32(5) }), stored: []uint32{10, 5}, want: "default/r went back from 10% to 5%: "},
		"too many denied later, and the command": {traffic: rising(nil), stored: []uint32{10, 0}, want: `to see whose checks, run "weir top --by would_deny --domain default --rule r"`},
		"too many denied later, and changed": {traffic: rising(func(f *traffic) {
			f.failsFrom, f.updateErr = 5, status.Error(codes.Aborted, "the rule has changed")
		}), stored: []uint32{10}, want: "; it does not go back, as another caller has changed or deleted the rule"},
		"too many denied later, and storing fails": {traffic: rising(func(f *traffic) {
			f.failsFrom, f.updateErr = 5, status.Error(codes.Unavailable, "etcd is away")
		}), stored: []uint32{10}, want: "default/r may still be at 10%, set enforce to 0 by hand: "},
		"too few checks":             {traffic: func() *traffic { return newTraffic(0, 0.1, 0) }, want: "too few checks to know: 18, and at least 300 are needed"},
		"few checks, and all denied": {traffic: func() *traffic { return newTraffic(0, 0.1, 1) }, want: "15 checks, 15 without room (100%), which is not below 1%"},
		"no checks":                  {traffic: func() *traffic { return newTraffic(0, 0, 0) }, plan: func(p *plan) { p.minChecks = 1 }, want: "too few checks to know: 0"},
		"changed": {traffic: func() *traffic {
			f := newTraffic(0, 10, 0)
			f.changes = func(since time.Duration, r *weirv1.RateLimit) {
				if since > 30*time.Second {
					r.Revision = 9
				}
			}
			return f
		}, want: "another caller has changed the rule: it has revision 9, and had 4"},
		"changed at the last moment": {traffic: func() *traffic {
			f := newTraffic(0, 10, 0)
			f.updateErr = status.Error(codes.Aborted, "the rule has changed")
			return f
		}, want: "stopped at 0%: another caller has changed the rule"},
		"deleted": {traffic: func() *traffic {
			f := newTraffic(0, 10, 0)
			f.changes = func(since time.Duration, r *weirv1.RateLimit) {
				if since > 30*time.Second {
					r.Rule = nil
				}
			}
			return f
		}, want: "another caller has deleted the rule"},
		"a node is missing": {traffic: func() *traffic {
			f := newTraffic(0, 10, 0)
			f.fault = from(30*time.Second, "b", unreachable)
			return f
		}, want: "stopped at 0%: for 10s, b does not answer: connection refused"},
		"a node lacks the rule": {traffic: func() *traffic {
			f := newTraffic(0, 10, 0)
			f.fault = from(0, "c", status.Error(codes.NotFound, "no rule"))
			return f
		}, want: "for 10s, c does not run the rule"},
		"a node keeps the old rule": {traffic: func() *traffic {
			f := newTraffic(0, 10, 0)
			f.lag = time.Hour
			f.wrote = f.began.Add(-2 * time.Hour)
			return f
		}, stored: []uint32{10}, want: "stopped at 10%: for 10s, a runs revision 4 of the rule, not 5; b runs"},
		"the asked node keeps the old rule": {traffic: func() *traffic {
			f := newTraffic(0, 10, 0)
			f.askedLag = time.Hour
			f.wrote = f.began.Add(-2 * time.Hour)
			return f
		}, stored: []uint32{10}, want: "stopped at 10%: for 10s, the asked node has revision 4 of the rule, not 5 yet"},
		"storing fails": {traffic: func() *traffic {
			f := newTraffic(0, 10, 0)
			f.updateErr = status.Error(codes.DeadlineExceeded, "too late")
			return f
		}, want: "default/r may be at 0% or at 10%, start the command again: storing failed: too late"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := tc.traffic()
				_, stored, stopped := promoteWith(t, f, tc.plan)
				if !slices.Equal(stored, tc.stored) || !strings.Contains(stopped, tc.want) {
					t.Errorf("stored %v, %q, want %v, %q", stored, stopped, tc.stored, tc.want)
				}
			})
		})
	}
}

// A share that is a little too high at first, as chance has it, does not stop a roll-out. One that is far too high does, before the time is over.
func TestRolloutStopsEarly(t *testing.T) {
	for _, tc := range []struct {
		noRoom float64 // checks of each node in the first second, of 50
		early  bool
	}{{4, false}, {40, true}} {
		synctest.Test(t, func(t *testing.T) {
			f := newTraffic(0, 50, 0)
			f.changes = func(since time.Duration, _ *weirv1.RateLimit) {
				if since >= time.Second {
					f.perSecond[1] = tc.noRoom / since.Seconds()
				}
			}
			_, _, stopped := promoteWith(t, f, func(p *plan) { p.steps = []int64{100} })
			if since := time.Since(f.began); tc.early != (stopped != "") || tc.early != (since < 10*time.Second) {
				t.Errorf("%v: after %v: %q", tc, since, stopped)
			}
		})
	}
}

// An interrupt leaves the rule as it is.
func TestRolloutInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTraffic(0, 10, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
		defer cancel()
		p := plan{name: ruleName{"", "r"}, below: 0.01, steps: []int64{10, 50}, wait: time.Minute, minChecks: 300, patience: 10 * time.Second}
		err := (&rollout{plan: p, cluster: f, report: func(rolloutEvent) error { return nil }}).run(ctx)
		if err == nil || err.Error() != "default/r stopped at 10%: it was interrupted" || f.stored.GetRule().GetEnforce() != 10 {
			t.Errorf("%v, the rule is %v", err, f.stored)
		}
	})
}

// A node that is silent for less than the patience stops nothing, and a node that is started again counts from zero.
func TestRolloutOutlastsARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTraffic(0, 10, 0)
		f.restarts = map[string]time.Duration{"b": 30 * time.Second}
		f.fault = func(id string, since time.Duration) error {
			if id == "b" && since > 26*time.Second && since < 31*time.Second {
				return status.Error(codes.Unavailable, "it stops")
			}
			if id == "c" && (since > 36*time.Second && since < 41*time.Second || since > 49*time.Second && since < 56*time.Second) {
				return status.Error(codes.Unavailable, "it is late") // for less than ten seconds each time
			}
			return nil
		}
		events, stored, stopped := promoteWith(t, f, func(p *plan) { p.steps = []int64{100} })
		if stopped != "" || !slices.Equal(stored, []uint32{100}) {
			t.Fatalf("stored %v, %s", stored, stopped)
		}
		last := events[len(events)-3]
		if *last.Checks < 1700 || *last.Checks > 1900 { // 1800 less what b has counted after its last reading
			t.Errorf("%d checks", *last.Checks)
		}
	})
}

// What was counted before all nodes ran the rule is left out.
func TestRolloutBeginsWithAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTraffic(0, 10, 0)
		f.fault = func(id string, since time.Duration) error {
			if id == "c" && since < 9*time.Second {
				return status.Error(codes.NotFound, "no such rule")
			}
			return nil
		}
		f.changes = func(since time.Duration, _ *weirv1.RateLimit) {
			if since > time.Second { // 90 checks without room, all in the first seconds
				f.perSecond[1] = 30 / since.Seconds()
			}
		}
		if _, stored, stopped := promoteWith(t, f, func(p *plan) { p.steps = []int64{100} }); stopped != "" || !slices.Equal(stored, []uint32{100}) {
			t.Errorf("stored %v, %s", stored, stopped)
		}
	})
}

// Nodes count from zero after a start, and a rule that was made again is counted from zero. What a node has counted before it was seen is left out.
func TestSheet(t *testing.T) {
	s := &sheet{last: make(map[string]reading)}
	for _, c := range []struct{ incarnation, allowed, want uint64 }{{1, 100, 0}, {1, 110, 10}, {2, 115, 125}, {2, 4, 129}, {2, 4, 129}} {
		if s.add(&weirv1.GetRuleCountsResponse{NodeId: "a", Incarnation: c.incarnation, Allowed: c.allowed}); s.sum.allowed != c.want {
			t.Errorf("%+v: %d checks", c, s.sum.allowed)
		}
	}
}

// With several limits a check, the share is an upper bound.
func TestRolloutOfSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTraffic(0, 19, 1) // limits: 10 checks of two limits, one of them without room
		f.perCheck = 2
		events, _, stopped := promoteWith(t, f, func(p *plan) { p.below = 0.2 })
		if stopped != "" {
			t.Fatal(stopped)
		}
		for _, e := range events {
			if e.Event == "watched" && (!e.Bound || *e.Share < 0.09 || *e.Share > 0.11) {
				t.Errorf("%d of %d checks, %v", *e.Denied, *e.Checks, *e.Share)
			}
		}
	})
}

// A dry run stores nothing, and says what would come of it.
func TestRolloutDry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTraffic(10, 10, 0)
		f.stored.Revision = 0 // from a file
		f.updateErr = errors.New("stored")
		events, _, stopped := promoteWith(t, f, func(p *plan) { p.dryRun = true })
		if last := events[len(events)-1]; stopped != "" || last.Event != "done" || last.Steps[0] != 50 || f.stored.GetRule().GetEnforce() != 10 {
			t.Errorf("%q, %+v, %v", stopped, last, f.stored)
		}
		if _, _, stopped := promoteWith(t, newTraffic(0, 10, 1), func(p *plan) { p.dryRun = true }); !strings.Contains(stopped, "not below 1%") {
			t.Errorf("a dry run of too many denials: %q", stopped)
		}
	})
}

// Rules without a percentage to raise are refused.
func TestRolloutRefuses(t *testing.T) {
	for want, change := range map[string]func(*weirv1.RateLimit){
		"is a descriptor":       func(r *weirv1.RateLimit) { r.Rule.DescriptorYaml = "key: user" },
		"has no limits":         func(r *weirv1.RateLimit) { r.Rule.Unlimited = true },
		"is not enabled":        func(r *weirv1.RateLimit) { r.Rule.Enabled = proto.Bool(false) },
		"comes from a file":     func(r *weirv1.RateLimit) { r.Revision = 0 },
		"there is no such rule": func(r *weirv1.RateLimit) { r.Rule = nil },
	} {
		f := newTraffic(0, 1, 0)
		change(f.stored)
		if events, _, stopped := promoteWith(t, f, nil); len(events) > 0 || !strings.Contains(stopped, want) {
			t.Errorf("%s: %q after %+v", want, stopped, events)
		}
	}
}

// A step is watched for the longest window of the rule at least, unless a flag says that a shorter time is enough: no caller
// may have reached a limit before.
func TestRolloutLooksForAWindow(t *testing.T) {
	limits := func(all ...*weirv1.Limit) []*weirv1.Limit { return all }
	for _, tc := range []struct {
		limits []*weirv1.Limit
		wait   time.Duration
		want   string // empty: it is watched
	}{
		{limits(&weirv1.Limit{Limit: 3, Window: "1m"}), time.Minute, ""},
		{limits(&weirv1.Limit{Limit: 3, Window: "1m"}), 59 * time.Second, "--wait: 59s is less than the 1m of a window of default/r"},
		{limits(&weirv1.Limit{Limit: 3, Window: "1s"}, &weirv1.Limit{Limit: 1000, Window: "1d"}), 10 * time.Minute, "--wait: 10m is less than the 24h of a window of default/r"},
		{limits(&weirv1.Limit{Limit: 3, Window: "1d"}), 24 * time.Hour, ""},
		{limits(&weirv1.Limit{Limit: 3, Algorithm: "fixed_window", Calendar: &weirv1.Calendar{Calendar: "week", Timezone: "Europe/Paris"}}), 24 * time.Hour, "wait 168h or longer with --wait"},
		{limits(&weirv1.Limit{Limit: 3, Algorithm: "fixed_window", Calendar: &weirv1.Calendar{Calendar: "month"}}), 168 * time.Hour, "let the rule count for 720h before"},
		{limits(&weirv1.Limit{Limit: 10, Burst: 50, Window: "1m", Algorithm: "token_bucket"}), 4 * time.Minute, "--wait: 4m is less than the 5m that a full token_bucket of default/r takes to refill"},
		{limits(&weirv1.Limit{Limit: 10, Burst: 50, Window: "1m", Algorithm: "token_bucket"}), 5 * time.Minute, ""},
		{limits(&weirv1.Limit{Limit: 10, Burst: 1, Window: "1m", Algorithm: "gcra"}), time.Minute, ""},
		{limits(&weirv1.Limit{Limit: 1, Burst: 1 << 31, Window: "366d", Algorithm: "gcra"}), time.Minute, "that a full gcra of default/r takes to refill"},
		{limits(&weirv1.Limit{Limit: 0, Window: "1d"}), time.Minute, ""}, // denies at once
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, shorter := range []bool{false, true} {
				f := newTraffic(0, 10, 0)
				f.stored.Rule.Limits = tc.limits
				events, _, stopped := promoteWith(t, f, func(p *plan) { p.wait, p.shorter, p.dryRun = tc.wait, shorter, true })
				if refused := tc.want != "" && !shorter; refused && (!strings.Contains(stopped, tc.want) || len(events) > 0) || !refused && stopped != "" {
					t.Errorf("%v for %v: %q after %d events, want %q", tc.limits, tc.wait, stopped, len(events), tc.want)
				}
			}
		})
	}
	f := newTraffic(100, 1, 0) // nothing is left to watch
	f.stored.Rule.Limits[0].Window = "1d"
	if _, _, stopped := promoteWith(t, f, nil); stopped != "" {
		t.Error(stopped)
	}
}

func TestPromoteFlags(t *testing.T) {
	for args, want := range map[string]string{
		"r":                                      "--if-denied-below is missing: name a share of the checks, such as 0.1%",
		"r --if-denied-below 0.1":                `--if-denied-below: "0.1" is not a share above 0% and up to 100%, such as 0.1%`,
		"r --if-denied-below 0%":                 `--if-denied-below: "0%" is not`,
		"r --if-denied-below 101%":               `--if-denied-below: "101%" is not`,
		"r --if-denied-below NaN%":               `--if-denied-below: "NaN%" is not`,
		"r --if-denied-below much%":              `--if-denied-below: "much%" is not`,
		"--if-denied-below 1%":                   "promote takes the id of one rule, but got 0 arguments",
		"r s --if-denied-below 1%":               "promote takes the id of one rule, but got 2 arguments",
		"r --if-denied-below 1% --steps 0,1":     "--steps: 0 is not between 1 and 100, as steps rise",
		"r --if-denied-below 1% --steps 10,10":   "--steps: 10 is not between 11 and 100, as steps rise",
		"r --if-denied-below 1% --steps 1,101":   "--steps: 101 is not between 2 and 100, as steps rise",
		"r --if-denied-below 1% --steps x":       "--steps: ",
		"r --if-denied-below 1% --wait 1ms":      "--wait: 1ms is not between 100ms and 168h0m0s",
		"r --if-denied-below 1% --min-checks -1": "--min-checks: -1 is below 0",
		"r --if-denied-below 1% --timeout 0s":    "--timeout: 0s is not above 0",
	} {
		got := weir(t, nil, append([]string{"rules", "promote"}, strings.Fields(args)...)...)
		if got.code != 2 || got.stdout != "" || !strings.HasPrefix(got.stderr, "weir: "+want) {
			t.Errorf("%s: %+v, want %s", args, got, want)
		}
	}
}

// The default of --min-checks goes by the share.
func TestPromoteMinChecks(t *testing.T) {
	for below, want := range map[string]uint64{"0.1%": 3000, "1%": 300, "100%": 3, "0.03%": 10000} {
		f := promoteFlags{below: below, steps: defaultSteps, wait: time.Minute}
		if p, err := f.plan(nil); err != nil || p.minChecks != want {
			t.Errorf("%s: %d, %v", below, p.minChecks, err)
		}
	}
}

// Events are lines for people, or of JSON.
func TestPromoteReport(t *testing.T) {
	ten, one, share := uint64(1000), uint64(1), 0.001
	events := []rolloutEvent{
		{Event: "plan", Domain: "shop", Rule: "r", Steps: []int64{1, 100}, MinChecks: 3000, Below: 0.001, Wait: 600, Back: new(uint32)},
		{Event: "watched", Domain: "shop", Rule: "r", Seconds: 60, Wait: 600, Checks: &ten, Denied: &one, Share: &share, Undecided: 2},
		{Event: "watched", Domain: "shop", Rule: "r", Seconds: 60, Wait: 600, Checks: &ten, Denied: &one, Share: &share, Bound: true},
		{Event: "stored", Domain: "shop", Rule: "r", Enforce: 1, Revision: 7},
		{Event: "stopped", Domain: "shop", Rule: "r", Reason: "why"},
		{Event: "done", Domain: "shop", Rule: "r", Enforce: 100},
		{Event: "done", Domain: "shop", Rule: "r", Steps: []int64{1}, DryRun: true},
		{Event: "plan", Domain: "shop", Rule: "r", Enforce: 100},
	}
	const want = `shop/r: 0% -> 1% -> 100%
each step after 10m with less than 0.1% of at least 3000 checks without room; with more, back to 0%
at 0%, 1m of 10m: 1000 checks, 1 without room (0.1%), 2 undecided
at 0%, 1m of 10m: 1000 checks, at most 1 without room (0.1%)
enforce is 1% now, revision 7
shop/r has reached 100%
nothing is stored: shop/r would move on to 1%
shop/r is at 100% already
`
	var people, lines strings.Builder
	for _, e := range events {
		for out, asJSON := range map[*strings.Builder]bool{&people: false, &lines: true} {
			a := &app{stdout: out}
			if err := a.rolloutReport(asJSON)(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if people.String() != want {
		t.Errorf("got\n%s\nwant\n%s", people.String(), want)
	}
	for i, line := range strings.Split(strings.TrimSpace(lines.String()), "\n") {
		var e rolloutEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil || fmt.Sprint(e.Event, e.Enforce, e.Reason) != fmt.Sprint(events[i].Event, events[i].Enforce, events[i].Reason) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
