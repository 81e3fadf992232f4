package ui

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of the timeline.
const (
	maxEvents  = 200             // that are shown
	maxAnswer  = 200             // that a node tells another one
	sameWithin = 5 * time.Second // between nodes that have seen the same
)

// Event is one thing that has happened.
type Event struct {
	At time.Time
	// Kind in words, of what, and the name of the caller that has asked for it, which is empty for what a node has seen.
	Kind, Target, Caller string
	// Outcome is that of a call, or "seen". Tone is good, busy or bad.
	Outcome, Tone, Reason string
	// Node is the one that was asked or has seen it.
	Node string
}

// eventsBody is the timeline.
type eventsBody struct {
	Events []eventRow
	Silent []string // nodes that have not answered
}

// eventRow is an event, and all the nodes that have seen it.
type eventRow struct {
	Event
	Nodes []string
}

// events shows what all nodes tell. The caller has the role for the audit log, as ListAudit checks.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if _, err := s.nodes.ListAudit(r.Context(), &weirv1.ListAuditRequest{}); err != nil {
		s.fail(w, r, err)
		return
	}
	all := s.OwnEvents(r.Context())
	others, silent := s.cfg.OtherEvents(r.Context())
	body := eventsBody{Events: timeline(append(all, others...)), Silent: silent}
	s.render(w, r, http.StatusOK, "events", "Events", "events", body)
}

// OwnEvents returns the last changes that callers have asked this node for, and what it has seen of other nodes, the newest first.
func (s *Server) OwnEvents(ctx context.Context) []Event {
	var all []Event
	node := ""
	if health, err := s.ownHealth.GetHealthStatus(ctx, &weirv1.GetHealthStatusRequest{}); err == nil {
		node = health.GetNodeId()
	}
	if resp, err := s.own.ListAudit(ctx, &weirv1.ListAuditRequest{}); err == nil { // else there is no audit log
		for _, e := range resp.GetEntries() {
			all = append(all, auditEvent(e))
		}
	}
	for _, e := range s.seen.list() {
		e.Node = node
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b Event) int { return b.At.Compare(a.At) })
	return all[:min(len(all), maxAnswer)]
}

func auditEvent(e *weirv1.AuditEntry) Event {
	v := Event{At: time.Unix(0, e.GetTime()), Kind: actionWord(e.GetAction()), Target: e.GetTarget(), Caller: e.GetClient(), Outcome: e.GetOutcome(), Reason: e.GetReason(), Node: e.GetNode(), Tone: "good"}
	if v.Caller == "" {
		v.Caller = e.GetFrom()
	}
	if v.Outcome != "OK" {
		v.Tone = "bad"
	}
	return v
}

// timeline puts events in order, the newest first. What several nodes have seen at about the same time is one row, of the instant of
// the first one.
func timeline(all []Event) []eventRow {
	slices.SortStableFunc(all, func(a, b Event) int { return a.At.Compare(b.At) })
	var rows []eventRow
	for _, e := range all {
		same := -1
		for i := len(rows) - 1; i >= 0 && e.At.Sub(rows[i].At) < sameWithin && same < 0; i-- {
			if o := rows[i]; e.Caller == "" && o.Caller == "" && o.Kind == e.Kind && o.Target == e.Target && !slices.Contains(o.Nodes, e.Node) {
				same = i
			}
		}
		if same >= 0 {
			rows[same].Nodes = append(rows[same].Nodes, e.Node)
			continue
		}
		rows = append(rows, eventRow{Event: e, Nodes: []string{e.Node}})
	}
	slices.Reverse(rows)
	return rows[:min(len(rows), maxEvents)]
}

// actionWord says in words what a call changes.
func actionWord(action string) string {
	_, method, _ := strings.Cut(action, ".")
	words := map[string]string{
		"CreateRateLimit": "Rule created", "UpdateRateLimit": "Rule changed", "DeleteRateLimit": "Rule deleted", "ApplyRules": "Rules applied",
		"ResetRateLimit": "Counters reset", "ResetDescriptors": "Counters reset", "DrainNode": "Drain asked for", "RemoveNode": "Node removed",
		"ReloadRules": "Rules reloaded", "ReloadAccessTokens": "Access tokens reloaded", "ImportView": "View imported", "CreateAccessToken": "Access token created", "RevokeAccessToken": "Access token revoked",
	}
	if word, known := words[method]; known {
		return word
	}
	return action
}
