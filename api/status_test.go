package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// fakeStatus is a Status that says what it is told to.
type fakeStatus struct {
	self     cluster.Node
	ready    bool
	view     *cluster.View
	nodes    []cluster.Node
	reaches  []string
	etcd     bool
	rules    *rules.Set
	counters int
	problems []string

	standings  map[string]cluster.Standing
	drained    bool
	drainError error

	imported    bool
	importError error
}

func (s *fakeStatus) Self() cluster.Node     { return s.self }
func (s *fakeStatus) Ready() bool            { return s.ready }
func (s *fakeStatus) View() *cluster.View    { return s.view }
func (s *fakeStatus) Nodes() []cluster.Node  { return s.nodes }
func (s *fakeStatus) Reaches(id string) bool { return slices.Contains(s.reaches, id) }
func (s *fakeStatus) EtcdReachable() bool    { return s.etcd }

func (s *fakeStatus) Standing(id string) cluster.Standing { return s.standings[id] }

func (s *fakeStatus) Drain(cancel bool) error {
	s.drained = !cancel
	return s.drainError
}

func (s *fakeStatus) ImportView(_ context.Context, dryRun bool) (*weirv1.ImportViewResponse, error) {
	s.imported = !dryRun
	return &weirv1.ImportViewResponse{View: 7}, s.importError
}

func (s *fakeStatus) Rules() *rules.Set  { return s.rules }
func (s *fakeStatus) Counters() int      { return s.counters }
func (s *fakeStatus) Problems() []string { return s.problems }

// newView has the members a:1, b:1 and so on, of incarnations 1, 2 and so on.
func newView(t *testing.T, number uint64, ids ...string) *cluster.View {
	t.Helper()
	r, err := ring.Build(ring.DefaultParams, ids)
	if err != nil {
		t.Fatal(err)
	}
	v := &cluster.View{Number: number, Ring: r}
	for i, id := range ids {
		v.Members = append(v.Members, cluster.Member{ID: id, Address: id + ":1", Incarnation: uint64(i + 1)})
	}
	return v
}

