package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of a question.
const (
	maxAttributes = 32
	maxInspect    = 4096 // bytes
)

// inspectBody is a question, and what the API answers.
type inspectBody struct {
	Domain, Query string
	Problem       string
	Asked         bool
	Decision      *weirv1.RateLimitResponse
	Outcome, Tone string
	Next          string // what happens next
	Applies       []explained
	Others        []*weirv1.RuleExplanation
	Omitted       uint32
	Identifier    string
	Type          string
}

// explained is a rule that applies, and its counters.
type explained struct {
	*weirv1.RuleExplanation
	URL      string
	Counters []counterView
}

// counterView is one counter as a bar.
type counterView struct {
	*weirv1.LimitStatus
	Used    uint32
	Percent int
	Window  string
	Full    string // when the whole limit is free again
	Retry   string
}

func (s *Server) inspect(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body := inspectBody{Domain: strings.TrimSpace(q.Get("domain")), Query: strings.TrimSpace(q.Get("q"))}
	if body.Query != "" {
		s.explain(r.Context(), &body)
	}
	s.render(w, r, http.StatusOK, "inspect", "Inspector", "inspect", body)
}

// readAttributes reads words such as user=alice. A value with spaces stands in quotes.
func readAttributes(text string) (names, values []string, err error) {
	if len(text) > maxInspect {
		return nil, nil, fmt.Errorf("more than %d bytes", maxInspect)
	}
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		name, rest, found := strings.Cut(text, "=")
		if !found || name == "" || strings.ContainsAny(name, " \t") {
			word, _, _ := strings.Cut(text, " ")
			return nil, nil, fmt.Errorf("%.40q is not NAME=VALUE, such as user=alice", word)
		}
		var value string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if value, text, found = strings.Cut(quoted, `"`); !found {
				return nil, nil, fmt.Errorf("the quotes of %.40q do not end", name)
			}
		} else {
			value, text, _ = strings.Cut(rest, " ")
		}
		names, values = append(names, name), append(values, value)
		if len(names) > maxAttributes {
			return nil, nil, fmt.Errorf("more than %d attributes", maxAttributes)
		}
	}
	return names, values, nil
}

// request returns the check that a question is about. The first attribute that is not the endpoint is the identifier.
func request(body inspectBody) (*weirv1.RateLimitRequest, error) {
	names, values, err := readAttributes(body.Query)
	if err != nil {
		return nil, err
	}
	req := &weirv1.RateLimitRequest{Domain: body.Domain, Attributes: make(map[string]string)}
	for i, name := range names {
		switch {
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("%.64q is given twice", name)
		case name == "endpoint":
			req.Endpoint = values[i]
		case req.GetIdentifierType() == "":
			req.IdentifierType, req.Identifier = name, values[i]
		default:
			req.Attributes[name] = values[i]
		}
	}
	if req.GetIdentifierType() == "" {
		return nil, errors.New("missing identifier: add NAME=VALUE, such as user=alice")
	}
	return req, nil
}

// explain asks the API, and puts what it says into words.
func (s *Server) explain(ctx context.Context, body *inspectBody) {
	req, err := request(*body)
	if err != nil {
		body.Problem = err.Error()
		return
	}
	resp, err := s.checks.ExplainRateLimit(ctx, req)
	if err != nil {
		body.Problem = status.Convert(err).Message()
		return
	}
	body.Asked, body.Decision, body.Omitted = true, resp.GetDecision(), resp.GetOmitted()
	body.Identifier, body.Type = req.GetIdentifier(), req.GetIdentifierType()
	body.Outcome, body.Tone = "allowed", "good"
	if !resp.GetDecision().GetAllowed() {
		body.Outcome, body.Tone = "denied", "bad"
	}
	body.Next = nextOf(resp.GetDecision())
	domain := req.GetDomain()
	if domain == "" {
		domain = "default"
	}
	for _, rule := range resp.GetRules() {
		if !rule.GetApplies() {
			body.Others = append(body.Others, rule)
			continue
		}
		e := explained{RuleExplanation: rule, URL: ruleURL(domain, rule.GetRuleId())}
		for _, l := range rule.GetLimits() {
			e.Counters = append(e.Counters, counterOf(l))
		}
		body.Applies = append(body.Applies, e)
	}
}

// counterOf returns a counter as a bar: what is used of the limit.
func counterOf(l *weirv1.LimitStatus) counterView {
	v := counterView{LimitStatus: l, Window: l.GetCalendar(), Full: spanOf(l.GetResetAfter()), Retry: spanOf(l.GetRetryAfter())}
	if w := l.GetWindow(); w != nil {
		v.Window = w.AsDuration().String()
	}
	v.Used = l.GetLimit() - min(l.GetLimit(), l.GetRemainingTokens())
	if l.GetLimit() > 0 {
		v.Percent = int(uint64(v.Used) * 100 / uint64(l.GetLimit()))
	} else {
		v.Percent = 100
	}
	return v
}

func spanOf(d *durationpb.Duration) string {
	if d == nil || d.AsDuration() <= 0 {
		return ""
	}
	return d.AsDuration().Round(time.Millisecond).String()
}

