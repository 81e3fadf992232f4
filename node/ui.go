package node

import (
	"github.com/weirlimit/weir/api"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/ui"
)

// newUI makes the dashboard, which all HTTP servers of this node share. At which ports it is served is said where the
// roles of its paths are.
func (n *node) newUI() (err error) {
	n.ui, err = ui.New(ui.Config{
		API: api.InProcess(n.limiter, n.config, n, n.access),
		Own: api.InProcess(n.limiter, n.config, n, nil),
		Format: func(limits []*weirv1.RateLimit) (string, error) {
			text, err := rules.Format(api.Documents(limits))
			return string(text), err
		},
		Loads:      n.clusterLoads,
		Caller:     api.CallerName,
		CheckToken: n.access.CheckToken,
		Cookie:     api.TokenCookie,
		Secure:     n.certs != nil,
		Logger:     n.log,
	})
	return err
}

// clusterLoads returns the loads of this node and of all members that have reported one.
func (n *node) clusterLoads() []ui.Load {
	ids := []string{n.opts.ID}
	if v := n.router.View(); v != nil {
		for _, m := range v.Members {
			if m.ID != n.opts.ID {
				ids = append(ids, m.ID)
			}
		}
	}
	var loads []ui.Load
	for _, id := range ids {
		if l := n.ownership.LoadOf(id); !l.At.IsZero() {
			loads = append(loads, ui.Load{
				ID: id, At: l.At, Allowed: l.Allowed, Denied: l.Denied, Undecided: l.Undecided, Bounds: l.Bounds, Calls: l.Calls,
				Counters: l.Counters, CounterBytes: l.CounterBytes, CounterLimit: l.CounterLimit, Memory: l.Memory, Problems: l.Problems,
			})
		}
	}
	return loads
}
