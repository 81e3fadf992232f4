package ui

import (
	"context"
	"errors"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// newEditor serves the pages on the API of a node, whose store has the rules of a file. There are no calls but those for rules.
func newEditor(t *testing.T, text string) (*Server, *rules.Store) {
	t.Helper()
	backend := &inmemory.Rules{}
	store, err := rules.OpenStore(t.Context(), rules.StoreConfig{
		Backend: backend, Name: "test", MaxSize: 1 << 20, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	backend.Subscribe(store.Update)
	config := api.NewConfigServer(store)
	store.OnChange(func(*rules.Set) { config.Changed() })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- store.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	limiter := api.NewLimiter(api.Config{
		Rules: func() *rules.Set { return store.State().Set }, Hasher: ring.NewHasher([ring.SecretSize]byte{1}), Decider: apitest.Node{},
		Metrics: prometheus.NewRegistry(), Top: topkeys.NewRecorder(nil),
	})
	conn := api.InProcess(limiter, config, &apitest.Status{}, nil)
	s, err := New(Config{
		API: conn, Own: conn, Caller: func(context.Context) (name, proof string) { return "", "" }, Logger: slog.New(slog.DiscardHandler),
		Format: func(limits []*weirv1.RateLimit) (string, error) {
			text, err := rules.Format(api.Documents(limits))
			return string(text), err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.rules.ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: text, Name: "test"}); err != nil {
		t.Fatal(err)
	}
	return s, store
}

// inForce returns the rules of the store as a file.
func inForce(t *testing.T, store *rules.Store) string {
	t.Helper()
	text, err := rules.Format(store.State().Set.Documents())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// post posts a form, and returns the status and the page.
func (s *Server) post(t *testing.T, path string, form url.Values) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, html.UnescapeString(w.Body.String())
}

// formOf is what a browser posts for the fields of a rule in force.
func (s *Server) formOf(t *testing.T, domain, id, action string) url.Values {
	t.Helper()
	rule, err := s.rules.GetRateLimit(t.Context(), &weirv1.GetRateLimitRequest{Domain: domain, Id: id})
	list, err2 := s.rules.ListRateLimits(t.Context(), &weirv1.ListRateLimitsRequest{})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	form := fieldsOfRule(rule.GetRule()).posted()
	form.Set("form", "fields")
	form.Set("revision", strconv.FormatInt(list.GetRevision(), 10))
	form.Set("domain", domain)
	form.Set("id", id)
	form.Set("action", action)
	return form
}

const referring = `domain: shop
rules:
  - id: tenant
    per: [tenant]
    limits: [{limit: 1000, window: 1m}]
  - id: other
    limits: [{limit: 7, window: 1h}]
  - id: posts
    when: {endpoint: "/posts*"}
    per: [tenant, user]
    limits: [{limit: 10, window: 1m}]
    mode: {elastic: {parent: tenant, up_to: 150%}}
  - id: vip
    when: {endpoint: "/posts*", plan: vip}
    per: [user]
    limits: [{limit: 50, window: 1m}]
    replaces: [posts]
`

// A rule that refers to others, which refer to others themselves, is saved from its fields, and all others stay as they are.
func TestFieldsOfReferringRules(t *testing.T) {
	for _, id := range []string{"posts", "vip"} {
		s, store := newEditor(t, referring)
		before := inForce(t, store)
		if code, page := s.post(t, "/ui/check-rule", s.formOf(t, "shop", id, "")); code != http.StatusOK || !strings.Contains(page, "changes nothing") {
			t.Errorf("%s, unchanged: %d, %s", id, code, page)
		}
		form := s.formOf(t, "shop", id, "save")
		old := form["limit"][0]
		form["limit"][0] = "77"
		if code, page := s.post(t, "/ui/save-rule", form); code != http.StatusSeeOther {
			t.Errorf("%s: %d, %s", id, code, page)
		}
		if want, got := strings.Replace(before, "limit: "+old+",", "limit: 77,", 1), inForce(t, store); want == before || got != want {
			t.Errorf("%s: the rules are\n%s\nwant\n%s", id, got, want)
		}
		code, page := s.post(t, "/ui/save-rule", s.formOf(t, "shop", id, "text"))
		if code != http.StatusOK || !strings.Contains(page, "id: tenant") || strings.Contains(page, "id: other") || !strings.Contains(page, "changes nothing") {
			t.Errorf("%s as text: %d, %s", id, code, page)
		}
	}
}

// A new rule does not take the place of one in force. The form shows why.
func TestNewRuleOfATakenName(t *testing.T) {
	s, store := newEditor(t, referring)
	before := inForce(t, store)
	form := s.formOf(t, "shop", "posts", "save")
	form.Set("new", "1")
	form.Set("enforce", "0")
	const taken = `there is a rule "posts" in domain "shop" already`
	for path, want := range map[string]int{"/ui/check-rule": http.StatusOK, "/ui/save-rule": http.StatusBadRequest} {
		if code, page := s.post(t, path, form); code != want || !strings.Contains(page, taken) {
			t.Errorf("%s: %d, %s", path, code, page)
		}
	}
	if got := inForce(t, store); got != before {
		t.Errorf("the rules are\n%s\nwant\n%s", got, before)
	}
	form.Set("id", "comments")
	if code, page := s.post(t, "/ui/save-rule", form); code != http.StatusSeeOther || !strings.Contains(inForce(t, store), "comments") {
		t.Errorf("another name: %d, %s", code, page)
	}
	form = s.formOf(t, "shop", "comments", "save")
	form.Set("new", "1")
	form.Set("id", strings.Repeat("x", 300))
	if code, page := s.post(t, "/ui/save-rule", form); code != http.StatusConflict || strings.Contains(page, "already") {
		t.Errorf("a name that cannot be: %d, %s", code, page)
	}
}

// changedMeanwhile is an API at which a rule is changed as soon as it has been read for the first time.
type changedMeanwhile struct {
	weirv1.RateLimiterConfigClient
	change func(weirv1.RateLimiterConfigClient)
}

func (c *changedMeanwhile) GetRateLimit(ctx context.Context, req *weirv1.GetRateLimitRequest, opts ...grpc.CallOption) (*weirv1.RateLimit, error) {
	rule, err := c.RateLimiterConfigClient.GetRateLimit(ctx, req, opts...)
	if change := c.change; change != nil {
		c.change = nil
		change(c.RateLimiterConfigClient)
	}
	return rule, err
}

// A rule that changes while its form is made is not overwritten by what the form saves.
func TestChangeWhileAFormIsMade(t *testing.T) {
	for path, fields := range map[string]bool{"/ui/edit-rule/shop/other": false, "/ui/edit-fields/shop/other": true} {
		s, store := newEditor(t, referring)
		s.rules = &changedMeanwhile{s.rules, func(others weirv1.RateLimiterConfigClient) {
			text := strings.Replace(referring, "limit: 7,", "limit: 8,", 1)
			if _, err := others.ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: text, Name: "test"}); err != nil {
				t.Fatal(err)
			}
		}}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		revision := regexp.MustCompile(`name="revision" value="(\d+)"`).FindStringSubmatch(w.Body.String())
		if w.Code != http.StatusOK || revision == nil {
			t.Fatalf("%s: %d, %s", path, w.Code, w.Body)
		}
		form := s.formOf(t, "shop", "other", "save")
		form["limit"][0] = "9"
		if !fields {
			text, _, err := s.textOf(t.Context(), "shop", "other")
			if err != nil {
				t.Fatal(err)
			}
			form = url.Values{"domain": {"shop"}, "id": {"other"}, "action": {"save"}, "text": {strings.Replace(text, "limit: 8,", "limit: 9,", 1)}}
		}
		form.Set("revision", revision[1])
		if code, page := s.post(t, "/ui/save-rule", form); code != http.StatusConflict || !strings.Contains(inForce(t, store), "limit: 8,") {
			t.Errorf("%s: %d, and the rules are\n%s\n%s", path, code, inForce(t, store), page)
		}
	}
}

// A new rule of a caller with the role for one domain does not take the place of one that came meanwhile.
func TestNewRuleOfOneDomain(t *testing.T) {
	grants, err := access.ParseGrants("rules:shop")
	if err != nil {
		t.Fatal(err)
	}
	caller := access.With(t.Context(), access.New("shop", access.ByToken, grants))
	for path, fields := range map[string]bool{"/ui/new-rule": false, "/ui/new-fields": true} {
		s, store := newEditor(t, referring)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(caller, http.MethodGet, path, nil))
		revision := regexp.MustCompile(`name="revision" value="(\d+)"`).FindStringSubmatch(w.Body.String())
		if w.Code != http.StatusOK || revision == nil {
			t.Fatalf("%s: %d, %s", path, w.Code, w.Body)
		}
		form := url.Values{"action": {"save"}, "text": {"domain: shop\nrules: [{id: new, limits: [{limit: 9, window: 1h}]}]\n"}}
		if fields {
			form = s.formOf(t, "shop", "other", "save")
			form.Set("new", "1")
			form.Set("id", "new")
		}
		form.Set("revision", revision[1])
		other := "domain: shop\nrules: [{id: new, limits: [{limit: 8, window: 1h}]}]\n"
		if _, err := s.rules.ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: other, Name: "test"}); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(caller, http.MethodPost, "/ui/save-rule", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w = httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code < http.StatusBadRequest || !strings.Contains(inForce(t, store), "limit: 8,") {
			t.Errorf("%s: %d, and the rules are\n%s", path, w.Code, inForce(t, store))
		}
	}
}
