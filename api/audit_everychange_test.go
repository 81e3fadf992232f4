package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/audit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// changeCall is a call of a method that changes something, and what the audit log has of it.
type changeCall struct {
	method  string
	req     proto.Message
	target  string
	outcome codes.Code
}

// changeCalls are two calls of each method that changes something: the first does so, and the second is refused. They are made in this order.
func changeCalls() []changeCall {
	const ofRules, ofHealth, ofCluster = "RateLimiterConfig.", "RateLimiterHealth.", "Cluster."
	rule := func(id string, limit uint32) *weirv1.RateLimit {
		r := simple(id, limit)
		r.Domain = "shop"
		return r
	}
	digest := access.Hash("secret")
	alice := []*weirv1.Descriptor{{Entries: []*weirv1.DescriptorEntry{{Key: "user", Value: "alice"}}}}
	return []changeCall{
		{ofRules + "CreateRateLimit", &weirv1.CreateRateLimitRequest{RateLimit: rule("x", 1)}, "shop/x", codes.OK},
		{ofRules + "CreateRateLimit", &weirv1.CreateRateLimitRequest{RateLimit: rule("x", 1)}, "shop/x", codes.AlreadyExists},
		{ofRules + "UpdateRateLimit", &weirv1.UpdateRateLimitRequest{RateLimit: rule("x", 2)}, "shop/x", codes.OK},
		{ofRules + "UpdateRateLimit", &weirv1.UpdateRateLimitRequest{RateLimit: rule("y", 2)}, "shop/y", codes.NotFound},
		{ofRules + "DeleteRateLimit", &weirv1.DeleteRateLimitRequest{Domain: "shop", Id: "x"}, "shop/x", codes.OK},
		{ofRules + "DeleteRateLimit", &weirv1.DeleteRateLimitRequest{Domain: "shop", Id: "x"}, "shop/x", codes.NotFound},
		{ofRules + "ApplyRules", &weirv1.ApplyRulesRequest{Name: "a.yaml", Rules: "domain: shop\nrules: [{id: r, unlimited: true}]\n---\ndomain: bank\nrules: [{id: r, unlimited: true}]\n"}, "a.yaml shop/r bank/r", codes.OK},
		{ofRules + "ApplyRules", &weirv1.ApplyRulesRequest{Name: "b.yaml", Rules: "nonsense"}, "b.yaml", codes.InvalidArgument},
		{ofHealth + "ResetRateLimit", &weirv1.ResetRateLimitRequest{Domain: "shop", IdentifierType: "user", Identifier: "alice", RuleId: "r"}, "shop user=alice r", codes.OK},
		{ofHealth + "ResetRateLimit", &weirv1.ResetRateLimitRequest{Domain: "shop", IdentifierType: "user"}, "shop user=", codes.InvalidArgument},
		{ofHealth + "ResetDescriptors", &weirv1.DescriptorsRequest{Domain: "edge", Descriptors: alice}, "edge user=alice", codes.OK},
		{ofHealth + "ResetDescriptors", &weirv1.DescriptorsRequest{Domain: "edge", Descriptors: alice, Hits: 1}, "edge user=alice", codes.InvalidArgument},
		{ofCluster + "DrainNode", &weirv1.DrainNodeRequest{NodeId: "n"}, "n", codes.OK},
		{ofCluster + "DrainNode", &weirv1.DrainNodeRequest{NodeId: "m", Cancel: true}, "m (cancel)", codes.InvalidArgument},
		{ofCluster + "RemoveNode", &weirv1.RemoveNodeRequest{NodeId: "a"}, "a", codes.OK},
		{ofCluster + "RemoveNode", &weirv1.RemoveNodeRequest{}, "", codes.InvalidArgument},
		{ofCluster + "ImportView", &weirv1.ImportViewRequest{}, "", codes.OK},
		{ofCluster + "ImportView", &weirv1.ImportViewRequest{}, "", codes.FailedPrecondition},
		{ofCluster + "CreateAccessToken", &weirv1.CreateAccessTokenRequest{Name: "asks", Roles: "check", Digest: digest[:]}, "asks check", codes.OK},
		{ofCluster + "CreateAccessToken", &weirv1.CreateAccessTokenRequest{Name: "asks", Roles: "admin", Digest: digest[:]}, "asks admin", codes.AlreadyExists},
		{ofCluster + "RevokeAccessToken", &weirv1.RevokeAccessTokenRequest{Name: "asks"}, "asks", codes.OK},
		{ofCluster + "RevokeAccessToken", &weirv1.RevokeAccessTokenRequest{Name: "asks"}, "asks", codes.NotFound},
	}
}

