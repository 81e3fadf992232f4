package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// maxReferred bounds the rules that are shown with one that refers to them.
const maxReferred = 64

// newRule is what the form of a new rule begins with.
const newRule = `domain: default
rules:
  - id: my-rule
    when: {endpoint: "/posts*"}
    per: [user]
    limits:
      - {limit: 100, window: 1m}
    enforce: 0
`

// editBody is the form in which rules are changed as text.
type editBody struct {
	Text     string
	Revision int64 // of the store, when the form was asked for
	Domain   string
	ID       string // empty: the rule is new
	Verdict  *verdict
	Fields   *fieldsForm // of the form with a rule's fields; nil: of its text
	New      bool        // in that form: the rule is new, and may have a name already
}

// URL is the path of the rule's page.
func (b editBody) URL() string { return ruleURL(b.Domain, b.ID) }

// verdict is what the API says of a text that was not put in force.
type verdict struct {
	Problems []string
	Changes  []*weirv1.RuleChange
	More     int32
	Same     bool // it changes nothing
}

// changeWord says what happens to a rule.
func changeWord(c *weirv1.RuleChange) string {
	switch c.GetKind() {
	case weirv1.RuleChange_KIND_ADDED:
		return "new"
	case weirv1.RuleChange_KIND_REMOVED:
		return "removed"
	default:
		return "changed"
	}
}

func (s *Server) askNewRule(w http.ResponseWriter, r *http.Request) {
	revision, err := s.storeRevision()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "edit", "New rule", "rules", editBody{Text: newRule, Revision: revision})
}

// storeRevision returns the revision of the store, which callers learn as well that may list the rules of one domain only.
func (s *Server) storeRevision() (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout) // not as the caller of a request
	defer cancel()
	list, err := s.ownRules.ListRateLimits(ctx, &weirv1.ListRateLimitsRequest{PageSize: 1})
	return list.GetRevision(), err
}

func (s *Server) askEdit(w http.ResponseWriter, r *http.Request) {
	domain, id := r.PathValue("domain"), r.PathValue("id")
	text, revision, err := s.textOf(r.Context(), domain, id)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "edit", "Edit "+id, "rules", editBody{Text: text, Revision: revision, Domain: domain, ID: id})
}

// textOf returns a rule as the text of a file, with the rules that it refers to, and a revision of the store.
func (s *Server) textOf(ctx context.Context, domain, id string) (text string, revision int64, err error) {
	rule, revision, err := s.ruleToEdit(ctx, domain, id)
	if err == nil {
		text, err = s.fileOf(ctx, rule)
	}
	return text, revision, err
}

// ruleToEdit returns a rule and the revision of the store from before it was read: a change in between makes saving a conflict, and is
// not overwritten.
func (s *Server) ruleToEdit(ctx context.Context, domain, id string) (rule *weirv1.RateLimit, revision int64, err error) {
	list, err := s.rules.ListRateLimits(ctx, &weirv1.ListRateLimitsRequest{Domain: domain, PageSize: 1})
	if err == nil {
		rule, err = s.rules.GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: domain, Id: id})
	}
	return rule, list.GetRevision(), err
}

// fileOf returns a rule as the text of a file, with the rules that it refers to as they are in force, at most maxReferred in all: a file
// with references that lead out of it is refused.
func (s *Server) fileOf(ctx context.Context, rule *weirv1.RateLimit) (string, error) {
	file, seen := []*weirv1.RateLimit{rule}, map[string]bool{rule.GetId(): true}
	for i := 0; i < len(file); i++ {
		full := file[i].GetRule()
		for _, other := range append(full.GetReplaces(), full.GetMode().GetElastic().GetParent()) {
			if other == "" || seen[other] || len(file) == maxReferred {
				continue
			}
			seen[other] = true
			referred, err := s.rules.GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: rule.GetDomain(), Id: other})
			if err != nil {
				return "", err
			}
			file = append(file, referred)
		}
	}
	return s.cfg.Format(file)
}

// readForm returns what a form has posted.
func (s *Server) readForm(r *http.Request) (editBody, error) {
	if err := parseForm(r); err != nil {
		return editBody{}, err
	}
	b := editBody{Text: strings.ReplaceAll(r.PostForm.Get("text"), "\r\n", "\n"), Domain: r.PostForm.Get("domain"), ID: r.PostForm.Get("id")}
	revision, err := strconv.ParseInt(r.PostForm.Get("revision"), 10, 64)
	if err != nil || revision < 0 {
		return b, status.Errorf(codes.InvalidArgument, "revision: %.20q is not a number from 0", r.PostForm.Get("revision"))
	}
	b.Revision = revision
	if r.PostForm.Get("form") == "fields" {
		problems, err := s.readFields(r.Context(), r.PostForm, &b)
		if len(problems) > 0 {
			b.Verdict = &verdict{Problems: problems}
		}
		return b, err
	}
	return b, nil
}

// apply puts the text in force, unless dry.
func (s *Server) apply(ctx context.Context, b editBody, dry bool) (*weirv1.ApplyRulesResponse, error) {
	return s.rules.ApplyRules(ctx, &weirv1.ApplyRulesRequest{Rules: b.Text, Name: "dashboard", DryRun: dry, ExpectedRevision: proto.Int64(b.Revision)})
}

// judge returns what the API says of a text. Other errors than those of the text are the error.
func (s *Server) judge(ctx context.Context, b editBody) (*verdict, error) {
	resp, err := s.apply(ctx, b, true)
	switch status.Code(err) {
	case codes.OK:
		return &verdict{Changes: resp.GetChanges(), More: resp.GetMoreChanges(), Same: !resp.GetChanged()}, nil
	case codes.InvalidArgument, codes.Aborted, codes.FailedPrecondition, codes.PermissionDenied:
		return &verdict{Problems: strings.Split(strings.ReplaceAll(status.Convert(err).Message(), "dashboard:", "line "), "\n")}, nil
	default:
		return nil, err
	}
}

