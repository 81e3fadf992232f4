package ui

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlimit/weir/algorithms"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// failurePolicies are what the form offers.
var failurePolicies = []choice{{"allow", "allow"}, {"local", "let each node decide for itself"}, {"deny", "deny"}}

// ofForm are the fields of a rule that the form has. It says of the others that they stay as they are.
var ofForm = []protoreflect.Name{"when", "per", "limits", "enforce", "on_failure", "unlimited", "enabled"}

// fieldsForm is a rule as the fields of a form. What it has no field for stays as it is in the rule in force.
type fieldsForm struct {
	When       []whenRow
	Per        []string // names with commas in between
	Limits     []limitRow
	Enforce    string
	OnFailure  string
	Unlimited  bool
	Off        bool
	Algorithms []string
	Policies   []choice
	Kept       []string // keys of the rule that the form has no field for
}

// whenRow is a condition.
type whenRow struct {
	Name   string
	Absent bool
	Values string // one per line
}

// Rows is the height of the field for the values, in lines.
func (w whenRow) Rows() int { return min(1+strings.Count(w.Values, "\n"), 12) }

// limitRow is a limit.
type limitRow struct {
	Limit, Window, Algorithm, Burst string
	// Old is the index of the limit that this one was, from 1; 0: it is new. Calendar says that it has no window but a calendar's.
	Old      int
	Calendar string
}

// fieldsOfRule returns the form of a rule, with empty rows for more.
func fieldsOfRule(rule *weirv1.Rule) *fieldsForm {
	f := &fieldsForm{
		Enforce: "100", OnFailure: cmp.Or(rule.GetOnFailure(), "allow"), Unlimited: rule.GetUnlimited(), Algorithms: algorithms.Names(), Policies: failurePolicies,
		Off: rule != nil && rule.Enabled != nil && !rule.GetEnabled(),
	}
	if rule != nil && rule.Enforce != nil {
		f.Enforce = strconv.FormatUint(uint64(rule.GetEnforce()), 10)
	}
	for _, name := range slices.Sorted(maps.Keys(rule.GetWhen())) {
		c := rule.GetWhen()[name]
		f.When = append(f.When, whenRow{Name: name, Absent: c.GetAbsent(), Values: strings.Join(c.GetAnyOf(), "\n")})
	}
	for _, set := range rule.GetPer() {
		f.Per = append(f.Per, strings.Join(set.GetAttributes(), ", "))
	}
	for i, l := range rule.GetLimits() {
		row := limitRow{Limit: strconv.FormatUint(uint64(l.GetLimit()), 10), Window: l.GetWindow(), Algorithm: l.GetAlgorithm(), Old: i + 1}
		if l.GetBurst() > 0 {
			row.Burst = strconv.FormatUint(uint64(l.GetBurst()), 10)
		}
		if l.GetCalendar() != nil {
			row.Calendar = l.GetCalendar().GetCalendar()
		}
		f.Limits = append(f.Limits, row)
	}
	rule.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(ofForm, field.Name()) {
			f.Kept = append(f.Kept, string(field.Name()))
		}
		return true
	})
	slices.Sort(f.Kept)
	f.widen()
	return f
}

// widen adds an empty row to each list.
func (f *fieldsForm) widen() {
	f.When, f.Per, f.Limits = append(f.When, whenRow{}), append(f.Per, ""), append(f.Limits, limitRow{})
}

func (s *Server) askNewFields(w http.ResponseWriter, r *http.Request) {
	revision, err := s.storeRevision()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	f := fieldsOfRule(&weirv1.Rule{Per: []*weirv1.AttributeSet{{Attributes: []string{"user"}}}, Limits: []*weirv1.Limit{{Limit: 100, Window: "1m"}}, Enforce: proto.Uint32(0)})
	s.render(w, r, http.StatusOK, "fields", "New rule", "rules", editBody{Revision: revision, Fields: f, Domain: "default", New: true})
}

func (s *Server) askFields(w http.ResponseWriter, r *http.Request) {
	domain, id := r.PathValue("domain"), r.PathValue("id")
	rule, revision, err := s.ruleToEdit(r.Context(), domain, id)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "fields", "Edit "+id, "rules", editBody{Revision: revision, Fields: fieldsOfRule(rule.GetRule()), Domain: domain, ID: id})
}

// readFields makes the text of the fields that a form has posted. Problems are those of the fields themselves; the rest is for the
// validator of rules.
func (s *Server) readFields(ctx context.Context, form url.Values, b *editBody) (problems []string, err error) {
	b.New = form.Get("new") != ""
	rule := &weirv1.Rule{}
	if !b.New {
		old, err := s.rules.GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: b.Domain, Id: b.ID})
		if err != nil {
			return nil, err
		}
		rule = proto.CloneOf(old.GetRule())
	}
	problems = changeFields(rule, form)
	b.Fields = fieldsOfRule(rule)
	if len(problems) > 0 {
		b.Fields.showPosted(form)
		return problems, nil
	}
	if b.New {
		if problems, err = s.taken(ctx, b.Domain, b.ID); len(problems) > 0 || err != nil {
			return problems, err
		}
	}
	b.Text, err = s.fileOf(ctx, &weirv1.RateLimit{Domain: b.Domain, Id: b.ID, Rule: rule})
	return nil, err
}

