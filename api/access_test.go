package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/internal/access"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// accessRules has two domains, of which callers may have roles in one.
const accessRules = "domain: shop\nrules:\n  - {id: r, per: [user], limits: [{limit: 5, window: 1h}]}\n---\ndomain: bank\nrules:\n  - {id: r, per: [user], limits: [{limit: 5, window: 1h}]}\n"

// tokensOf returns an Access without certificates, with a token for each text of roles.
func tokensOf(t testing.TB, roles ...string) (*Access, map[string]string) {
	t.Helper()
	a := &Access{Tokens: new(access.Tokens), Certificate: func(*tls.ConnectionState) *access.Principal { return nil }}
	secrets := make(map[string]string)
	var tokens []access.Token
	for _, text := range roles {
		grants, err := access.ParseGrants(text)
		if err != nil {
			t.Fatal(err)
		}
		secrets[text] = access.NewSecret()
		tokens = append(tokens, access.Token{Name: strings.NewReplacer(":", "-", ",", "-").Replace(text), Grants: grants, Digest: access.Hash(secrets[text])})
	}
	a.Tokens.Set(access.FromFile, tokens)
	return a, secrets
}

// withToken returns a context of calls with that token; none if it is empty.
func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// noDashboard has no pages.
type noDashboard struct{}

func (noDashboard) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusTeapot)
}

func (noDashboard) Refuse(w http.ResponseWriter, _ *http.Request, known bool, _ string) {
	w.WriteHeader(map[bool]int{true: http.StatusForbidden, false: http.StatusUnauthorized}[known])
}

// Every path over HTTP has its role in the table, and the table has no other paths.
func TestEveryPathHasARole(t *testing.T) {
	f := newFixture(t, accessRules)
	_, mux, err := newRoutes(f.Limiter, f.config, f.status, HTTPConfig{Gather: f.registry, Profiles: http.NotFoundHandler(), UI: noDashboard{}})
	if err != nil {
		t.Fatal(err)
	}
	patterns := slices.DeleteFunc(slices.Clone(mux.patterns), func(p string) bool { return p == "/v1/" })
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(openAPI, &document); err != nil {
		t.Fatal(err)
	}
	all := http.NewServeMux() // what the table has
	for pattern := range needs {
		if !isMethod(pattern) {
			all.Handle(pattern, http.NotFoundHandler())
		}
	}
	found := make(map[string]bool)
	look := func(method, path string) (pattern string) {
		_, pattern = all.Handler(httptest.NewRequest(method, path, nil))
		if pattern == "" {
			t.Errorf("%s %s has no role: missing in needs, in api/access.go", method, path)
		}
		found[pattern] = true
		return pattern
	}
	for path, methods := range document.Paths {
		for method, operation := range methods {
			if method != "parameters" {
				pattern := look(strings.ToUpper(method), strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(path))
				if pattern != "" {
					checkSameNeeds(t, pattern, operation)
				}
			}
		}
	}
	for _, pattern := range patterns {
		method, path, hasMethod := strings.Cut(pattern, " ")
		if !hasMethod {
			method, path = http.MethodPost, pattern
		}
		look(method, strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(path))
		if _, known := RoleOf(pattern); !known && pattern != "/v1/" {
			if _, known := needs[method+" "+path]; !known {
				t.Errorf("%s has no role: missing in needs, in api/access.go", pattern)
			}
		}
	}
	if len(found) < 25 {
		t.Errorf("only %d paths were looked at", len(found))
	}
	for pattern := range needs {
		if !isMethod(pattern) && !found[pattern] {
			t.Errorf("the table has %s, which is no path", pattern)
		}
	}
}

