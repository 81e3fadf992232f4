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
	want := outcome{0, "weir-2: 9 partitions left\nweir-2: 4 partitions left\nweir-2 holds nothing any more: it may be stopped\n", ""}
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
		"drain":                        `drain takes the id of one node, see weir nodes, but got []`,
		"drain weir-3":                 `there is no node "weir-3"; did you mean weir-1?`,
		"drain weir-2 --timeout 300ms": "after 300ms weir-2 still holds 9 partitions; it goes on to hand them over",
	} {
		got := weir(t, nil, append(strings.Fields(args), "--node", address)...)
		if got.code != 2 || !strings.Contains(got.stderr, message) {
			t.Errorf("%s: %+v, want %s", args, got, fmt.Sprint(message))
		}
	}
}
