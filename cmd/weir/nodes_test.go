package main

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func TestNodes(t *testing.T) {
	nodes := &weirv1.ListNodesResponse{View: 7, Nodes: []*weirv1.Node{
		{Id: "a", Address: "127.0.0.1:9090", Incarnation: 1, State: weirv1.NodeState_NODE_STATE_READY, Version: "v0.1.0", RulesHash: "3f2a", Member: true, Reachable: true, Partitions: 511},
		{Id: "host-9091", Address: "10.20.30.40:9091", Incarnation: 12, Member: true, Partitions: 510, Active: 500, Wanted: 10, Leaving: 3},
		{Id: "z", Address: "z:1", Incarnation: 1, State: weirv1.NodeState_NODE_STATE_JOINING, Version: "v0.1.0", RulesHash: "3f2a", Reachable: true, Unreached: "node a does not reach it at z:1 (connection refused)"},
	}}
	const text = `
NODE       ADDRESS           STATE     MEMBER  REACHABLE  PARTITIONS  MOVING        STARTS  VERSION  RULES
a          127.0.0.1:9090    ready     yes     yes        511         -             1       v0.1.0   3f2a
host-9091  10.20.30.40:9091  gone      yes     no         510         10 in, 3 out  12      -        -
z          z:1               starting  no      yes        0           -             1       v0.1.0   3f2a

view 7, members 2 of 3
z is no member: node a does not reach it at z:1 (connection refused)
`
	address := listen(t, &fakeNode{nodes: nodes})
	if got, want := weir(t, nil, "nodes", "--node", address), (outcome{0, text[1:], ""}); got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}

	nodes.Nodes[2].RulesHash, nodes.Nodes[2].Unreached = "77e0", ""
	const differ = "\nview 7, members 2 of 3\n2 different sets of rules are in force\n"
	if got := weir(t, nil, "nodes", "--node", address); !strings.HasSuffix(got.stdout, differ) {
		t.Errorf("got %s, want %s behind the table", got.stdout, differ)
	}

	nodes.Nodes = nodes.Nodes[:1]
	const json = `{"view":"7","nodes":[{"id":"a","address":"127.0.0.1:9090","incarnation":"1","state":"NODE_STATE_READY",` +
		`"version":"v0.1.0","rules_hash":"3f2a","member":true,"reachable":true,"partitions":511,"active":0,"wanted":0,"leaving":0,"unreached":"","admin_address":""}]}` + "\n"
	if got, want := weir(t, nil, "nodes", "--json", "--node", address), (outcome{0, json, ""}); got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestRemoveNode(t *testing.T) {
	f := &fakeNode{}
	address := listen(t, f)
	for _, tc := range []struct {
		args []string
		want outcome
	}{
		{[]string{"dead"}, outcome{0, "dead is no member of view 9\n", ""}},
		{[]string{"late"}, outcome{0, "late counts for dead from view 9 on, and is dropped once members may change\n", ""}},
		{[]string{"dead", "--json"}, outcome{0, `{"view":"9","member":false}` + "\n", ""}},
	} {
		if got := weir(t, nil, append([]string{"nodes", "remove", "--node", address}, tc.args...)...); got != tc.want {
			t.Errorf("%q: got %+v, want %+v", tc.args, got, tc.want)
		}
	}
	if got := fmt.Sprint(f.removed); got != "[dead late dead]" {
		t.Errorf("removed %s", got)
	}
	for _, args := range [][]string{{}, {"a", "b"}} {
		got := weir(t, nil, append([]string{"nodes", "remove", "--node", address}, args...)...)
		if got.code != 2 || !strings.Contains(got.stderr, "remove takes the id of one node") {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	f.failure = status.Error(codes.NotFound, `node_id: "x": it is no member, and no view waits for it`)
	if got := weir(t, nil, "nodes", "remove", "x", "--node", address); got.code != 2 || !strings.Contains(got.stderr, "it is no member") {
		t.Errorf("got %+v", got)
	}
}