// recordedOnce fails unless the audit log has just this one entry, and empties it.
func recordedOnce(t *testing.T, to *bytes.Buffer, want audit.Entry) {
	t.Helper()
	defer to.Reset()
	var got audit.Entry
	if err := json.Unmarshal(to.Bytes(), &got); err != nil || strings.Count(to.String(), "\n") != 1 {
		t.Errorf("%s: the audit log has %q, want one line: %v", want.Action, to.String(), err)
		return
	}
	if got.Time.IsZero() || (got.Reason == "") != (got.Outcome == codes.OK.String()) {
		t.Errorf("%s: no time, or not a reason of what is refused: %+v", want.Action, got)
	}
	got.Time, got.Reason = want.Time, want.Reason
	if got != want {
		t.Errorf("the audit log has\n%+v, want\n%+v", got, want)
	}
}

// Each method that changes something leaves one entry with all fields: if it does so, if it is refused what it asks for, and if the caller lacks the role.
func TestEveryChangeIsRecorded(t *testing.T) {
	var to bytes.Buffer
	f := newFixture(t, accessRules+"---\ndomain: edge\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 1}}]\n")
	withStore(t, f)
	f.audit = audit.New("here", &to)
	a, secrets := tokensOf(t, "admin", "check")
	a.Audit, a.Store = f.audit, &tokenList{}
	f.access, f.tap = a, a.Tap(f.Limiter.Tap)
	f.status.Node, f.status.Current = cluster.Node{ID: "n"}, newView(t, 3, "n", "p")
	conn := f.dial(t)
	calls := map[string]int{} // by method
	for _, c := range changeCalls() {
		service, name, _ := strings.Cut(c.method, ".")
		method := "/weir.v1." + service + "/" + name
		entry := audit.Entry{Node: "here", Client: "admin", Proof: "token", From: "pipe", Action: c.method, Target: c.target, Outcome: c.outcome.String()}
		if c.method == "Cluster.ImportView" && c.outcome != codes.OK {
			f.status.ImportErr = ErrNothingLost
		}
		err := conn.Invoke(withToken(t.Context(), secrets["admin"]), method, c.req, &emptypb.Empty{})
		if status.Code(err) != c.outcome {
			t.Errorf("%s %v: %v, want %v", c.method, c.req, err, c.outcome)
		}
		recordedOnce(t, &to, entry)
		_ = conn.Invoke(withToken(t.Context(), secrets["check"]), method, c.req, &emptypb.Empty{})
		entry.Client, entry.Target, entry.Outcome = "check", "", codes.PermissionDenied.String()
		recordedOnce(t, &to, entry)
		calls[method]++
	}
	for call, n := range needs {
		if want := map[bool]int{true: 2}[n.changes && isMethod(call)]; calls[call] != want {
			t.Errorf("%s: %d calls in changeCalls, want %d", call, calls[call], want)
		}
	}
}

// Each path over HTTP that changes something leaves one entry if the caller lacks the role.
func TestEveryDeniedPathIsRecorded(t *testing.T) {
	var to bytes.Buffer
	f := newFixture(t, accessRules)
	a, secrets := tokensOf(t, "check")
	a.Audit = audit.New("here", &to)
	h := a.Protect(f.handler(t), nil)
	values := strings.NewReplacer("{domain}", "shop", "{id...}", "r", "{node_id}", "n", "{node_drain}", "n:drain", "{revision}", "1")
	paths := 0
	for call, n := range needs {
		if isMethod(call) || !n.changes {
			continue
		}
		paths++
		method, path, found := strings.Cut(call, " ")
		if !found {
			method, path = http.MethodPost, call
		}
		r := httptest.NewRequest(method, values.Replace(path), strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+secrets["check"])
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", call, w.Code, w.Body)
		}
		recordedOnce(t, &to, audit.Entry{Node: "here", Client: "check", Proof: "token", Action: call, Outcome: codes.PermissionDenied.String()})
	}
	if paths < 10 {
		t.Errorf("%d paths change something", paths)
	}
}
