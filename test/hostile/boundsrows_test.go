package hostile

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func shouldRateLimit(t *testing.T, conn *grpc.ClientConn, req *rls.RateLimitRequest) string {
	t.Helper()
	resp, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), req)
	if err == nil && resp.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
		return "OVER_LIMIT"
	}
	return said(err)
}

func descriptor(value string) *commonv3.RateLimitDescriptor {
	return &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: value}}}
}

func descriptors(t *testing.T, target *target, n int) string {
	req := &rls.RateLimitRequest{Domain: "default"}
	for i := range n {
		req.Descriptors = append(req.Descriptors, descriptor(fmt.Sprint(i)))
	}
	return envoyWays(t, target, func(string) *rls.RateLimitRequest { return req })
}

// envoyLimits asks for descriptors to which n limits apply together: eight to each, and one more to one.
func envoyLimits(t *testing.T, target *target, n int) string {
	limit := "{limit: 1000000, window: %ds}"
	var all []string
	for i := range 8 {
		all = append(all, fmt.Sprintf(limit, i+1))
	}
	applyEverywhere(t, target, fmt.Sprintf("domain: many\nrules:\n- {id: eight, per: [user], limits: [%s]}\n- {id: one, per: [one], limits: [%s]}\n", strings.Join(all, ", "), all[0]))
	req := &rls.RateLimitRequest{Domain: "many"}
	for i := range n / 8 {
		req.Descriptors = append(req.Descriptors, descriptor(fmt.Sprint(i)))
	}
	for i := range n % 8 {
		d := descriptor(fmt.Sprint(i))
		d.Entries[0].Key = "one"
		req.Descriptors = append(req.Descriptors, d)
	}
	return envoyWays(t, target, func(string) *rls.RateLimitRequest { return req })
}

// envoyHits asks for n hits, of which a limit would allow the most that there may be.
func envoyHits(t *testing.T, target *target, n int) string {
	applyEverywhere(t, target, "domain: hits\nrules: [{id: r, per: [user], limits: [{limit: 2147483648, window: 1h}]}]\n")
	return envoyWays(t, target, func(way string) *rls.RateLimitRequest {
		return &rls.RateLimitRequest{Domain: "hits", HitsAddend: uint32(n), Descriptors: []*commonv3.RateLimitDescriptor{descriptor(fmt.Sprint(way, n))}}
	})
}

// applyEverywhere adds rules to the node and to the one with a port for Envoy.
func applyEverywhere(t *testing.T, target *target, file string) {
	t.Helper()
	apply(t, target, file)
	req := &weirv1.ApplyRulesRequest{Rules: file}
	if _, err := weirv1.NewRateLimiterConfigClient(target.secured.dialGRPC(t, target.secured.Admin)).ApplyRules(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	process.Await(t, process.Patience, func() error { // until its limiter has them
		_, err := weirv1.NewRateLimiterClient(target.secured.dialGRPC(t, target.secured.GRPC)).GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{
			Domain: strings.Fields(file)[1], IdentifierType: "user", Identifier: "a",
		})
		return err
	})
}

func apply(t *testing.T, target *target, file string) {
	t.Helper()
	if answer := post(t, target, "/v1/rules:apply", fmt.Sprintf(`{"rules":%q}`, file)); answer != "ok" {
		t.Fatal(answer)
	}
}

func envoyBytes(t *testing.T, target *target, n int) string {
	req := &rls.RateLimitRequest{Domain: "default", Descriptors: []*commonv3.RateLimitDescriptor{descriptor("")}}
	value := n - proto.Size(req)
	for proto.Size(req) != n {
		req.Descriptors[0].Entries[0].Value = text(value)
		value -= proto.Size(req) - n
	}
	answer := shouldRateLimit(t, target.conn, req)
	isSame(t, "--rls-listen", shouldRateLimit(t, target.secured.dialGRPC(t, target.secured.rls), req), answer)
	return answer
}

// alsoOverHTTP is what gRPC has answered, of which HTTP has said the same.
func alsoOverHTTP(t *testing.T, overHTTP string, err error) string {
	t.Helper()
	want := "ok"
	if err != nil {
		want = map[code.Code]string{code.Code_INVALID_ARGUMENT: "400 ", code.Code_RESOURCE_EXHAUSTED: "503 "}[code.Code(status.Code(err))]
	}
	if err == nil && overHTTP != want || err != nil && (want == "" || !strings.HasPrefix(overHTTP, want)) {
		t.Errorf("over HTTP: %.300s, over gRPC %s", overHTTP, said(err))
	}
	return said(err)
}

