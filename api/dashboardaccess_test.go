package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/access"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// A cookie stands for a token at the dashboard's paths only, and what is refused there is answered by a page.
func TestCookieOfTheDashboard(t *testing.T) {
	a, secrets := tokensOf(t, "check", "rules", "metrics")
	passed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := CallerName(r.Context())
		w.Header().Set("Caller", name)
		w.WriteHeader(http.StatusNoContent)
	})
	handler := a.Protect(passed, noDashboard{})
	for _, row := range []struct {
		method, path, cookie string
		want                 int
	}{
		{"GET", "/ui/", "metrics", http.StatusNoContent},
		{"GET", "/ui/", "check", http.StatusForbidden},
		{"GET", "/ui/rules", "metrics", http.StatusForbidden},
		{"GET", "/ui/rules", "rules", http.StatusNoContent},
		{"GET", "/ui/rules", "check", http.StatusForbidden},
		{"GET", "/ui/history/1", "check", http.StatusForbidden},
		{"GET", "/ui/edit-rule/a/b", "check", http.StatusForbidden},
		{"POST", "/ui/check-rule", "check", http.StatusForbidden},
		{"POST", "/ui/save-rule", "check", http.StatusForbidden},
		{"POST", "/ui/change-rule/a/b", "check", http.StatusForbidden},
		{"POST", "/ui/change-rule/a/b", "rules", http.StatusNoContent},
		{"POST", "/ui/history/1", "check", http.StatusForbidden},
		{"GET", "/ui/inspect", "check", http.StatusNoContent},
		{"GET", "/ui/inspect", "metrics", http.StatusForbidden},
		{"POST", "/ui/reset", "rules", http.StatusForbidden},
		{"GET", "/ui/ring", "rules", http.StatusForbidden},
		{"GET", "/ui/events", "rules", http.StatusForbidden},
		{"GET", "/ui/top", "check", http.StatusForbidden},
		{"GET", "/ui/top", "rules", http.StatusNoContent},
		{"GET", "/ui/backtest", "metrics", http.StatusForbidden},
		{"POST", "/ui/backtest", "check", http.StatusForbidden},
		{"POST", "/ui/backtest", "rules", http.StatusNoContent},
		{"GET", "/ui/new-fields", "check", http.StatusForbidden},
		{"GET", "/ui/edit-fields/a/b", "check", http.StatusForbidden},
		{"GET", "/ui/edit-fields/a/b", "rules", http.StatusNoContent},
		{"GET", "/ui/rules", "", http.StatusUnauthorized},
		{"GET", "/ui/rules", "unknown", http.StatusUnauthorized},
		{"GET", "/ui/sign-in", "unknown", http.StatusNoContent},
		{"GET", "/ui/static/weir.css", "", http.StatusNoContent},
		{"GET", "/ui/no-such-page", "rules", http.StatusForbidden},
		{"GET", "/v1/rules", "rules", http.StatusUnauthorized},
		{"POST", "/v1/check", "check", http.StatusUnauthorized},
		{"GET", "/metrics", "metrics", http.StatusUnauthorized},
	} {
		r := httptest.NewRequest(row.method, row.path, nil)
		if row.cookie != "" {
			secret := secrets[row.cookie]
			if secret == "" {
				secret = access.NewSecret()
			}
			r.AddCookie(&http.Cookie{Name: TokenCookie, Value: secret})
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != row.want {
			t.Errorf("%s %s with the cookie of %q: %d, want %d", row.method, row.path, row.cookie, w.Code, row.want)
		}
	}
	for secret, known := range map[string]bool{secrets["rules"]: true, access.NewSecret(): false, "": false} {
		if err := a.CheckToken(secret); (err == nil) != known {
			t.Errorf("a token is in force: %v, want %v", err, known)
		}
	}
	if (*Access)(nil).CheckToken(secrets["rules"]) == nil {
		t.Error("a token is in force without TLS")
	}
}

// refusedAs is a dashboard that names the caller it refuses.
type refusedAs struct{ http.Handler }

