package ui

import (
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Old revisions make room for new ones, by number and by bytes, and the newest one always stays.
func TestBoundsOfHistory(t *testing.T) {
	var h ruleHistory
	if h.newest() != -1 {
		t.Error("a history without revisions has one")
	}
	for i := range int64(2 * maxRevisions) {
		h.add(ruleRevision{RuleFile{Revision: i, Text: "x"}, time.Unix(i, 0)})
	}
	if list := h.list(); len(list) != maxRevisions || list[0].Revision != 2*maxRevisions-1 || h.newest() != list[0].Revision {
		t.Errorf("%d revisions from %d", len(list), list[0].Revision)
	}
	for i := range int64(5) {
		h.add(ruleRevision{RuleFile{Revision: 1000 + i, Text: strings.Repeat("x", maxHistoryBytes/2)}, time.Unix(i, 0)})
	}
	if list := h.list(); len(list) != 2 {
		t.Errorf("%d revisions of half the bytes", len(list))
	}
	h.add(ruleRevision{RuleFile{Revision: 2000, Text: strings.Repeat("x", 2*maxHistoryBytes)}, time.Unix(1, 0)})
	if _, found := h.find(2000); !found || len(h.list()) != 1 {
		t.Errorf("%d revisions, the newest found: %v", len(h.list()), found)
	}
	if _, found := h.find(1000); found {
		t.Error("a dropped revision is found")
	}
}

// The author of a revision is the caller of the last change of rules shortly before it was seen.
func TestAuthorOfARevision(t *testing.T) {
	at := time.Unix(1000, 0)
	entry := func(before time.Duration, client, action, outcome string) *weirv1.AuditEntry {
		return &weirv1.AuditEntry{Time: at.Add(-before).UnixNano(), Client: client, From: "192.0.2.1:5", Action: action, Target: "default/a", Outcome: outcome}
	}
	const update = "RateLimiterConfig.UpdateRateLimit"
	for want, entries := range map[string][]*weirv1.AuditEntry{
		"ana":         {entry(3*time.Second, "bob", update, "OK"), entry(time.Second, "ana", update, "OK"), entry(-time.Second, "eve", update, "OK")},
		"192.0.2.1:5": {entry(time.Second, "", update, "OK")},
		"":            {entry(time.Minute, "ana", update, "OK"), entry(time.Second, "ana", update, "Aborted"), entry(time.Second, "ana", "Cluster.DrainNode", "OK")},
	} {
		if who, _ := authorOf(ruleRevision{At: at}, entries); who != want {
			t.Errorf("%q, want %q", who, want)
		}
	}
}