// forms sends forms of n bytes: to reset counters, and to check and save a rule, where the answer to a check is part of a page.
func forms(t *testing.T, target *target, n int) string {
	post := func(path, form string) string {
		body := form + "&more=" + text(n-len(form)-len("&more="))
		resp, err := http.Post("http://"+target.HTTP+path, "application/x-www-form-urlencoded", strings.NewReader(body))
		if path == "/ui/check-rule" && err == nil {
			defer resp.Body.Close()
			page, bad := io.ReadAll(resp.Body)
			if bad != nil {
				t.Fatal(bad)
			}
			return string(page)
		}
		return answered(t, resp, err)
	}
	answer := post("/ui/reset", "domain=forms&q=user%3Dalice")
	rule := "domain=forms&id=r&revision=0&text=" + url.QueryEscape("domain: forms\nrules: [{id: r, limits: [{limit: 1, window: 1h}]}]\n")
	long := answer != "ok"
	if got := post("/ui/save-rule", rule); strings.HasPrefix(got, "413 ") != long {
		t.Errorf("a rule is saved: %.100s", got)
	}
	if got := post("/ui/check-rule", rule); strings.Contains(got, "the form has more than 256 KiB") != long {
		t.Errorf("a rule is checked: %.300s", got)
	}
	return answer
}

func page(t *testing.T, target *target, n int) string {
	_, err := weirv1.NewRateLimiterConfigClient(target.conn).ListRateLimits(t.Context(), &weirv1.ListRateLimitsRequest{PageSize: int32(n)})
	return alsoOverHTTP(t, get(t, target, fmt.Sprint("/v1/rules?page_size=", n), nil), err)
}

func ruleID(t *testing.T, target *target, n int) string {
	limit, id := uint32(1), text(n)
	_, err := weirv1.NewRateLimiterConfigClient(target.conn).CreateRateLimit(t.Context(), &weirv1.CreateRateLimitRequest{
		RateLimit: &weirv1.RateLimit{Domain: "ids", Id: id, Limit: &limit, WindowSeconds: 60},
	})
	rule := fmt.Sprintf(`{"domain":"others","id":%q,"limit":1,"window_seconds":60}`, id)
	_, found := weirv1.NewClusterClient(target.conn).GetRuleCounts(t.Context(), &weirv1.GetRuleCountsRequest{Domain: "ids", RuleId: id})
	if status.Code(found) != status.Code(err) {
		t.Errorf("counts of the rule: %s, the rule %s", said(found), said(err))
	}
	return alsoOverHTTP(t, post(t, target, "/v1/rules", rule), err)
}

func fileName(t *testing.T, target *target, n int) string {
	req := &weirv1.ApplyRulesRequest{Name: text(n), Rules: "domain: names\nrules: []\n", DryRun: true}
	_, err := weirv1.NewRateLimiterConfigClient(target.conn).ApplyRules(t.Context(), req)
	return alsoOverHTTP(t, post(t, target, "/v1/rules:apply", fmt.Sprintf(`{"name":%q,"rules":%q,"dry_run":true}`, req.GetName(), req.GetRules())), err)
}

func busiestKeys(t *testing.T, target *target, n int) string {
	_, err := weirv1.NewClusterClient(target.conn).ListTopKeys(t.Context(), &weirv1.ListTopKeysRequest{Limit: uint32(n)})
	return alsoOverHTTP(t, get(t, target, fmt.Sprint("/v1/top?limit=", n), nil), err)
}

// manyRules adds a domain with n rules that count by user, and returns its name.
func manyRules(t *testing.T, target *target, n int) (domain string) {
	t.Helper()
	domain = fmt.Sprint("counters", n)
	apply(t, target, fileOfRules(domain, n))
	return domain
}

func fileOfRules(domain string, n int) string {
	file := fmt.Sprintf("domain: %s\nrules:\n", domain)
	for i := range n {
		file += fmt.Sprintf("- {id: r%d, per: [user], limits: [{limit: 1, window: 1h}]}\n", i)
	}
	return file
}

func resetCounters(t *testing.T, target *target, n int) string {
	domain := manyRules(t, target, n)
	_, err := weirv1.NewRateLimiterHealthClient(target.conn).ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{
		Domain: domain, IdentifierType: "user", Identifier: "alice",
	})
	body := fmt.Sprintf(`{"domain":%q,"identifier_type":"user","identifier":"alice"}`, domain)
	return alsoOverHTTP(t, post(t, target, "/v1/reset", body), err)
}

func statusCounters(t *testing.T, target *target, n int) string {
	resp, err := weirv1.NewRateLimiterClient(target.conn).GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{
		Domain: manyRules(t, target, n), IdentifierType: "user", Identifier: "alice",
	})
	return leftOut(t, len(resp.GetLimits()), int(resp.GetOmitted()), n, err)
}