// taken returns the problem that a name of a new rule is that of a rule in force, which it would replace. Any other name is for the
// validator of rules.
func (s *Server) taken(ctx context.Context, domain, id string) (problems []string, err error) {
	_, err = s.rules.GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: domain, Id: id})
	switch status.Code(err) {
	case codes.OK:
		return []string{fmt.Sprintf("rule: there is a rule %.256q in domain %.64q already: edit that one, or choose another name", id, domain)}, nil
	case codes.NotFound, codes.InvalidArgument, codes.PermissionDenied:
		return nil, nil
	}
	return nil, err
}

// showPosted has the form show again what was posted for numbers, which a rule cannot have if they are none.
func (f *fieldsForm) showPosted(form url.Values) {
	f.Enforce = form.Get("enforce")
	for row, i := range limitRows(form) {
		f.Limits[row].Limit, f.Limits[row].Burst = posted(form, "limit", i), posted(form, "burst", i)
	}
}

// limitRows returns which rows of a form are limits, from 0. Those without tokens and window are none.
func limitRows(form url.Values) (rows []int) {
	for i := range form["limit"] {
		if posted(form, "limit", i) != "" || posted(form, "window", i) != "" {
			rows = append(rows, i)
		}
	}
	return rows
}

// posted returns the value of a field in a row of a form, from 0.
func posted(form url.Values, name string, i int) string {
	if all := form[name]; i < len(all) {
		return strings.TrimSpace(strings.ReplaceAll(all[i], "\r\n", "\n"))
	}
	return ""
}

// changeFields changes a rule as a form says, and returns what cannot be read.
func changeFields(rule *weirv1.Rule, form url.Values) (problems []string) {
	number := func(field, text string) uint32 {
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %.40q is not a whole number from 0", field, text))
		}
		return uint32(n)
	}
	at := func(name string, i int) string { return posted(form, name, i) }
	rule.When = make(map[string]*weirv1.Condition)
	for i := range form["when-name"] {
		name, values := at("when-name", i), strings.FieldsFunc(at("when-values", i), func(r rune) bool { return r == '\n' })
		if name == "" {
			if len(values) > 0 {
				problems = append(problems, fmt.Sprintf("when: the values %.40q have no attribute", strings.Join(values, " ")))
			}
			continue
		}
		if rule.When[name] != nil {
			problems = append(problems, fmt.Sprintf("when: %.40q is there twice", name))
		}
		c := &weirv1.Condition{Absent: at("when-kind", i) == "absent"}
		if !c.GetAbsent() {
			c.AnyOf = values
		}
		rule.When[name] = c
	}
	rule.Per = nil
	for i := range form["per"] {
		names := strings.FieldsFunc(at("per", i), func(r rune) bool { return r == ',' || r == ' ' })
		if len(names) > 0 {
			rule.Per = append(rule.Per, &weirv1.AttributeSet{Attributes: names})
		}
	}
	before := rule.GetLimits()
	rule.Limits = nil
	for _, i := range limitRows(form) {
		field := fmt.Sprintf("limits[%d]", len(rule.GetLimits()))
		l := &weirv1.Limit{}
		if old, err := strconv.Atoi(at("limit-old", i)); err == nil && old > 0 && old <= len(before) {
			l = before[old-1]
		}
		l.Limit, l.Algorithm = number(field+".limit", at("limit", i)), at("algorithm", i)
		if window := at("window", i); window != "" || l.GetCalendar() == nil {
			l.Window, l.Calendar = window, nil
		}
		if l.Burst = 0; at("burst", i) != "" {
			l.Burst = number(field+".burst", at("burst", i))
		}
		rule.Limits = append(rule.Limits, l)
	}
	rule.OnFailure, rule.Unlimited, rule.Enabled = form.Get("on-failure"), form.Get("unlimited") != "", nil
	if rule.GetOnFailure() == "allow" {
		rule.OnFailure = ""
	}
	if form.Get("off") != "" {
		rule.Enabled = proto.Bool(false)
	}
	if rule.Enforce = nil; form.Get("enforce") != "100" {
		rule.Enforce = proto.Uint32(number("enforce", form.Get("enforce")))
	}
	return problems
}

// FieldsURL is the path of the form with a rule's fields.
func (b editBody) FieldsURL() string {
	if b.ID == "" {
		return "/ui/new-fields"
	}
	return "/ui/edit-fields/" + url.PathEscape(b.Domain) + "/" + escapePath(b.ID)
}

// TextURL is the path of the form with the rule's text.
func (b editBody) TextURL() string {
	if b.New || b.ID == "" {
		return "/ui/new-rule"
	}
	return editURL(b.Domain, b.ID)
}

// page returns the name of the form's page.
func (b editBody) page() string {
	if b.Fields != nil {
		return "fields"
	}
	return "edit"
}