// checkSameNeeds holds that a path needs what the gRPC method needs that it leads to.
func checkSameNeeds(t *testing.T, pattern string, operation []byte) {
	t.Helper()
	var method struct {
		Name string `json:"operationId"`
	}
	if err := json.Unmarshal(operation, &method); err != nil {
		t.Fatal(err)
	}
	for call, n := range needs {
		if strings.HasPrefix(call, "/weir.v1.") && strings.HasSuffix(call, "/"+method.Name) && needs[pattern] != n {
			t.Errorf("%s needs %+v, and %s, which it leads to, needs %+v: make them the same in needs, in api/access.go", pattern, needs[pattern], call, n)
		}
	}
}

// One row per call: with which roles it is permitted.
func TestRolesOverGRPC(t *testing.T) {
	f := newFixture(t, accessRules)
	a, secrets := tokensOf(t, "check", "rules", "admin", "metrics", "check:shop", "rules:shop")
	f.tap = a.Tap(f.Limiter.Tap)
	conn := f.dial(t)
	checks, config, nodes := weirv1.NewRateLimiterClient(conn), weirv1.NewRateLimiterConfigClient(conn), weirv1.NewClusterClient(conn)
	req := &weirv1.RateLimitRequest{Domain: "shop", IdentifierType: "user", Identifier: "a"}
	other := &weirv1.RateLimitRequest{Domain: "bank", IdentifierType: "user", Identifier: "a"}
	document := func(domain string) *weirv1.ApplyRulesRequest {
		return &weirv1.ApplyRulesRequest{DryRun: true, Rules: "domain: " + domain + "\nrules:\n  - {id: new, per: [user], limits: [{limit: 5, window: 1h}]}\n"}
	}
	for name, tc := range map[string]struct {
		call    func(context.Context) error
		allowed string // roles with spaces in between
	}{
		"check in shop": {func(ctx context.Context) error { _, err := checks.CheckRateLimit(ctx, req); return err }, "check rules admin check:shop rules:shop"},
		"check in bank": {func(ctx context.Context) error { _, err := checks.CheckRateLimit(ctx, other); return err }, "check rules admin"},
		"batch": {func(ctx context.Context) error {
			_, err := checks.CheckRateLimitBatch(ctx, &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{req, other}})
			return err
		}, "check rules admin"},
		"status in bank": {func(ctx context.Context) error {
			_, err := checks.GetRateLimitStatus(ctx, &weirv1.RateLimitStatusRequest{Domain: "bank", IdentifierType: "user", Identifier: "a"})
			return err
		}, "check rules admin"},
		"explain in bank": {func(ctx context.Context) error { _, err := checks.ExplainRateLimit(ctx, other); return err }, "check rules admin"},
		"reset": {func(ctx context.Context) error {
			_, err := weirv1.NewRateLimiterHealthClient(conn).ResetRateLimit(ctx, &weirv1.ResetRateLimitRequest{Domain: "shop", IdentifierType: "user", Identifier: "a"})
			return err
		}, "admin"},
		"rules of shop": {func(ctx context.Context) error {
			_, err := config.ListRateLimits(ctx, &weirv1.ListRateLimitsRequest{Domain: "shop"})
			return err
		}, "rules admin rules:shop"},
		"all rules": {func(ctx context.Context) error {
			_, err := config.ListRateLimits(ctx, &weirv1.ListRateLimitsRequest{})
			return err
		}, "rules admin"},
		"apply to shop": {func(ctx context.Context) error { _, err := config.ApplyRules(ctx, document("shop")); return err }, "rules admin rules:shop"},
		"apply to bank": {func(ctx context.Context) error { _, err := config.ApplyRules(ctx, document("bank")); return err }, "rules admin"},
		"ring":          {func(ctx context.Context) error { _, err := nodes.GetRing(ctx, &weirv1.GetRingRequest{}); return err }, "admin"},
		"options": {func(ctx context.Context) error {
			_, err := nodes.GetOptions(ctx, &weirv1.GetOptionsRequest{})
			return err
		}, "admin"},
		"nodes": {func(ctx context.Context) error {
			_, err := nodes.ListNodes(ctx, &weirv1.ListNodesRequest{})
			return err
		}, "check rules admin check:shop rules:shop"},
		"unknown": {func(ctx context.Context) error {
			return conn.Invoke(ctx, "/weir.v1.Cluster/NoSuch", &weirv1.GetRingRequest{}, new(weirv1.GetRingResponse))
		}, "admin"},
	} {
		for role, secret := range secrets {
			err := tc.call(withToken(t.Context(), secret))
			denied := status.Code(err) == codes.PermissionDenied
			if permitted := slices.Contains(strings.Fields(tc.allowed), role); permitted == denied {
				t.Errorf("%s with role %s: %v", name, role, err)
			}
			if denied && (!strings.Contains(err.Error(), "has not the role") || strings.Contains(err.Error(), secret)) {
				t.Errorf("%s with role %s: %v", name, role, err)
			}
		}
		for _, token := range []string{"", "weir_wrong"} {
			if err := tc.call(withToken(t.Context(), token)); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s with token %q: %v", name, token, err)
			}
		}
	}
}