func differences(t *testing.T, target *target, n int) string {
	resp, err := weirv1.NewRateLimiterConfigClient(target.conn).ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: fileOfRules("differences", n), DryRun: true})
	return leftOut(t, len(resp.GetChanges()), int(resp.GetMoreChanges()), n, err)
}

// leftOut is what an answer says that has some of n items and tells how many others there are.
func leftOut(t *testing.T, has, others, n int, err error) string {
	t.Helper()
	if err == nil && has+others != n {
		t.Errorf("%d items and %d others, want %d together", has, others, n)
	}
	if err == nil && others > 0 {
		return fmt.Sprint("says how many are left out: ", others)
	}
	return said(err)
}

// descriptorsOf has descriptors explained and reset, over gRPC and HTTP.
func descriptorsOf(set func(r *weirv1.DescriptorsRequest, n int)) func(*testing.T, *target, int) string {
	return func(t *testing.T, target *target, n int) string {
		apply(t, target, "domain: tree\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 3}}]\n")
		req := &weirv1.DescriptorsRequest{Domain: "tree"}
		set(req, n)
		_, err := weirv1.NewRateLimiterClient(target.conn).ExplainDescriptors(t.Context(), req)
		overHTTP(t, target, "/v1/descriptors:explain", req, err)
		_, reset := weirv1.NewRateLimiterHealthClient(target.conn).ResetDescriptors(t.Context(), req)
		isSame(t, "reset", said(reset), said(err))
		overHTTP(t, target, "/v1/descriptors:reset", req, reset)
		return said(err)
	}
}

// createToken creates an access token with roles, and revokes it. Only gRPC can.
func createToken(t *testing.T, target *target, roles string) string {
	t.Helper()
	client := weirv1.NewClusterClient(target.secured.dialGRPC(t, target.secured.Admin))
	name := fmt.Sprint("roles", len(roles))
	err := newToken(t, client, name, roles)
	if err == nil {
		if _, err := client.RevokeAccessToken(t.Context(), &weirv1.RevokeAccessTokenRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	return said(err)
}

func newToken(t *testing.T, client weirv1.ClusterClient, name, roles string) error {
	t.Helper()
	digest := sha256.Sum256([]byte(name))
	_, err := client.CreateAccessToken(t.Context(), &weirv1.CreateAccessTokenRequest{Name: name, Roles: roles, Digest: digest[:]})
	return err
}

// accessTokens creates tokens until there are n.
func accessTokens(t *testing.T, target *target, n int) string {
	form.NotInBrief(t)
	client := weirv1.NewClusterClient(target.secured.dialGRPC(t, target.secured.Admin))
	for target.secured.tokens < n {
		if err := newToken(t, client, fmt.Sprint("t", target.secured.tokens), "check"); err != nil {
			return said(err)
		}
		target.secured.tokens++
	}
	return "ok"
}

// watches begins n watches, over HTTP and gRPC in turn, and returns what the last of them is answered over gRPC.
func watches(t *testing.T, target *target, n int) (answer string) {
	ctx, cancel := context.WithCancel(t.Context())
	for i := range n - 1 {
		begin := watch
		if i%2 == 0 {
			begin = watchHTTP
		}
		if answer = begin(ctx, t, target); answer != "ok" {
			t.Fatalf("watch %d: %s", i+1, answer)
		}
	}
	answer = watch(ctx, t, target)
	if answer != "ok" {
		if got := watchHTTP(ctx, t, target); !strings.HasPrefix(got, "503 ") {
			t.Errorf("over HTTP: %s, over gRPC %s", got, answer)
		}
	}
	cancel()
	process.Await(t, 10*time.Second, func() error { // until the node has seen that they have ended
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if again := watch(ctx, t, target); again != "ok" {
			return errors.New(again)
		}
		return nil
	})
	return answer
}

// watch begins a watch over gRPC that goes on until ctx ends.
func watch(ctx context.Context, t *testing.T, target *target) string {
	t.Helper()
	stream, err := weirv1.NewRateLimiterConfigClient(target.conn).WatchRules(ctx, &weirv1.WatchRulesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	return said(err)
}

// watchHTTP is watch over HTTP.
func watchHTTP(ctx context.Context, t *testing.T, target *target) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target.HTTP+"/v1/rules:watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return answered(t, resp, nil)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return "ok"
}

// profilesOf returns the address of the port for profiles, which the node has logged.
func profilesOf(t *testing.T, node *process.Node) string {
	t.Helper()
	for text := range strings.Lines(node.Log()) {
		var line struct{ Msg, URL string }
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line.Msg == "serving profiles" {
			at, err := url.Parse(line.URL)
			if err != nil {
				t.Fatal(err)
			}
			return at.Host
		}
	}
	t.Fatal("the node has not logged where its profiles are")
	return ""
}
