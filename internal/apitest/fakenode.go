package apitest

import (
	"context"
	"slices"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Status is an api.Status that says what a test puts into its fields, and records what it was asked to do. A test
// changes the fields only while no call is in progress. A test with several nodes embeds it, and has methods of its own
// for what all nodes share.
type Status struct {
	// These are the results of Self, Cluster, Ready, View, Nodes, Unreached, EtcdReachable, Rules, Counters and Problems.
	Node       cluster.Node
	ClusterID  string
	IsReady    bool
	Current    *cluster.View
	Registered []cluster.Node
	Cut        []cluster.Unreached
	Etcd       bool
	Set        *rules.Set
	Count      int
	Faults     []string
	Opts       []*weirv1.Option

	// Reached are the ids that Reaches is true for, and HandoverStatuses the results of HandoverStatus by id.
	Reached          []string
	HandoverStatuses map[string]cluster.HandoverStatus

	// Drained is true after Drain, and false again after its cancellation. DrainErr is the error of both.
	Drained  bool
	DrainErr error

	// Removed is the id that Remove was last called with, and RemoveErr its error.
	Removed   string
	RemoveErr error

	// Lists is the result of TopLists, and Asked what it was last asked for.
	Lists *cluster.TopLists
	Asked topkeys.Query

	// Imported is true after an ImportView that was no dry run, and ImportErr its error.
	Imported  bool
	ImportErr error
}

// Self implements api.Status, as all methods do.
func (s *Status) Self() cluster.Node { return s.Node }

// Cluster returns ClusterID.
func (s *Status) Cluster() string { return s.ClusterID }

// Ready returns IsReady.
func (s *Status) Ready() bool { return s.IsReady }

// View returns Current.
func (s *Status) View() *cluster.View { return s.Current }

// Nodes returns Registered.
func (s *Status) Nodes() []cluster.Node { return s.Registered }

// Reaches reports whether id is one of Reached.
func (s *Status) Reaches(id string) bool { return slices.Contains(s.Reached, id) }

// Unreached returns Cut.
func (s *Status) Unreached() []cluster.Unreached { return s.Cut }

// EtcdReachable returns Etcd.
func (s *Status) EtcdReachable() bool { return s.Etcd }

// HandoverStatus returns that of HandoverStatuses.
func (s *Status) HandoverStatus(id string) cluster.HandoverStatus { return s.HandoverStatuses[id] }

// Drain sets Drained, and returns DrainErr.
func (s *Status) Drain(cancel bool) error {
	s.Drained = !cancel
	return s.DrainErr
}

// Remove sets Removed, and returns Current and RemoveErr.
func (s *Status) Remove(_ context.Context, id string) (*cluster.View, error) {
	s.Removed = id
	return s.Current, s.RemoveErr
}

// TopLists sets Asked, and returns Lists.
func (s *Status) TopLists(_ context.Context, q topkeys.Query) *cluster.TopLists {
	s.Asked = q
	return s.Lists
}

// ImportView sets Imported, and returns view 7 and ImportErr.
func (s *Status) ImportView(_ context.Context, dryRun bool) (*weirv1.ImportViewResponse, error) {
	s.Imported = !dryRun
	return &weirv1.ImportViewResponse{View: 7}, s.ImportErr
}

// Options returns Opts.
func (s *Status) Options() []*weirv1.Option { return s.Opts }

// Rules returns Set.
func (s *Status) Rules() *rules.Set { return s.Set }

// Counters returns Count.
func (s *Status) Counters() int { return s.Count }

// Problems returns Faults.
func (s *Status) Problems() []string { return s.Faults }
