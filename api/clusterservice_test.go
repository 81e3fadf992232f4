package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/ring"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

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
			h.GetView(), members, h.GetEtcdReachable(), h.GetRulesHash(), h.GetRuleCount(), h.GetCounters())
	}

	hash := f.status.Set.Hash()
	f.status.Node = cluster.Node{ID: "a", Incarnation: 7, Version: "v1"}
	f.status.Faults = []string{"one thing.", "another."}
	want := fmt.Sprintf(`a 7 v1 ready false degraded true ["one thing." "another."] view 0 [] etcd false rules %s 2 counters 0`, hash)
	if got := health(); got != want {
		t.Errorf("before the first view\ngot  %s\nwant %s", got, want)
	}

	f.status.Current, f.status.Reached, f.status.Faults = newView(t, 5, "a", "b"), []string{"a"}, nil
	f.status.IsReady, f.status.Etcd, f.status.Count = true, true, 9
	want = fmt.Sprintf(`a 7 v1 ready true degraded false [] view 5 ["a a:1 1 true" "b b:1 2 false"] etcd true rules %s 2 counters 9`, hash)
	if got := health(); got != want {
		t.Errorf("in a view\ngot  %s\nwant %s", got, want)
	}
}

func TestDrainNode(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	client := weirv1.NewClusterClient(f.dial(t))
	f.status.Node = cluster.Node{ID: "n"}
	f.status.HandoverStatuses = map[string]cluster.HandoverStatus{"n": {Active: 3, Leaving: 4}}
	resp, err := client.DrainNode(t.Context(), &weirv1.DrainNodeRequest{NodeId: "n"})
	if err != nil || resp.GetToHandOver() != 7 || !f.status.Drained {
		t.Errorf("%v, %v, drained %t", resp, err, f.status.Drained)
	}
	if _, err := client.DrainNode(t.Context(), &weirv1.DrainNodeRequest{NodeId: "n", Cancel: true}); err != nil || f.status.Drained {
		t.Errorf("%v, drained %t", err, f.status.Drained)
	}
	_, err = client.DrainNode(t.Context(), &weirv1.DrainNodeRequest{NodeId: "m"})
	if want := `node_id: "m" is not the asked node, which is "n"`; status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != want {
		t.Errorf("%v, want %s", err, want)
	}
	f.status.DrainErr = errors.New("no node there")
	_, err = client.DrainNode(t.Context(), &weirv1.DrainNodeRequest{NodeId: "n"})
	if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "no node there" {
		t.Error(err)
	}
}

func TestRemoveNode(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	client := weirv1.NewClusterClient(f.dial(t))
	f.status.Current = newView(t, 3, "a", "p")
	for id, member := range map[string]bool{"c": false, "p": true} {
		resp, err := client.RemoveNode(t.Context(), &weirv1.RemoveNodeRequest{NodeId: id})
		if err != nil || resp.GetView() != 3 || resp.GetMember() != member || f.status.Removed != id {
			t.Errorf("%s: %v, %v, removed %q", id, resp, err, f.status.Removed)
		}
	}
	for _, tc := range []struct {
		id   string
		err  error
		code codes.Code
		want string
	}{
		{"", nil, codes.InvalidArgument, "node_id: it is missing"},
		{"x", fmt.Errorf("%q: %w", "x", cluster.ErrNoMember), codes.NotFound, `node_id: "x": it is no member, and no view waits for it`},
		{"a", cluster.ErrReached, codes.FailedPrecondition, "node_id: it is reached, so it lives; drain it instead"},
		{"a", cluster.ErrLastMember, codes.FailedPrecondition, "node_id: no other member would stay"},
		{"a", cluster.ErrViewChanged, codes.Unavailable, `node_id: "a" is not removed: view has changed`},
	} {
		f.status.RemoveErr = tc.err
		_, err := client.RemoveNode(t.Context(), &weirv1.RemoveNodeRequest{NodeId: tc.id})
		if status.Code(err) != tc.code || status.Convert(err).Message() != tc.want {
			t.Errorf("%s: %v, want %v: %s", tc.id, err, tc.code, tc.want)
		}
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
				n.GetVersion(), n.GetRulesHash(), n.GetMember(), n.GetReachable(), n.GetPartitions())
			if want := map[bool]string{true: "node a does not reach it at n:1 (refused); not reported to reach it at n:1: b"}[n.GetId() == "n"]; n.GetUnreached() != want {
				t.Errorf("%s: unreached is %q, want %q", n.GetId(), n.GetUnreached(), want)
			}
		}
		return b.String()
	}

	f.status.Node = cluster.Node{ID: "n"}
	f.status.Cut = []cluster.Unreached{{Node: cluster.Node{ID: "n", Address: "n:1"}, By: []cluster.Lack{{By: "a", Reason: "refused"}, {By: "b"}}}}
	f.status.Registered = []cluster.Node{
		{ID: "a", Address: "a:2", Incarnation: 8, State: cluster.Ready, Version: "v2", RulesHash: "r2"}, // restarted elsewhere
		{ID: "m", Address: "m:1", Incarnation: 1, State: "later", Version: "v9", RulesHash: "r9"},       // of a later version
		{ID: "n", Address: "n:1", Incarnation: 1, State: cluster.Joining, Version: "v1", RulesHash: "r1"},
	}
	waiting := "m m:1 1 UNSPECIFIED \"v9\" \"r9\" member false reachable false 0\n" +
		"n n:1 1 JOINING \"v1\" \"r1\" member false reachable true 0\n"
	if got, want := list(), "view 0\na a:2 8 JOINING \"v2\" \"r2\" member false reachable false 0\n"+waiting; got != want {
		t.Errorf("before the first view\ngot  %s\nwant %s", got, want)
	}

	// p's key is gone, and a was restarted: the member is the process before.
	f.status.Current, f.status.Reached = newView(t, 3, "a", "p"), []string{"a"}
	owned, _ := shares(f.status.Current)
	want := fmt.Sprintf("view 3\na a:2 8 JOINING \"v2\" \"r2\" member true reachable true %d\n%sp p:1 2 UNSPECIFIED \"\" \"\" member true reachable false %d\n",
		owned[0], waiting, owned[1])
	if got := list(); got != want {
		t.Errorf("in a view\ngot  %s\nwant %s", got, want)
	}

	// Members are ready only once they say so themselves.
	f.status.Node = cluster.Node{ID: "b"}
	f.status.Current, f.status.Registered = newView(t, 4, "a", "b"), []cluster.Node{
		{ID: "a", Address: "a:1", Incarnation: 1, State: cluster.Ready}, {ID: "b", Address: "b:1", Incarnation: 2, State: cluster.Ready},
	}
	f.status.Reached = []string{"a"}
	for _, tc := range []struct {
		a, b       cluster.State // by their own word; a has not been heard if it is empty
		wantA, own string
	}{
		{cluster.Ready, cluster.Joining, "READY", "JOINING"},
		{cluster.Joining, cluster.Ready, "JOINING", "READY"},
		{"", cluster.Ready, "JOINING", "READY"},
		{cluster.Leaving, cluster.Leaving, "LEAVING", "LEAVING"},
	} {
		f.status.HandoverStatuses = map[string]cluster.HandoverStatus{"a": {State: tc.a}, "b": {State: tc.b}}
		if got := list(); !strings.Contains(got, "a a:1 1 "+tc.wantA+" ") || !strings.Contains(got, "b b:1 2 "+tc.own+" ") {
			t.Errorf("%+v: got %s", tc, got)
		}
	}
	// Of a node that is neither reached nor was heard, the registration is all that is known.
	f.status.Reached, f.status.HandoverStatuses = nil, nil
	if got := list(); !strings.Contains(got, "a a:1 1 READY ") {
		t.Errorf("not reached: got %s", got)
	}
}

