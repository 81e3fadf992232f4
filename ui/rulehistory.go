package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of the revisions of rules that are kept.
const (
	maxRevisions     = 50
	maxHistoryBytes  = 8 << 20 // of all of them
	maxRevisionBytes = 4 << 20 // of one, which is what ApplyRules takes
)

// endsWithin is how long before or after a revision was seen the call ends that made it. It waits until the revision is in force.
const endsWithin = time.Second

// ruleHistory are the revisions of the rules that this node has seen since its start. It is safe for concurrent use.
type ruleHistory struct {
	looking sync.Mutex // held while the rules in force are read and added, so that revisions are in order

	mu        sync.Mutex
	revisions []ruleRevision // guarded by mu; the oldest first
}

// RuleFile are the rules of one revision of the store.
type RuleFile struct {
	Revision int64 // 0 if the rules come from a file of the node
	Rules    int
	Domains  []string
	Text     string // as a file, in the order of the rules
}

// ruleRevision is a revision, and when this node has seen it first.
type ruleRevision struct {
	RuleFile
	At time.Time
}

// add adds a revision, and drops the oldest ones for which there is no room.
func (h *ruleHistory) add(r ruleRevision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revisions = append(h.revisions, r)
	bytes := 0
	for _, r := range h.revisions {
		bytes += len(r.Text)
	}
	drop := 0
	for len(h.revisions)-drop > maxRevisions || bytes > maxHistoryBytes && len(h.revisions)-drop > 1 {
		bytes -= len(h.revisions[drop].Text)
		drop++
	}
	h.revisions = slices.Clone(h.revisions[drop:])
}

// newest returns the number of the last revision, -1 if there is none.
func (h *ruleHistory) newest() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.revisions) == 0 {
		return -1
	}
	return h.revisions[len(h.revisions)-1].Revision
}

// list returns the revisions, the newest first.
func (h *ruleHistory) list() []ruleRevision {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.revisions)
	slices.Reverse(list)
	return list
}

// find returns the rules of a revision.
func (h *ruleHistory) find(revision int64) (ruleRevision, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.revisions {
		if r.Revision == revision {
			return r, true
		}
	}
	return ruleRevision{}, false
}

// LookAtRules keeps the rules if they have changed. Rules of files have no revisions. It is to be called at each change.
func (s *Server) LookAtRules() {
	s.history.looking.Lock()
	defer s.history.looking.Unlock()
	now := time.Now()
	file, changed := s.cfg.RuleFile(s.history.newest())
	if !changed || file.Revision == 0 || len(file.Text) > maxRevisionBytes {
		return
	}
	s.history.add(ruleRevision{file, now})
}

// listAll returns all rules of one revision of the store.
func listAll(ctx context.Context, from weirv1.RateLimiterConfigClient) (all []*weirv1.RateLimit, revision int64, err error) {
	req := &weirv1.ListRateLimitsRequest{PageSize: pageOfRules}
	for range maxPages {
		list, err := from.ListRateLimits(ctx, req)
		if err != nil {
			return nil, 0, err
		}
		if req.GetPageToken() != "" && list.GetRevision() != revision {
			return nil, 0, status.Error(codes.Aborted, "the rules are changing")
		}
		revision, all = list.GetRevision(), append(all, list.GetRateLimits()...)
		if req.PageToken = list.GetNextPageToken(); req.GetPageToken() == "" {
			return all, revision, nil
		}
	}
	return nil, 0, status.Errorf(codes.ResourceExhausted, "there are more than %d rules", maxPages*pageOfRules)
}

// historyBody is the list of revisions, or one of them.
type historyBody struct {
	Revisions []historyRow
	Current   int64
	One       *ruleRevision
	Verdict   *verdict // what going back to it changes
}

// historyRow is a revision with the caller that made it.
type historyRow struct {
	ruleRevision
	Caller, Action string
}

// showHistory lists the revisions. The caller reads the rules of all domains, as the list of rules checks.
func (s *Server) showHistory(w http.ResponseWriter, r *http.Request) {
	list, err := s.rules.ListRateLimits(r.Context(), &weirv1.ListRateLimitsRequest{PageSize: 1})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	body := historyBody{Current: list.GetRevision()}
	var entries []*weirv1.AuditEntry
	if audit, err := s.nodes.ListAudit(r.Context(), &weirv1.ListAuditRequest{}); err == nil { // else the caller may not read it
		entries = audit.GetEntries()
	}
	revisions := s.history.list()
	authors := authorsOf(revisions, entries)
	for _, revision := range revisions {
		row := historyRow{ruleRevision: revision}
		if e := authors[revision.Revision]; e != nil {
			row.Caller, row.Action = cmp.Or(e.GetClient(), e.GetFrom()), actionWord(e.GetAction())+" "+e.GetTarget()
		}
		body.Revisions = append(body.Revisions, row)
	}
	s.render(w, r, http.StatusOK, "history", "History of the rules", "rules", body)
}