func (refusedAs) Refuse(w http.ResponseWriter, r *http.Request, known bool, _ string) {
	name, proof := CallerName(r.Context())
	http.Error(w, fmt.Sprintf("%t %s %s", known, name, proof), http.StatusForbidden)
}

// A browser with a certificate is not kept out by a cookie that is left over from a token which was revoked. While the token is in
// force, the cookie counts: its user has signed in with it. The page that refuses a known caller has its name, to sign out with.
func TestCookieAndCertificate(t *testing.T) {
	a, secrets := tokensOf(t, "check", "rules")
	grants, err := access.ParseGrants("metrics")
	if err != nil {
		t.Fatal(err)
	}
	shown := access.New("browser", access.ByCertificate, grants)
	a.Certificate = func(*tls.ConnectionState) *access.Principal { return shown }
	handler := a.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := CallerName(r.Context())
		_, _ = io.WriteString(w, "passed "+name)
	}), refusedAs{})
	name := func(role string) string {
		p, err := a.Tokens.Caller(nil, []string{"Bearer " + secrets[role]})
		if err != nil {
			t.Fatal(err)
		}
		return p.Name()
	}
	for _, row := range []struct{ path, cookie, authorization, want string }{
		{"/ui/", "", "", "passed browser"},
		{"/ui/", access.NewSecret(), "", "passed browser"},
		{"/ui/rules", access.NewSecret(), "", "true browser certificate"},
		{"/ui/rules", secrets["rules"], "", "passed " + name("rules")},
		{"/ui/", secrets["check"], "", "true " + name("check") + " token"},
		{"/ui/", secrets["check"], access.NewSecret(), "false"},
	} {
		r := httptest.NewRequest(http.MethodGet, row.path, nil)
		if row.cookie != "" {
			r.AddCookie(&http.Cookie{Name: TokenCookie, Value: row.cookie})
		}
		if row.authorization != "" {
			r.Header.Set("Authorization", "Bearer "+row.authorization)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got := strings.TrimSpace(w.Body.String()); got != row.want {
			t.Errorf("%+v: %q", row, got)
		}
	}
}

// Calls within the process need the roles that they need over the network, and changes are recorded under the caller's name.
func TestCallsInProcess(t *testing.T) {
	f := newFixture(t, accessRules)
	a, _ := tokensOf(t)
	a.Audit = f.Limiter.audit
	conn := InProcess(f.Limiter, f.config, f.status, a)
	rules, health := weirv1.NewRateLimiterConfigClient(conn), weirv1.NewRateLimiterHealthClient(conn)
	as := func(roles string) context.Context {
		grants, err := access.ParseGrants(roles)
		if err != nil {
			t.Fatal(err)
		}
		return access.With(t.Context(), access.New("ana", access.ByToken, grants))
	}
	for roles, want := range map[string]codes.Code{"rules": codes.OK, "check": codes.PermissionDenied, "metrics": codes.PermissionDenied, "rules:shop": codes.PermissionDenied} {
		_, err := rules.ListRateLimits(as(roles), &weirv1.ListRateLimitsRequest{})
		if status.Code(err) != want {
			t.Errorf("the list of all rules as %s: %v", roles, err)
		}
	}
	if list, err := rules.ListRateLimits(as("rules:shop"), &weirv1.ListRateLimitsRequest{Domain: "shop"}); err != nil || len(list.GetRateLimits()) == 0 {
		t.Errorf("the list of the caller's domain: %v, %v", list, err)
	}
	if _, err := health.ResetRateLimit(as("rules"), &weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: "a"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a reset without the role: %v", err)
	}
	if _, err := rules.ListRateLimits(t.Context(), &weirv1.ListRateLimitsRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a caller that is not known: %v", err)
	}
	open := weirv1.NewRateLimiterConfigClient(InProcess(f.Limiter, f.config, f.status, nil))
	if list, err := open.ListRateLimits(t.Context(), &weirv1.ListRateLimitsRequest{}); err != nil || len(list.GetRateLimits()) == 0 {
		t.Errorf("without TLS: %v, %v", list, err)
	}
	if _, err := weirv1.NewRateLimiterClient(conn).StreamRateLimits(as("check")); status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream: %v", err)
	}
}