// Every call for the roles check and rules is denied to a caller with these roles in another domain, unless it has no domain.
func TestCallsOfAnotherDomainAreDenied(t *testing.T) {
	f := newFixture(t, accessRules)
	a, secrets := tokensOf(t, "check:shop,rules:shop")
	f.tap = a.Tap(f.Limiter.Tap)
	conn := f.dial(t)
	const bank = "bank"
	check := &weirv1.RateLimitRequest{Domain: bank, IdentifierType: "user", Identifier: "a"}
	descriptor := []*commonv3.RateLimitDescriptor{{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: "a"}}}}
	rule := &weirv1.RateLimit{Domain: bank, Id: "new", IdentifierType: "user", Limit: proto.Uint32(5), WindowSeconds: 60}
	requests := map[string]proto.Message{
		"/weir.v1.RateLimiter/CheckRateLimit":                          check,
		"/weir.v1.RateLimiter/GetRateLimitStatus":                      &weirv1.RateLimitStatusRequest{Domain: bank, IdentifierType: "user", Identifier: "a"},
		"/weir.v1.RateLimiter/ExplainRateLimit":                        check,
		"/weir.v1.RateLimiter/ExplainDescriptors":                      &weirv1.DescriptorsRequest{Domain: bank},
		"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit": &rlsv3.RateLimitRequest{Domain: bank, Descriptors: descriptor},
		"/weir.v1.RateLimiterConfig/CreateRateLimit":                   &weirv1.CreateRateLimitRequest{RateLimit: rule},
		"/weir.v1.RateLimiterConfig/UpdateRateLimit":                   &weirv1.UpdateRateLimitRequest{RateLimit: rule},
		"/weir.v1.RateLimiterConfig/DeleteRateLimit":                   &weirv1.DeleteRateLimitRequest{Domain: bank, Id: "r"},
		"/weir.v1.RateLimiterConfig/GetRateLimit":                      &weirv1.GetRateLimitRequest{Domain: bank, Id: "r"},
		"/weir.v1.RateLimiterConfig/ListRateLimits":                    &weirv1.ListRateLimitsRequest{Domain: bank},
		"/weir.v1.RateLimiterConfig/ApplyRules":                        &weirv1.ApplyRulesRequest{Rules: "domain: bank\nrules: []\n"},
		"/weir.v1.RateLimiterConfig/WatchRules":                        &weirv1.WatchRulesRequest{Domain: bank},
		"/weir.v1.Cluster/GetRuleCounts":                               &weirv1.GetRuleCountsRequest{Domain: bank, RuleId: "r"},
		"/weir.v1.Cluster/ListTopKeys":                                 &weirv1.ListTopKeysRequest{Domain: bank},
	}
	elsewhere := []string{ // what has no domain, or several with an answer for each
		"/weir.v1.RateLimiter/CheckRateLimitBatch", "/weir.v1.RateLimiter/StreamRateLimits",
		"/weir.v1.RateLimiterHealth/GetHealthStatus", "/weir.v1.Cluster/ListNodes",
	}
	for call, n := range needs {
		request, asked := requests[call]
		switch {
		case !isMethod(call) || n.role != access.Check && n.role != access.Rules || strings.HasPrefix(call, "/grpc."):
		case slices.Contains(elsewhere, call):
		case !asked:
			t.Errorf("%s: missing in requests of this test, in api/access_test.go, as a request in another domain; or in elsewhere there, if it has no domain", call)
		default:
			err := conn.Invoke(withToken(t.Context(), secrets["check:shop,rules:shop"]), call, request, new(emptypb.Empty))
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "in domain") {
				t.Errorf("%s in another domain: %v", call, err)
			}
		}
	}
}

