package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A request that means another cluster is refused, and a node says which one is its own if the request names one.
func TestRequestsThatNameACluster(t *testing.T) {
	for _, tc := range []struct {
		meant, named string
		status       int
		body         string
	}{
		{"", "", http.StatusOK, "served"},
		{"any", "00000000000000c1", http.StatusOK, "served"},
		{"00000000000000c1", "00000000000000c1", http.StatusOK, "served"},
		{"00000000000000ff", "00000000000000c1", http.StatusMisdirectedRequest,
			`{"code":9,"message":"Weir-Cluster: this node is of the cluster 00000000000000c1, not of \"00000000000000ff\"","details":[]}`},
	} {
		h := newFixture(t, inputRules).handler(t)
		r := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(`{"identifier_type":"user","identifier":"alice"}`))
		if tc.meant != "" {
			r.Header.Set("Weir-Cluster", tc.meant)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tc.status || w.Header().Get("Weir-Cluster") != tc.named || tc.body != "served" && strings.TrimSpace(w.Body.String()) != tc.body {
			t.Errorf("%q: %d, %q, %s", tc.meant, w.Code, w.Header().Get("Weir-Cluster"), w.Body)
		}
	}
}

// A node names its cluster also where it has no time for a request, so that clients do not take the overload of another
// cluster's node for that of their own.
func TestRefusedRequestsNameTheCluster(t *testing.T) {
	f := newFixture(t, inputRules)
	f.overload = noTime{}
	for meant, want := range map[string]int{"any": http.StatusServiceUnavailable, "00000000000000ff": http.StatusMisdirectedRequest} {
		r := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(`{"identifier_type":"user","identifier":"alice"}`))
		r.Header.Set("Weir-Cluster", meant)
		w := httptest.NewRecorder()
		f.handler(t).ServeHTTP(w, r)
		if w.Code != want || w.Header().Get("Weir-Cluster") != "00000000000000c1" {
			t.Errorf("%s: %d, cluster %q", meant, w.Code, w.Header().Get("Weir-Cluster"))
		}
	}
}
