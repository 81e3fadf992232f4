// Package arch holds the module to its architecture: which package may import
// which, who may read the clock, and what every package must have.
package arch

import (
	"os"
	"testing"
)

// module is the path of the module in whose root test/arch lies.
const module = "github.com/weirlimit/weir"

// imports says which packages of the module a package may import. Every package
// but those in test must be here; those in test may import all, and nobody may
// import them. Files of tests may import what they like, except from test.
//
// The arrows point one way: cmd to node to the parts to the arithmetic. Before
// adding one that does not, have the consumer declare an interface.
var imports = map[string][]string{
	"cmd/weir": {"cmd/weir/internal/bench", "node", "client", "api", "api/weir/v1", "rules", "algorithms"},
	"client":   {"api/weir/v1"},
	// It is to the client what a node is, and the node's parts to it: so nothing but programs may
	// import it.
	"embedded":             {"client", "api", "api/weir/v1", "rules", "shard", "ring"},
	"client/httplimit":     {"client", "client/internal/gate", "api/weir/v1", "headers", "clientip"},
	"client/grpclimit":     {"client", "client/internal/gate", "api/weir/v1", "headers", "clientip"},
	"client/internal/gate": {"client", "api/weir/v1", "headers"},
	// It asks nodes as any client does, and measures the counters alone, below the node.
	"cmd/weir/internal/bench": {"client", "api/weir/v1", "shard", "ring", "algorithms"},

	"cluster":      {"cluster/peerv1", "shard", "ring", "algorithms"},
	"node":         {"api", "api/weir/v1", "headers", "cluster", "cluster/etcd", "shard", "rules", "ring", "algorithms"},
	"api":          {"api/weir/v1", "headers", "clientip", "cluster", "rules", "shard", "ring", "algorithms"},
	"cluster/etcd": {"cluster", "ring"},
	"rules":        {"ring", "algorithms"},
	"shard":        {"ring", "algorithms"},

	"ring":       {},
	"algorithms": {},

	"cluster/peerv1": {},

	// How a decision is told to people's clients: by api, and where client enforces it.
	"headers": {"api/weir/v1"},
	// Whom a request comes from through proxies: for the same two.
	"clientip": {},

	"api/weir/v1": {},
}

// etcdPackage is the only one that knows etcd.
const etcdPackage = "cluster/etcd"

// clockless packages compute with instants that they are given.
var clockless = []string{"algorithms", "ring", "rules"}

func TestArchitecture(t *testing.T) {
	// The files are opened in this process rather than by go list in another, so
	// that go test sees when its cached result is out of date.
	files, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found %d files: this is not the module's root", len(files))
	}
	for _, violation := range check(files) {
		t.Error(violation)
	}
}
