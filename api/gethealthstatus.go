package api

import (
	"context"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// healthServer implements weirv1.RateLimiterHealthServer.
type healthServer struct {
	weirv1.UnsafeRateLimiterHealthServer // the compiler names a method that is missing
	limiter                              *Limiter
	status                               Status
	port                                 Port
}

// GetHealthStatus implements weirv1.RateLimiterHealthServer.
func (s healthServer) GetHealthStatus(context.Context, *weirv1.GetHealthStatusRequest) (*weirv1.GetHealthStatusResponse, error) {
	if s.port == PublicPort { // what clients identify the node by
		self := s.status.Self()
		return &weirv1.GetHealthStatusResponse{NodeId: self.ID, Incarnation: self.Incarnation, Ready: s.status.Ready(), Cluster: s.status.Cluster()}, nil
	}
	self, set, problems := s.status.Self(), s.status.Rules(), s.status.Problems()
	resp := &weirv1.GetHealthStatusResponse{
		NodeId:        self.ID,
		Incarnation:   self.Incarnation,
		Version:       self.Version,
		Ready:         s.status.Ready(),
		Degraded:      len(problems) > 0,
		Reasons:       problems,
		EtcdReachable: s.status.EtcdReachable(),
		RulesHash:     set.Hash(),
		RuleCount:     uint32(set.Len()),
		Counters:      uint64(s.status.Counters()),
		Cluster:       s.status.Cluster(),
	}
	if v := s.status.View(); v != nil {
		resp.View = v.Number
		for _, m := range v.Present() {
			resp.Members = append(resp.Members, &weirv1.Member{
				Id: m.ID, Address: m.Address, Incarnation: m.Incarnation, Reachable: s.status.Reaches(m.ID),
			})
		}
	}
	return resp, nil
}
