package node

import (
	"context"

	"github.com/weirlimit/weir/api"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/ui"
)

// newUI makes the dashboard, which all HTTP servers of this node share. At which ports it is served is said where the
// roles of its paths are.
func (n *node) newUI(h ring.Hasher) (err error) {
	replays := newReplayer(n.rules.State, n.clusterDecisions)
	n.ui, err = ui.New(ui.Config{
		API: api.InProcess(n.limiter, n.config, n, n.access),
		Own: api.InProcess(n.limiter, n.config, n, nil),
		Format: func(limits []*weirv1.RateLimit) (string, error) {
			text, err := rules.Format(api.Documents(limits))
			return string(text), err
		},
		RuleFile: n.ruleFile,
		Loads:    n.clusterLoads,
		Problems: func() (problems []ui.Problem) {
			for _, p := range n.problems() {
				problems = append(problems, ui.Problem{Subject: p.subject, Text: p.text})
			}
			return problems
		},
		Caller:        api.CallerName,
		CheckToken:    n.access.CheckToken,
		Cookie:        api.TokenCookie,
		Secure:        n.certs != nil,
		HashedKeys:    n.opts.TopKeys == decisionlog.Hashed,
		Backtest:      replays.Replay,
		LastDecisions: newDecisionTail(&n.opts, h).LastDecisions,
		OtherEvents: func(ctx context.Context) ([]ui.Event, []string) {
			events, silent := n.owners.OtherEvents(ctx)
			var all []ui.Event
			for _, e := range events {
				all = append(all, ui.Event(e))
			}
			return all, silent
		},
		Logger: n.log,
	})
	if err == nil && n.network.Listen == nil { // as it is run
		n.rules.OnChange(func(*rules.Set) { n.ui.LookAtRules() })
	}
	return err
}

// ownEvents returns what the dashboards of other nodes show of this one.
func (n *node) ownEvents(ctx context.Context) []cluster.Event {
	var all []cluster.Event
	for _, e := range n.ui.OwnEvents(ctx) {
		all = append(all, cluster.Event(e))
	}
	return all
}

// clusterLoads returns the loads of this node and of all members that have reported one.
func (n *node) clusterLoads() []ui.Load {
	ids := []string{n.opts.ID}
	for _, m := range n.router.View().Present() {
		if m.ID != n.opts.ID {
			ids = append(ids, m.ID)
		}
	}
	var loads []ui.Load
	for _, id := range ids {
		if l := n.owners.LoadOf(id); !l.At.IsZero() {
			loads = append(loads, ui.Load{
				ID: id, At: l.At, Allowed: l.Allowed, Denied: l.Denied, Undecided: l.Undecided, Bounds: l.Bounds, Calls: l.Calls,
				Counters: l.Counters, CounterBytes: l.CounterBytes, CounterLimit: l.CounterLimit, Memory: l.Memory, Problems: l.Problems,
			})
		}
	}
	return loads
}

// ruleFile returns the rules in force as a file, unless they are those of the revision seen. Rules of files have none.
func (n *node) ruleFile(seen int64) (file ui.RuleFile, changed bool) {
	state := n.rules.State()
	if state.Revision == seen || state.Revision == 0 {
		return file, false
	}
	docs := state.Set.Documents()
	text, err := rules.Format(docs)
	if err != nil {
		n.log.Error("rules not kept for the dashboard", "revision", state.Revision, "error", err)
		return file, false
	}
	file = ui.RuleFile{Revision: state.Revision, Rules: state.Set.Len(), Text: string(text)}
	for _, doc := range docs {
		file.Domains = append(file.Domains, doc.Domain)
	}
	return file, true
}
