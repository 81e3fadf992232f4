package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// overviewBody is the state of the cluster.
type overviewBody struct {
	Now      time.Time
	View     uint64
	Asked    string // the node that was asked
	Rules    uint32
	Rates    ratesView
	Ready    int
	Nodes    []nodeView
	Problems []problemView
	Denied   string // what the caller's role does not show
	Points   [][6]float64
}

// ratesView are rates for a template.
type ratesView struct {
	Allowed, Denied, Undecided float64
	P50, P99                   time.Duration
	Known                      bool
}

func (r rates) view(known bool) ratesView {
	return ratesView{r.allowed, r.denied, r.undecided, r.p50, r.p99, known}
}

// nodeView is one row of nodes.
type nodeView struct {
	*weirv1.Node
	Self     bool
	State    string // in a word
	Tone     string // good, busy or bad
	Hint     string
	Share    uint32 // of all partitions, in per mille
	All      uint32 // partitions
	Rates    ratesView
	Load     Load
	Reported bool
	Filled   int // percent of the memory of counters
}

// problemView is a problem, and which nodes say so.
type problemView struct {
	Text  string
	Nodes []string
}

func (s *Server) overview(w http.ResponseWriter, r *http.Request) {
	body, err := s.look(r.Context(), time.Time{})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "overview", "Overview", "overview", body)
}

// liveAnswer is what a page that stays open asks for again and again.
type liveAnswer struct {
	Points [][6]float64      `json:"points"`
	Parts  map[string]string `json:"parts"` // HTML by the id of the element that it is in
}

func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseInt(cmp.Or(r.URL.Query().Get("after"), "0"), 10, 64)
	if err != nil {
		http.Error(w, "after: not a number of milliseconds", http.StatusBadRequest)
		return
	}
	body, err := s.look(r.Context(), time.UnixMilli(after))
	if err != nil {
		http.Error(w, status.Convert(err).Message(), http.StatusServiceUnavailable)
		return
	}
	answer := liveAnswer{Points: body.Points, Parts: make(map[string]string)}
	for _, part := range []string{"problems", "tiles", "nodes"} {
		var b bytes.Buffer
		if err := s.pages["overview"].ExecuteTemplate(&b, part, body); err != nil {
			s.cfg.Logger.Error("part of the dashboard not rendered", "part", part, "error", err)
			http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
			return
		}
		answer.Parts[part] = b.String()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // a client that is gone does not matter
}

// look asks for the state of the cluster, with the points of the charts after an instant.
func (s *Server) look(ctx context.Context, after time.Time) (overviewBody, error) {
	body := overviewBody{Now: time.Now(), Points: [][6]float64{}}
	health, err := s.health.GetHealthStatus(ctx, &weirv1.GetHealthStatusRequest{})
	if err != nil {
		return body, err
	}
	list, err := s.nodes.ListNodes(ctx, &weirv1.ListNodesRequest{})
	if err != nil {
		return body, err
	}
	body.View, body.Asked, body.Rules = list.GetView(), health.GetNodeId(), health.GetRuleCount()
	points, byNode, loads := s.samples.after(after)
	for _, p := range points {
		body.Points = append(body.Points, [6]float64{
			float64(p.at.UnixMilli()), p.allowed, p.denied, p.undecided, p.p50.Seconds() * 1000, p.p99.Seconds() * 1000,
		})
	}
	if all, _, _ := s.samples.after(time.Time{}); len(all) > 0 {
		body.Rates = all[len(all)-1].view(true)
	}
	partitions := uint32(0)
	for _, n := range list.GetNodes() {
		partitions += n.GetPartitions()
	}
	problems := make(map[string][]string)
	for _, reason := range health.GetReasons() {
		problems[reason] = append(problems[reason], health.GetNodeId())
	}
	for _, n := range list.GetNodes() {
		v := nodeView{Node: n, Self: n.GetId() == health.GetNodeId(), All: partitions}
		v.State, v.Tone, v.Hint = stateOf(n)
		if v.Tone == "good" {
			body.Ready++
		}
		if partitions > 0 {
			v.Share = n.GetPartitions() * 1000 / partitions
		}
		load, reported := loads[n.GetId()]
		if v.Reported = reported && body.Now.Sub(load.At) < staleAfter; v.Reported {
			v.Load = load
			v.Rates = byNode[n.GetId()].view(true)
			if load.CounterLimit > 0 {
				v.Filled = int(100 * load.CounterBytes / load.CounterLimit)
			}
			for _, p := range load.Problems {
				if !v.Self && !slices.Contains(problems[p], n.GetId()) {
					problems[p] = append(problems[p], n.GetId())
				}
			}
		}
		body.Nodes = append(body.Nodes, v)
	}
	for text, nodes := range problems {
		body.Problems = append(body.Problems, problemView{strings.ToUpper(text[:1]) + text[1:], nodes})
	}
	slices.SortFunc(body.Problems, func(a, b problemView) int {
		return cmp.Or(cmp.Compare(len(b.Nodes), len(a.Nodes)), cmp.Compare(a.Text, b.Text))
	})
	return body, nil
}

// stateOf says in a word what a node is doing, how good that is, and why.
func stateOf(n *weirv1.Node) (word, tone, hint string) {
	switch {
	case n.GetMember() && !n.GetReachable():
		return "unreachable", "bad", "It does not answer the node that you ask."
	case n.GetUnreached() != "":
		return "not reached", "bad", n.GetUnreached()
	}
	switch n.GetState() {
	case weirv1.NodeState_NODE_STATE_JOINING:
		return "joining", "busy", "It has started, and takes its share."
	case weirv1.NodeState_NODE_STATE_READY:
		return "ready", "good", ""
	case weirv1.NodeState_NODE_STATE_LEAVING:
		return "leaving", "busy", "It hands its partitions over."
	case weirv1.NodeState_NODE_STATE_LEFT:
		return "left", "busy", "It has handed everything over."
	default:
		return "gone", "bad", "Its key is gone from etcd."
	}
}