// checkRule answers with a part of a page: what is wrong with a text, or what it would change.
func (s *Server) checkRule(w http.ResponseWriter, r *http.Request) {
	b, err := s.readForm(r)
	if err == nil && b.Verdict == nil {
		b.Verdict, err = s.judge(r.Context(), b)
	}
	if err != nil {
		b.Verdict = &verdict{Problems: []string{status.Convert(err).Message()}}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := s.pages["edit"].ExecuteTemplate(w, "verdict", b.Verdict); err != nil {
		s.cfg.Logger.Debug("verdict of the dashboard not sent", "error", err) // the client may be gone
	}
}

// saveRule puts a text in force, or shows again what is wrong with it.
func (s *Server) saveRule(w http.ResponseWriter, r *http.Request) {
	b, err := s.readForm(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	title := "New rule"
	if b.ID != "" && !b.New {
		title = "Edit " + b.ID
	}
	if b.Verdict != nil { // fields that are not even text
		s.render(w, r, http.StatusBadRequest, b.page(), title, "rules", b)
		return
	}
	if r.PostForm.Get("action") == "text" {
		b.Fields = nil
		if b.New { // as a text, it names itself
			b.ID = ""
		}
	}
	if r.PostForm.Get("action") != "save" {
		if b.Verdict, err = s.judge(r.Context(), b); err != nil {
			s.fail(w, r, err)
			return
		}
		s.render(w, r, http.StatusOK, b.page(), title, "rules", b)
		return
	}
	resp, err := s.apply(r.Context(), b, false)
	if err != nil {
		if b.Verdict, _ = s.judge(r.Context(), b); b.Verdict == nil || len(b.Verdict.Problems) == 0 {
			b.Verdict = &verdict{Problems: []string{status.Convert(err).Message()}}
		}
		s.render(w, r, http.StatusConflict, b.page(), title, "rules", b)
		return
	}
	to := "/ui/rules"
	if changes := resp.GetChanges(); len(changes) == 1 && changes[0].GetKind() != weirv1.RuleChange_KIND_REMOVED {
		to = ruleURL(changes[0].GetDomain(), changes[0].GetId())
	} else if b.ID != "" && len(changes) == 0 {
		to = b.URL()
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// changeRule changes one rule as the form says, if it is still of the form's revision, and shows it then.
func (s *Server) changeRule(w http.ResponseWriter, r *http.Request) {
	if err := s.change(r); err != nil {
		s.fail(w, r, err)
		return
	}
	to := ruleURL(r.PathValue("domain"), r.PathValue("id"))
	if r.PostForm.Get("action") == "delete" {
		to = "/ui/rules"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (s *Server) change(r *http.Request) error {
	b, err := s.readForm(r)
	if err != nil {
		return err
	}
	domain, id := r.PathValue("domain"), r.PathValue("id")
	if r.PostForm.Get("action") == "delete" {
		_, err := s.rules.DeleteRateLimit(r.Context(), &weirv1.DeleteRateLimitRequest{Domain: domain, Id: id, Revision: b.Revision})
		return err
	}
	rule, err := s.rules.GetRateLimit(r.Context(), &weirv1.GetRateLimitRequest{Domain: domain, Id: id})
	if err != nil {
		return err
	}
	full := rule.GetRule()
	if full == nil {
		return errors.New("the rule has no content")
	}
	switch action := r.PostForm.Get("action"); action {
	case "enforce":
		percent, err := strconv.ParseUint(r.PostForm.Get("percent"), 10, 32)
		if err != nil || percent > 100 {
			return status.Errorf(codes.InvalidArgument, "percent: %.20q is not between 0 and 100", r.PostForm.Get("percent"))
		}
		full.Enforce = proto.Uint32(uint32(percent))
	case "on", "off":
		full.Enabled = proto.Bool(action == "on")
	default:
		return status.Errorf(codes.InvalidArgument, "action: %.20q is none of enforce, on, off and delete", action)
	}
	_, err = s.rules.UpdateRateLimit(r.Context(), &weirv1.UpdateRateLimitRequest{RateLimit: &weirv1.RateLimit{Domain: domain, Id: id, Rule: full, Revision: b.Revision}})
	return err
}

// editURL returns the path of the form in which a rule is changed.
func editURL(domain, id string) string {
	return "/ui/edit-rule/" + url.PathEscape(domain) + "/" + escapePath(id)
}

// changeURL returns the path to which single changes of a rule are posted.
func changeURL(domain, id string) string {
	return "/ui/change-rule/" + url.PathEscape(domain) + "/" + escapePath(id)
}

// EditURL is the path of the form in which the rule is changed.
func (v ruleView) EditURL() string { return editURL(v.GetDomain(), v.GetId()) }

// ChangeURL is the path to which single changes of the rule are posted.
func (v ruleView) ChangeURL() string { return changeURL(v.GetDomain(), v.GetId()) }

// FieldsURL is the path of the form with the rule's fields.
func (v ruleView) FieldsURL() string {
	return editBody{Domain: v.GetDomain(), ID: v.GetId()}.FieldsURL()
}

// TopURL is the path of the keys that the rule denies most, or would deny.
func (v ruleView) TopURL() string {
	by := "denied"
	if v.Enforce == 0 {
		by = "would_deny"
	}
	return topURL(by, "1h", v.GetDomain(), v.GetId())
}