// A revoked token ends the streams that were opened with it, with UNAUTHENTICATED.
func TestRevokedTokenEndsStreams(t *testing.T) {
	f := newFixture(t, accessRules)
	a, secrets := tokensOf(t, "check", "rules")
	f.tap = a.Tap(f.Limiter.Tap)
	conn := f.dial(t)
	stream, err := weirv1.NewRateLimiterClient(conn).StreamRateLimits(withToken(t.Context(), secrets["check"]))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&weirv1.StreamRateLimitsRequest{Id: 1, Requests: []*weirv1.RateLimitRequest{{Domain: "shop", IdentifierType: "user", Identifier: "a"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	watch, err := weirv1.NewRateLimiterConfigClient(conn).WatchRules(withToken(t.Context(), secrets["rules"]), &weirv1.WatchRulesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	a.Tokens.Set(access.FromFile, nil)
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("checks: %v", err)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("watch: %v", err)
	}
}

// Over HTTP a denial is a problem document with 401 or 403.
func TestRolesOverHTTP(t *testing.T) {
	f := newFixture(t, accessRules)
	var secrets map[string]string
	f.access, secrets = tokensOf(t, "check", "metrics", "admin", "check:shop", "rules:shop")
	handler := f.handler(t)
	check := `{"domain": "shop", "identifier_type": "user", "identifier": "a"}`
	for _, tc := range []struct {
		method, path, body, role, header string
		code                             int
		want                             string
	}{
		{"POST", "/v1/check", check, "", "", 401, `needs the role \"check\"`},
		{"POST", "/v1/check", check, "check", "Authorization", 200, ""},
		{"POST", "/v1/check", check, "check:shop", "Authorization", 200, ""},
		{"POST", "/v1/check", strings.ReplaceAll(check, "shop", "bank"), "check:shop", "Authorization", 403, "in domain"},
		{"POST", "/v1/check", check, "metrics", "Authorization", 403, `has not the role \"check\"`},
		{"GET", "/metrics", "", "check", "Authorization", 403, `has not the role \"metrics\"`},
		{"GET", "/metrics", "", "metrics", "Authorization", 200, ""},
		{"HEAD", "/metrics", "", "check", "Authorization", 403, ""},
		{"POST", "/v1/reset", check, "check", "Authorization", 403, `has not the role \"admin\"`},
		{"POST", "/v1/reset", check, "admin", "Authorization", 200, ""},
		{"POST", "/v1/nodes/a:drain", "{}", "check", "Authorization", 403, ""},
		{"DELETE", "/v1/nodes/a", "", "check", "Authorization", 403, ""},
		{"GET", "/v1/ring", "", "check", "Authorization", 403, ""},
		{"POST", "/v1/view:import", "{}", "rules:shop", "Authorization", 403, ""},
		{"DELETE", "/v1/rules/bank/r", "", "rules:shop", "Authorization", 403, ""},
		{"DELETE", "/v1/rules%2Fshop%2Fr", "", "check", "Authorization", 403, ""},
		{"POST", "/json", `{"domain": "bank", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}`, "check:shop", "Authorization", 400, "in domain"},
		{"GET", "/auth/shop", "", "check:shop", "Authorization", 401, ""},
		{"GET", "/auth/shop", "", "check:shop", "Weir-Authorization", 200, ""},
		{"GET", "/auth/bank", "", "check:shop", "Weir-Authorization", 403, "in domain"},
		{"GET", "/rlconfig", "", "rules:shop", "Authorization", 403, "in all domains"},
		{"GET", "/no/such", "", "check", "Authorization", 403, ""},
		{"GET", "/no/such", "", "admin", "Authorization", 404, ""},
		{"GET", "/healthz", "", "", "", 200, ""},
		{"GET", "/openapi.json", "", "", "", 200, ""},
	} {
		r := httptest.NewRequest(tc.method, tc.path, strings.NewReader(tc.body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		if tc.header != "" {
			r.Header.Set(tc.header, "Bearer "+secrets[tc.role])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		body, _ := io.ReadAll(w.Result().Body)
		if w.Code != tc.code || !strings.Contains(string(body), tc.want) {
			t.Errorf("%s %s with %s: %d %s", tc.method, tc.path, tc.role, w.Code, body)
		}
		if w.Code == http.StatusUnauthorized && (w.Header().Get("WWW-Authenticate") == "" || w.Header().Get("Content-Type") != "application/problem+json") {
			t.Errorf("%s %s: %v", tc.method, tc.path, w.Header())
		}
	}
}

// A check with a token costs no more allocations than one without.
func TestAdmissionAllocatesNothing(t *testing.T) {
	a, secrets := tokensOf(t, "check")
	authorization := []string{"Bearer " + secrets["check"]}
	if allocs := testing.AllocsPerRun(100, func() {
		if _, err := a.admit(t.Context(), weirv1.RateLimiter_CheckRateLimit_FullMethodName, nil, authorization); err != nil {
			t.Fatal(err)
		}
	}); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// BenchmarkToken is the time of a check over gRPC with a token, as a share of that without one, client and server
// together: both in turn, as BenchmarkTopKeys.
func BenchmarkToken(b *testing.B) {
	caller := func(with bool) func() {
		f, ctx := newFixture(b, accessRules), b.Context()
		f.tap = f.Limiter.Tap
		if with {
			a, secrets := tokensOf(b, "check")
			f.tap, ctx = a.Tap(f.Limiter.Tap), withToken(ctx, secrets["check"])
		}
		checks := weirv1.NewRateLimiterClient(f.dial(b))
		req := &weirv1.RateLimitRequest{Domain: "shop", IdentifierType: "user", Identifier: "a"}
		return func() {
			for range 100 {
				if _, err := checks.CheckRateLimit(ctx, req); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	measureInTurn(b, caller(true), caller(false))
}

// A request by a certificate that has expired since the client connected is refused, and ends the connection.
func TestExpiredCertificate(t *testing.T) {
	a := &Access{Tokens: new(access.Tokens), Certificate: func(*tls.ConnectionState) *access.Principal {
		return access.New("x", access.ByCertificate, []access.Grant{{Role: access.Admin}})
	}}
	handler := a.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), nil)
	for after, want := range map[time.Duration]int{time.Minute: http.StatusNoContent, -time.Second: http.StatusUnauthorized} {
		r := httptest.NewRequest(http.MethodGet, "/v1/nodes", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotAfter: time.Now().Add(after)}}}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want || (w.Header().Get("Connection") == "close") != (want == http.StatusUnauthorized) {
			t.Errorf("%v before its end: %d, %v, %s", after, w.Code, w.Header(), w.Body)
		}
		r.ProtoMajor, r.Header = 2, http.Header{"Content-Type": {"application/grpc"}}
		server := &http.Server{}
		addGRPC(server, grpc.NewServer(), a, newUnfinishedBudget(prometheus.NewRegistry()))
		w = httptest.NewRecorder()
		server.Handler.ServeHTTP(w, r)
		if refused := w.Header().Get("Grpc-Message") == errExpired.Reason; refused != (want == http.StatusUnauthorized) {
			t.Errorf("%v before its end, by gRPC: %d, %v", after, w.Code, w.Header())
		}
	}
}
