package main

import (
	"fmt"
	"strings"
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func TestDrain(t *testing.T) {
	fake := &fakeNode{}
	address := listen(t, fake)
	nodes := func(left uint32) *weirv1.ListNodesResponse {
		return &weirv1.ListNodesResponse{Nodes: []*weirv1.Node{
			{Id: "weir-1", Address: "127.0.0.1:1"}, {Id: "weir-2", Address: address, Leaving: left},
		}}
	}
	looks := []*weirv1.ListNodesResponse{nodes(0), nodes(9), nodes(9), nodes(4), nodes(0)}
	fake.config.looks = looks
	want := outcome{0, "weir-2: 9 partitions left\nweir-2: 4 partitions left\nweir-2 has no counters any more and can be stopped\n", ""}
	if got := weir(t, nil, "drain", "weir-2", "--node", address); got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if len(fake.drain) != 1 || fake.drain[0].GetNodeId() != "weir-2" || fake.drain[0].GetCancel() {
		t.Errorf("asked %v", fake.drain)
	}

	fake.config.looks, fake.nodes = nil, nodes(9)
	if got, want := weir(t, nil, "drain", "weir-2", "--cancel", "--node", address), (outcome{0, "weir-2 takes counters again\n", ""}); got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if len(fake.drain) != 2 || !fake.drain[1].GetCancel() {
		t.Errorf("asked %v", fake.drain)
	}
	for args, message := range map[string]string{
		"drain":                        `drain takes the id of one node, but got []`,
		"drain weir-3":                 `there is no node "weir-3"; did you mean weir-1?`,
		"drain weir-2 --timeout 300ms": "weir-2 still has 9 partitions after 300ms; it goes on handing them over",
	} {
		got := weir(t, nil, append(strings.Fields(args), "--node", address)...)
		if got.code != 2 || !strings.Contains(got.stderr, message) {
			t.Errorf("%s: %+v, want %s", args, got, fmt.Sprint(message))
		}
	}
}

// A node is drained at its admin port if the asked node knows it, and only if it is that node that answers there.
func TestDrainAtTheAdminPort(t *testing.T) {
	its := &fakeNode{id: "weir-2"}
	at := listen(t, its)
	nodes := &weirv1.ListNodesResponse{Nodes: []*weirv1.Node{{Id: "weir-2", Address: "127.0.0.1:1", AdminAddress: at}}}
	its.nodes = nodes
	asked := listen(t, &fakeNode{nodes: nodes})
	want := outcome{0, "weir-2 has no counters any more and can be stopped\n", ""}
	if got := weir(t, nil, "drain", "weir-2", "--node", asked); got != want || len(its.drain) != 1 {
		t.Errorf("%+v, asked %v", got, its.drain)
	}
	its.id = "weir-1"
	if got := weir(t, nil, "drain", "weir-2", "--node", asked); got.code != 2 || len(its.drain) != 1 ||
		!strings.Contains(got.stderr, "node weir-1 answers at "+at+", the admin port of node weir-2") {
		t.Errorf("%+v, asked %v", got, its.drain)
	}
}
