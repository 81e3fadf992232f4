package ui

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// topRows is how many keys the page lists.
const topRows = 25

// topOrders and topWindows are what the page offers, by their names in the API.
var (
	topOrders  = []choice{{"checks", "Checks"}, {"denied", "Denials"}, {"would_deny", "Would be denied"}}
	topWindows = []choice{{"1m", "Last minute"}, {"1h", "Last hour"}}
)

// choice is a value of the API, and what a page calls it.
type choice struct{ Value, Name string }

// topBody is the list of the busiest keys.
type topBody struct {
	By, Window, Domain, Rule    string
	OrderChoices, WindowChoices []choice
	Unit                        string // what is counted
	Rows                        []topRow
	Seconds                     uint32
	Nodes                       []string
	Unanswered                  []*weirv1.UnansweredNode
	Unlisted                    uint64
	Hashed                      bool   // values are hashes, which the inspector has no use for
	Problem                     string // why there is no list
}

// topRow is one key.
type topRow struct {
	Key              string
	Domain, Rule     string
	RuleURL          string
	Inspect          string // empty if the inspector cannot be asked for it
	Count            uint64
	Uncounted, Error uint64
	Percent          int // of the highest count
}

// URL is the path of the page with another order and window.
func (b topBody) URL(by, window string) string { return topURL(by, window, b.Domain, b.Rule) }

func topURL(by, window, domain, rule string) string {
	q := url.Values{}
	for name, v := range map[string]string{"by": by, "window": window, "domain": domain, "rule": rule} {
		if v != "" {
			q.Set(name, v)
		}
	}
	return "/ui/top?" + q.Encode()
}

// PartURL is the path of the list alone.
func (b topBody) PartURL() string { return b.URL(b.By, b.Window) + "&part=list" }

func (s *Server) top(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body := topBody{
		By: cmp.Or(q.Get("by"), "checks"), Window: cmp.Or(q.Get("window"), "1m"), Domain: strings.TrimSpace(q.Get("domain")), Rule: strings.TrimSpace(q.Get("rule")),
		OrderChoices: topOrders, WindowChoices: topWindows, Hashed: s.cfg.HashedKeys,
	}
	err := s.listTop(r.Context(), &body)
	switch status.Code(err) {
	case codes.OK:
	case codes.FailedPrecondition, codes.NotFound, codes.InvalidArgument:
		body.Problem = status.Convert(err).Message()
	default:
		s.fail(w, r, err)
		return
	}
	if q.Get("part") != "" {
		s.renderPart(w, "top", "list", body)
		return
	}
	s.render(w, r, http.StatusOK, "top", "Top keys", "top", body)
}

// listTop asks the API for the keys.
func (s *Server) listTop(ctx context.Context, body *topBody) error {
	resp, err := s.nodes.ListTopKeys(ctx, &weirv1.ListTopKeysRequest{By: body.By, Window: body.Window, Domain: body.Domain, RuleId: body.Rule, Limit: topRows})
	if err != nil {
		return err
	}
	body.Unit = "checks"
	if body.By != "checks" {
		body.Unit = "denials"
	}
	body.Seconds, body.Nodes, body.Unanswered, body.Unlisted = resp.GetSeconds(), resp.GetNodes(), resp.GetUnanswered(), resp.GetUnlisted()
	seen := make(map[string]*weirv1.Rule) // at most topRows
	for _, k := range resp.GetKeys() {
		row := topRow{
			Domain: k.GetDomain(), Rule: k.GetRuleId(), RuleURL: ruleURL(k.GetDomain(), k.GetRuleId()),
			Key: keyText(k.GetEntries()), Count: k.GetCount(), Uncounted: k.GetUncounted(), Error: k.GetStandardError(),
		}
		if most := resp.GetKeys()[0].GetCount(); most > 0 {
			row.Percent = max(1, int(k.GetCount()*100/most)) // a bar is seen
		}
		if !body.Hashed {
			rule, known := seen[row.RuleURL]
			if !known {
				one, err := s.rules.GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: k.GetDomain(), Id: k.GetRuleId()})
				if err == nil { // else it was deleted since, and its key has no conditions to add
					rule = one.GetRule()
				}
				seen[row.RuleURL] = rule
			}
			row.Inspect = inspectURL(k.GetDomain(), k.GetEntries(), rule)
		}
		body.Rows = append(body.Rows, row)
	}
	return nil
}

// keyText is a key in words, such as user=alice. Values that are not plain text are quoted as in Go.
func keyText(entries []*weirv1.KeyEntry) string {
	var words []string
	for _, e := range entries {
		value := e.GetValue()
		if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			value = strconv.Quote(value)
		}
		if e.GetCut() {
			value += "…"
		}
		words = append(words, e.GetKey()+"="+value)
	}
	return strings.Join(words, " ")
}

// inspectURL returns the path on which the inspector explains a request with a key's values, to which the rule applies as far as its
// conditions name values. It is empty if there is no such request: the key has no values, or some that cannot be written.
func inspectURL(domain string, entries []*weirv1.KeyEntry, rule *weirv1.Rule) string {
	var words []string
	names := make(map[string]bool)
	add := func(name, value string) bool {
		word, ok := attributeWord(name, value)
		words, names[name] = append(words, word), true
		return ok
	}
	for _, e := range entries {
		if e.GetCut() || !add(e.GetKey(), e.GetValue()) {
			return ""
		}
	}
	when := rule.GetWhen()
	for _, name := range slices.Sorted(maps.Keys(when)) {
		if value := exampleOf(name, when[name]); value != "" && !names[name] && !add(name, value) {
			return ""
		}
	}
	if len(names) == 0 || len(names) == 1 && names["endpoint"] {
		return ""
	}
	return "/ui/inspect?" + url.Values{"domain": {domain}, "q": {strings.Join(words, " ")}}.Encode()
}

// attributeWord writes an attribute as readAttributes reads it. It is false if that has no way to write it.
func attributeWord(name, value string) (word string, ok bool) {
	if name == "" || strings.Contains(name, "=") || strings.ContainsFunc(name, unicode.IsSpace) {
		return "", false
	}
	if value == "" || strings.HasPrefix(value, `"`) || strings.ContainsFunc(value, unicode.IsSpace) {
		return name + `="` + value + `"`, !strings.Contains(value, `"`)
	}
	return name + "=" + value, true
}

// exampleOf returns a value that a condition is true for, empty if it does not say one.
func exampleOf(name string, c *weirv1.Condition) string {
	for _, pattern := range c.GetAnyOf() {
		if strings.HasPrefix(pattern, "re:") {
			continue
		}
		if name == "ip" {
			pattern, _, _ = strings.Cut(pattern, "/")
		}
		if pattern = strings.TrimSuffix(pattern, "*"); pattern != "" {
			return pattern
		}
	}
	return ""
}