func TestGetHealthStatus(t *testing.T) {
	f := newFixture(t, "domain: d\nrules:\n- {id: r, limits: [{limit: 1, window: 1s}]}\n- {id: off, enabled: false, limits: [{limit: 1, window: 1s}]}\n")
	client := weirv1.NewRateLimiterHealthClient(f.dial(t))
	health := func() string {
		h, err := client.GetHealthStatus(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var members []string
		for _, m := range h.GetMembers() {
			members = append(members, fmt.Sprintf("%s %s %d %t", m.GetId(), m.GetAddress(), m.GetIncarnation(), m.GetReachable()))
		}
		return fmt.Sprintf("%s %d %s ready %t degraded %t %q view %d %q etcd %t rules %s %d counters %d",
			h.GetNodeId(), h.GetIncarnation(), h.GetVersion(), h.GetReady(), h.GetDegraded(), h.GetReasons(),
			h.GetView(), members, h.GetEtcdReachable(), h.GetRuleRevision(), h.GetRuleCount(), h.GetCounters())
	}

	revision := f.status.rules.Revision()
	f.status.self = cluster.Node{ID: "a", Incarnation: 7, Version: "v1"}
	f.status.problems = []string{"one thing.", "another."}
	want := fmt.Sprintf(`a 7 v1 ready false degraded true ["one thing." "another."] view 0 [] etcd false rules %s 2 counters 0`, revision)
	if got := health(); got != want {
		t.Errorf("before the first view\ngot  %s\nwant %s", got, want)
	}

	f.status.view, f.status.reaches, f.status.problems = newView(t, 5, "a", "b"), []string{"a"}, nil
	f.status.ready, f.status.etcd, f.status.counters = true, true, 9
	want = fmt.Sprintf(`a 7 v1 ready true degraded false [] view 5 ["a a:1 1 true" "b b:1 2 false"] etcd true rules %s 2 counters 9`, revision)
	if got := health(); got != want {
		t.Errorf("in a view\ngot  %s\nwant %s", got, want)
	}
}

func TestDrainNode(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	client := weirv1.NewClusterClient(f.dial(t))
	f.status.self = cluster.Node{ID: "n"}
	f.status.standings = map[string]cluster.Standing{"n": {Held: 3, Leaving: 4}}
	resp, err := client.DrainNode(t.Context(), &weirv1.DrainNodeRequest{NodeId: "n"})
	if err != nil || resp.GetHeld() != 7 || !f.status.drained {
		t.Errorf("%v, %v, drained %t", resp, err, f.status.drained)
	}
	if _, err := client.DrainNode(t.Context(), &weirv1.DrainNodeRequest{NodeId: "n", Cancel: true}); err != nil || f.status.drained {
		t.Errorf("%v, drained %t", err, f.status.drained)
	}
	_, err = client.DrainNode(t.Context(), &weirv1.DrainNodeRequest{NodeId: "m"})
	if want := `node_id: "m" is not the asked node, which is "n"`; status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != want {
		t.Errorf("%v, want %s", err, want)
	}
	f.status.drainError = errors.New("nobody there")
	_, err = client.DrainNode(t.Context(), &weirv1.DrainNodeRequest{NodeId: "n"})
	if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "nobody there" {
		t.Error(err)
	}
}

func TestListNodes(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	client := weirv1.NewClusterClient(f.dial(t))
	list := func() string {
		resp, err := client.ListNodes(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "view %d\n", resp.GetView())
		for _, n := range resp.GetNodes() {
			state := strings.TrimPrefix(n.GetState().String(), "NODE_STATE_")
			fmt.Fprintf(&b, "%s %s %d %s %q %q member %t reachable %t %d\n", n.GetId(), n.GetAddress(), n.GetIncarnation(), state,
				n.GetVersion(), n.GetRuleRevision(), n.GetMember(), n.GetReachable(), n.GetPartitions())
		}
		return b.String()
	}

	f.status.self = cluster.Node{ID: "n"}
	f.status.nodes = []cluster.Node{
		{ID: "a", Address: "a:2", Incarnation: 8, State: cluster.Ready, Version: "v2", RuleRevision: "r2"}, // restarted elsewhere
		{ID: "m", Address: "m:1", Incarnation: 1, State: "later", Version: "v9", RuleRevision: "r9"},       // of a later version
		{ID: "n", Address: "n:1", Incarnation: 1, State: cluster.Joining, Version: "v1", RuleRevision: "r1"},
	}
	waiting := "m m:1 1 UNSPECIFIED \"v9\" \"r9\" member false reachable false 0\n" +
		"n n:1 1 JOINING \"v1\" \"r1\" member false reachable true 0\n"
	if got, want := list(), "view 0\na a:2 8 READY \"v2\" \"r2\" member false reachable false 0\n"+waiting; got != want {
		t.Errorf("before the first view\ngot  %s\nwant %s", got, want)
	}

	// p's key is gone.
	f.status.view, f.status.reaches = newView(t, 3, "a", "p"), []string{"a"}
	owned, _ := shares(f.status.view)
	want := fmt.Sprintf("view 3\na a:2 8 READY \"v2\" \"r2\" member true reachable true %d\n%sp p:1 2 UNSPECIFIED \"\" \"\" member true reachable false %d\n",
		owned[0], waiting, owned[1])
	if got := list(); got != want {
		t.Errorf("in a view\ngot  %s\nwant %s", got, want)
	}
}

func TestGetRing(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	client := weirv1.NewClusterClient(f.dial(t))
	get := func(tables bool) *weirv1.GetRingResponse {
		resp, err := client.GetRing(t.Context(), &weirv1.GetRingRequest{Tables: tables})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if got := get(true); got.String() != "" {
		t.Errorf("before the first view: %v", got)
	}

	f.status.view = newView(t, 4, "a", "b", "c")
	if got := get(false); got.GetView() != 4 || got.GetPartitions() != 1021 || len(got.GetOwners())+len(got.GetStandbys()) != 0 {
		t.Errorf("without tables: %v", got)
	}
	resp := get(true)
	owners, standbys := f.status.view.Ring.Tables()
	same := func(got []uint32, want []uint16) bool {
		return slices.EqualFunc(got, want, func(g uint32, w uint16) bool { return g == uint32(w) })
	}
	if !same(resp.GetOwners(), owners) || !same(resp.GetStandbys(), standbys) {
		t.Errorf("tables %v, want %v and %v", resp, owners, standbys)
	}
	for i, s := range resp.GetShares() {
		owned, standby := count(owners, i), count(standbys, i)
		if s.GetId() != string(rune('a'+i)) || s.GetOwned() != owned || s.GetStandby() != standby {
			t.Errorf("share %d: %v, want %d and %d", i, s, owned, standby)
		}
	}
	if len(resp.GetShares()) != 3 {
		t.Errorf("%d shares of 3 members", len(resp.GetShares()))
	}

	f.status.view = newView(t, 5, "a")
	if one := get(false).GetShares(); len(one) != 1 || one[0].GetOwned() != 1021 || one[0].GetStandby() != 0 {
		t.Errorf("one member: %v", one)
	}
}

func count(table []uint16, member int) (n uint32) {
	for _, m := range table {
		if int(m) == member {
			n++
		}
	}
	return n
}

func TestReadiness(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	for _, tc := range []struct {
		ready      bool
		path, want string
	}{
		{false, "/healthz", "200 ok\n"},
		{false, "/readyz", "503 not ready\n"},
		{true, "/healthz", "200 ok\n"},
		{true, "/readyz", "200 ready\n"},
	} {
		f.status.ready = tc.ready
		w := httptest.NewRecorder()
		f.handler(t).ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.path, http.NoBody))
		if got := fmt.Sprint(w.Code, " ", w.Body); got != tc.want || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("ready %t: GET %s: %q %v, want %q", tc.ready, tc.path, got, w.Header(), tc.want)
		}
	}
}

func TestImportView(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	client := weirv1.NewClusterClient(f.dial(t))
	for _, dry := range []bool{true, false} {
		resp, err := client.ImportView(t.Context(), &weirv1.ImportViewRequest{DryRun: dry})
		if err != nil || resp.GetView() != 7 || f.status.imported == dry {
			t.Errorf("%v, %v, imported %t", resp, err, f.status.imported)
		}
	}
	for err, want := range map[error]codes.Code{ErrNothingLost: codes.FailedPrecondition, errors.New("no answer"): codes.Unavailable} {
		f.status.importError = err
		_, got := client.ImportView(t.Context(), &weirv1.ImportViewRequest{})
		if status.Code(got) != want || status.Convert(got).Message() != err.Error() {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
