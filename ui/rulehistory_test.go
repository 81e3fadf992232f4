package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
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

// The author of a revision is the caller of a change that ended when it was seen. Each change has led to one revision at most.
func TestAuthorsOfRevisions(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	entry := func(ms int, client, action, outcome string) *weirv1.AuditEntry {
		return &weirv1.AuditEntry{Time: at(ms).UnixNano(), Client: client, From: "192.0.2.1:5", Action: action, Target: "default/a", Outcome: outcome}
	}
	const update = "RateLimiterConfig.UpdateRateLimit"
	for _, row := range []struct {
		seen    []int // the revisions from 1, in ms
		entries []*weirv1.AuditEntry
		want    string
	}{
		{[]int{0}, []*weirv1.AuditEntry{entry(-3000, "bob", update, "OK"), entry(1, "ana", update, "OK"), entry(900, "eve", update, "OK")}, "1 ana"},
		{[]int{0}, []*weirv1.AuditEntry{entry(-1, "ana", update, "OK")}, "1 ana"},
		{[]int{0}, []*weirv1.AuditEntry{entry(1, "", update, "OK")}, "1 192.0.2.1:5"},
		{[]int{0}, []*weirv1.AuditEntry{entry(-3000, "ana", update, "OK"), entry(1, "ana", update, "Aborted"), entry(1, "ana", "Cluster.DrainNode", "OK"), entry(1000, "eve", update, "OK")}, ""},
		{[]int{0, 20, 40}, []*weirv1.AuditEntry{entry(2, "ana", update, "OK"), entry(22, "bob", update, "OK"), entry(45, "eve", update, "OK")}, "1 ana, 2 bob, 3 eve"},
		{[]int{0, 20, 40}, []*weirv1.AuditEntry{entry(2, "ana", update, "OK"), entry(45, "eve", update, "OK")}, "1 ana, 3 eve"}, // another node was asked for 2
	} {
		var revisions []ruleRevision
		for i, ms := range row.seen {
			revisions = append(revisions, ruleRevision{RuleFile{Revision: int64(i + 1)}, at(ms)})
		}
		slices.Reverse(revisions)
		authors := authorsOf(revisions, row.entries)
		var got []string
		for _, revision := range slices.Sorted(maps.Keys(authors)) {
			got = append(got, fmt.Sprint(revision, " ", cmp.Or(authors[revision].GetClient(), authors[revision].GetFrom())))
		}
		if strings.Join(got, ", ") != row.want {
			t.Errorf("%v: %q, want %q", row.seen, got, row.want)
		}
	}
}