// authorsOf returns the changes that this node has recorded, the oldest first, by the revisions that they have led to, of a list that
// begins with the newest. A change ends at about the time at which its revision is seen, and has led to one revision at most.
func authorsOf(revisions []ruleRevision, entries []*weirv1.AuditEntry) map[int64]*weirv1.AuditEntry {
	authors := make(map[int64]*weirv1.AuditEntry)
	for i, r := range slices.Backward(revisions) {
		until := r.At.Add(endsWithin)
		if i > 0 && revisions[i-1].At.Before(until) {
			until = revisions[i-1].At
		}
		for len(entries) > 0 && time.Unix(0, entries[0].GetTime()).Before(until) {
			e := entries[0]
			entries = entries[1:]
			at := time.Unix(0, e.GetTime())
			if e.GetOutcome() == "OK" && strings.HasPrefix(e.GetAction(), "RateLimiterConfig.") && at.After(r.At.Add(-endsWithin)) {
				authors[r.Revision] = e
				break
			}
		}
	}
	return authors
}

// revisionOf returns the kept revision that a path names.
func (s *Server) revisionOf(r *http.Request) (ruleRevision, error) {
	number, err := strconv.ParseInt(r.PathValue("revision"), 10, 64)
	if err != nil {
		return ruleRevision{}, status.Errorf(codes.InvalidArgument, "revision: %.20q is not a number", r.PathValue("revision"))
	}
	revision, found := s.history.find(number)
	if !found {
		return revision, status.Errorf(codes.NotFound, "this node has not kept revision %d of the rules", number)
	}
	return revision, nil
}

// showRevision shows what going back to a revision changes.
func (s *Server) showRevision(w http.ResponseWriter, r *http.Request) {
	list, err := s.rules.ListRateLimits(r.Context(), &weirv1.ListRateLimitsRequest{PageSize: 1})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	revision, err := s.revisionOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	body := historyBody{Current: list.GetRevision(), One: &revision}
	resp, err := s.goBack(r.Context(), revision, body.Current, true)
	if err != nil {
		body.Verdict = &verdict{Problems: strings.Split(status.Convert(err).Message(), "\n")}
	} else {
		body.Verdict = &verdict{Changes: resp.GetChanges(), More: resp.GetMoreChanges(), Same: !resp.GetChanged()}
	}
	s.render(w, r, http.StatusOK, "revision", fmt.Sprintf("Revision %d", revision.Revision), "rules", body)
}

// rollBack puts the rules of a revision in force again, as a new revision.
func (s *Server) rollBack(w http.ResponseWriter, r *http.Request) {
	b, err := s.readForm(r)
	var revision ruleRevision
	if err == nil {
		revision, err = s.revisionOf(r)
	}
	if err == nil {
		_, err = s.goBack(r.Context(), revision, b.Revision, false)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.Redirect(w, r, "/ui/rules", http.StatusSeeOther)
}

// goBack applies the rules of a revision to those of the revision current. Domains that were not there are emptied.
func (s *Server) goBack(ctx context.Context, to ruleRevision, current int64, dry bool) (*weirv1.ApplyRulesResponse, error) {
	now, _, err := listAll(ctx, s.rules)
	if err != nil {
		return nil, err
	}
	text, emptied := to.Text, make(map[string]bool)
	if len(to.Domains) == 0 {
		text = ""
	}
	for _, rule := range now {
		if domain := rule.GetDomain(); !slices.Contains(to.Domains, domain) && !emptied[domain] {
			emptied[domain] = true
			if text != "" {
				text += "\n---\n"
			}
			text += fmt.Sprintf("domain: %q\nrules: []\n", domain) // a domain may look like a number
		}
	}
	return s.rules.ApplyRules(ctx, &weirv1.ApplyRulesRequest{
		Rules: text, Name: fmt.Sprintf("revision %d", to.Revision), Prune: true, DryRun: dry, ExpectedRevision: proto.Int64(current),
	})
}
