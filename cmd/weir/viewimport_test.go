package main

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestViewImport(t *testing.T) {
	fake := &fakeNode{}
	address := listen(t, fake)
	const plan = "cluster  shop: etcd was wiped\nview     8, members a, b\nrules    revision 3\n\n"
	if got, want := weir(t, nil, "view", "import", "--node", address), (outcome{0, plan + "Nothing is written yet: pass --yes to do so.\n", ""}); got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if got, want := weir(t, nil, "view", "import", "--yes", "--node", address), (outcome{0, plan + "written\n", ""}); got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if !slices.Equal(fake.imports, []bool{true, false}) {
		t.Errorf("dry: %v", fake.imports)
	}
	fake.failure = status.Error(codes.FailedPrecondition, "there is nothing to import")
	if got := weir(t, nil, "view", "import", "--yes", "--node", address); got.code != 2 || !strings.Contains(got.stderr, "there is nothing to import") {
		t.Errorf("%+v", got)
	}
}
