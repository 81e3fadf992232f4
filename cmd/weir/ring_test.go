package main

import (
	"strings"
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func TestRing(t *testing.T) {
	ring := &weirv1.GetRingResponse{View: 7, Partitions: 1021, Shares: []*weirv1.RingShare{
		{Id: "a", Owned: 341, Standby: 339}, {Id: "host-9091", Owned: 680, Standby: 682},
	}}
	const text = `
NODE       OWNED  SHARE  STANDBY
a          341    33.4%  339
host-9091  680    66.6%  682

view 7, 1021 partitions
`
	fake := &fakeNode{ring: ring}
	address := listen(t, fake)
	if got, want := weir(t, nil, "ring", "--node", address), (outcome{0, text[1:], ""}); got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	const json = `{"view":"7","partitions":1021,"shares":[{"id":"a","owned":341,"standby":339},` +
		`{"id":"host-9091","owned":680,"standby":682}],"owners":[],"standbys":[]}` + "\n"
	if got, want := weir(t, nil, "ring", "--json", "--node", address), (outcome{0, json, ""}); got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}

	// The last partition's owner is not among the members, and its standby missing.
	ring.Owners, ring.Standbys = []uint32{0, 1, 2}, []uint32{1, 0}
	const tables = `
PARTITION  OWNER      STANDBY
0          a          host-9091
1          host-9091  a
2          -          -
`
	if got, want := weir(t, nil, "ring", "--tables", "--node", address), (outcome{0, tables[1:], ""}); got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}

	fake.ring = &weirv1.GetRingResponse{} // before the first view
	if got := weir(t, nil, "ring", "--node", address); got.code != 0 || !strings.Contains(got.stdout, "view 0, 0 partitions") {
		t.Errorf("got %+v", got)
	}
}