// nextOf says what happens if the same request comes again.
func nextOf(d *weirv1.RateLimitResponse) string {
	switch {
	case d.GetAllowed() && d.GetRuleId() == "":
		return "No limit applies: all such requests are allowed."
	case d.GetAllowed():
		return fmt.Sprintf("%s more are allowed right now, by %s.", formatCount(d.GetRemainingTokens()+1), d.GetRuleId())
	case spanOf(d.GetRetryAfter()) != "":
		return fmt.Sprintf("%s denies it. The next one is allowed in %s.", d.GetRuleId(), spanOf(d.GetRetryAfter()))
	case d.GetDenialReason() == weirv1.DenialReason_DENIAL_REASON_BLOCKED:
		return fmt.Sprintf("%s denies all such requests.", d.GetRuleId())
	default:
		return fmt.Sprintf("%s denies it, and no wait helps.", d.GetRuleId())
	}
}

// reset makes the counters of an identifier fresh ones.
func (s *Server) reset(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		s.fail(w, r, status.Errorf(codes.InvalidArgument, "the form cannot be read: %v", err))
		return
	}
	body := inspectBody{Domain: r.PostForm.Get("domain"), Query: r.PostForm.Get("q")}
	req, err := request(body)
	if err != nil {
		s.fail(w, r, status.Error(codes.InvalidArgument, err.Error()))
		return
	}
	if _, err := s.health.ResetRateLimit(r.Context(), &weirv1.ResetRateLimitRequest{
		Domain: body.Domain, IdentifierType: req.GetIdentifierType(), Identifier: req.GetIdentifier(), Attributes: req.GetAttributes(),
		RuleId: r.PostForm.Get("rule"),
	}); err != nil {
		s.fail(w, r, err)
		return
	}
	http.Redirect(w, r, "/ui/inspect?"+url.Values{"domain": {body.Domain}, "q": {body.Query}}.Encode(), http.StatusSeeOther)
}

// ringBody is the ring as a picture.
type ringBody struct {
	View, Partitions uint32
	Shares           []shareView
	Cells            []cell
	Columns, Rows    int
}

// shareView is one node's share.
type shareView struct {
	*weirv1.RingShare
	Colour int
}

// cell is one partition in the picture.
type cell struct {
	X, Y, Owner, Standby int
	Title                string
}

// Colours of nodes in the picture, which repeat, and the columns of the picture.
const (
	ringColours = 8
	ringColumns = 64
)

func (s *Server) ring(w http.ResponseWriter, r *http.Request) {
	resp, err := s.nodes.GetRing(r.Context(), &weirv1.GetRingRequest{Tables: true})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	body := ringBody{View: uint32(resp.GetView()), Partitions: resp.GetPartitions(), Columns: ringColumns, Rows: (len(resp.GetOwners()) + ringColumns - 1) / ringColumns}
	for i, share := range resp.GetShares() {
		body.Shares = append(body.Shares, shareView{share, i % ringColours})
	}
	for p, owner := range resp.GetOwners() {
		standby := resp.GetStandbys()[p]
		title := fmt.Sprintf("partition %d: %s", p, resp.GetShares()[owner].GetId())
		if standby != owner {
			title += ", standby " + resp.GetShares()[standby].GetId()
		}
		body.Cells = append(body.Cells, cell{p % ringColumns, p / ringColumns, int(owner) % ringColours, int(standby) % ringColours, title})
	}
	s.render(w, r, http.StatusOK, "ring", "Ring", "ring", body)
}

// eventsBody is the timeline.
type eventsBody struct{ Events []event }

// event is one thing that has happened.
type event struct {
	At                         time.Time
	What, Target, Who, Outcome string
	Tone, Reason, Node         string
}

// maxEvents are shown.
const maxEvents = 200

func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	resp, err := s.nodes.ListAudit(r.Context(), &weirv1.ListAuditRequest{})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var body eventsBody
	for _, e := range resp.GetEntries() {
		v := event{At: time.Unix(0, e.GetTime()), What: actionWord(e.GetAction()), Target: e.GetTarget(), Who: e.GetClient(), Outcome: e.GetOutcome(), Reason: e.GetReason(), Node: e.GetNode(), Tone: "good"}
		if v.Who == "" {
			v.Who = e.GetFrom()
		}
		if v.Outcome != "OK" {
			v.Tone = "bad"
		}
		body.Events = append(body.Events, v)
	}
	body.Events = append(body.Events, s.seen.list()...)
	slices.SortStableFunc(body.Events, func(a, b event) int { return b.At.Compare(a.At) })
	body.Events = body.Events[:min(len(body.Events), maxEvents)]
	s.render(w, r, http.StatusOK, "events", "Events", "events", body)
}

// actionWord says in words what a call changes.
func actionWord(action string) string {
	_, method, _ := strings.Cut(action, ".")
	words := map[string]string{
		"CreateRateLimit": "Rule created", "UpdateRateLimit": "Rule changed", "DeleteRateLimit": "Rule deleted", "ApplyRules": "Rules applied",
		"ResetRateLimit": "Counters reset", "ResetDescriptors": "Counters reset", "DrainNode": "Drain asked for", "RemoveNode": "Node removed",
		"ImportView": "View imported", "CreateToken": "Token created", "RevokeToken": "Token revoked",
	}
	if word, known := words[method]; known {
		return word
	}
	return action
}