// What is still to move is told as of the view that the list is of, also of nodes that were
// last heard before it, or never.
func TestListNodesMoves(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	client := weirv1.NewClusterClient(f.dial(t))
	f.status.Node, f.status.Current = cluster.Node{ID: "a"}, newView(t, 2, "a", "b", "c", "d")
	owned, _ := shares(f.status.Current)
	f.status.HandoverStatuses = map[string]cluster.HandoverStatus{
		"a": {Active: int(owned[0]) - 5, Wanted: 5, Leaving: 7},
		"b": {Active: 1021}, // it had all
		"c": {Wanted: 1021}, // a later view is to give it more
	}
	resp, err := client.ListNodes(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ active, wanted, leaving uint32 }{
		{owned[0] - 5, 5, 7}, {owned[1], 0, 1021 - owned[1]}, {0, 1021, 0}, {0, owned[3], 0},
	} {
		if n := resp.GetNodes()[i]; n.GetActive() != want.active || n.GetWanted() != want.wanted || n.GetLeaving() != want.leaving {
			t.Errorf("%v, want %+v", n, want)
		}
	}
}

// The options of a node are told over gRPC and HTTP.
func TestGetOptions(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	f.status.Node.ID = "a"
	f.status.Opts = []*weirv1.Option{{Name: "cluster", Value: "default"}, {Name: "etcd", Value: "e:2379", Changed: true}}
	resp, err := weirv1.NewClusterClient(f.dial(t)).GetOptions(t.Context(), &weirv1.GetOptionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &weirv1.GetOptionsResponse{NodeId: "a", Options: f.status.Opts}
	if !proto.Equal(resp, want) {
		t.Errorf("%v, want %v", resp, want)
	}
	var overHTTP weirv1.GetOptionsResponse
	if w := send(f.handler(t), http.MethodGet, "/v1/options", ""); w.Code != http.StatusOK || protojson.Unmarshal(w.Body.Bytes(), &overHTTP) != nil || !proto.Equal(&overHTTP, want) {
		t.Errorf("GET /v1/options: %d %s", w.Code, w.Body)
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

	f.status.Current = newView(t, 4, "a", "b", "c")
	if got := get(false); got.GetView() != 4 || got.GetPartitions() != 1021 || len(got.GetOwners())+len(got.GetStandbys()) != 0 {
		t.Errorf("without tables: %v", got)
	}
	resp := get(true)
	owners, standbys := f.status.Current.Ring.Tables()
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

	f.status.Current = newView(t, 5, "a")
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
		f.status.IsReady = tc.ready
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
		if err != nil || resp.GetView() != 7 || f.status.Imported == dry {
			t.Errorf("%v, %v, imported %t", resp, err, f.status.Imported)
		}
	}
	for err, want := range map[error]codes.Code{ErrNothingLost: codes.FailedPrecondition, errors.New("no answer"): codes.Unavailable} {
		f.status.ImportErr = err
		_, got := client.ImportView(t.Context(), &weirv1.ImportViewRequest{})
		if status.Code(got) != want || status.Convert(got).Message() != err.Error() {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
