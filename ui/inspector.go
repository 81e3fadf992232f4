package ui

import (
	"cmp"
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
	LastDecisions *Decisions // nil: the caller may not see them, or the log cannot be read
	LogProblem    string     // why it cannot be
}

// Decisions are the last ones that the decision log of a node has of a request's identifier.
type Decisions struct {
	Node string
	// Kept says that there is a log that can be read. Which checks it has is Which, and How says how to have it keep all.
	Kept       bool
	Which, How string
	List       []Decision // the newest first
}

// Decision is one line of the decision log.
type Decision struct {
	At       time.Time
	Allowed  bool
	Peek     bool   // it was only asked
	Rule     string // that denied it
	Source   string
	Endpoint string // empty if the log has hashes
	Tokens   int64
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
	if body.Asked {
		s.lastDecisions(r.Context(), &body)
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

// lastDecisions adds what the decision log has, for callers that may read the rules of the domain: those may list its keys, too.
func (s *Server) lastDecisions(ctx context.Context, body *inspectBody) {
	req, err := request(*body)
	if err != nil {
		return // explain has said so
	}
	if _, err := s.rules.ListRateLimits(ctx, &weirv1.ListRateLimitsRequest{Domain: cmp.Or(req.GetDomain(), "default"), PageSize: 1}); err != nil {
		return
	}
	decisions, err := s.cfg.LastDecisions(ctx, req)
	if err != nil {
		body.LogProblem = status.Convert(err).Message()
		return
	}
	body.LastDecisions = &decisions
}

// counterOf returns a counter as a bar: what is used of the limit.
func counterOf(l *weirv1.LimitStatus) counterView {
	v := counterView{LimitStatus: l, Window: l.GetCalendar(), Full: spanOf(l.GetResetAfter()), Retry: spanOf(l.GetRetryAfter())}
	if w := l.GetWindow(); w != nil {
		v.Window = formatSpan(w.AsDuration())
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
	return formatSpan(d.AsDuration())
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
	if err := parseForm(r); err != nil {
		s.fail(w, r, err)
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
