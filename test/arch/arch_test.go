// Package arch holds the module to its architecture: which package may import
// which, who may read the clock, and what every package must have.
package arch

import (
	"os"
	"slices"
	"testing"
)

// module is the path of the module in whose root test/arch lies.
const module = "github.com/weirlimit/weir"

// imports says which packages of the module a package may import. Every package but those in test must be
// here; those in test may import all, and no package may import them. Files of tests may import any
// package, except from test.
//
// The arrows point one way: cmd to node to the parts to the arithmetic. Before
// adding one that does not, have the consumer declare an interface.
var imports = map[string][]string{
	"cmd/weir": {"internal/backtest", "internal/asciijson", "internal/access", "internal/certs", "cmd/weir/internal/bench", "cmd/weir/internal/dev", "cmd/weir/internal/sizing", "node", "client", "api", "api/weir/v1", "rules", "rules/envoy", "algorithms"},
	"client":   {"api/weir/v1"},
	// Certificates of nodes and clients: for the node that shows them and the CLI that makes them.
	"internal/certs": {"internal/access"},
	// Which caller may do what: for certificates, which name callers, and for the API, which asks.
	"internal/access": {},
	// Logs replayed through rules: for the CLI, and for a node that shows what rules would do.
	"internal/backtest": {"rules", "rules/envoy", "ring", "algorithms"},
	// What was changed by which caller: the API records it, and the node says where.
	"internal/audit": {"internal/asciijson"},
	// What each check was told: the API records it, and the node says where.
	"internal/decisionlog": {"internal/asciijson"},
	"internal/asciijson":   {},
	// Which keys are asked for most: the API records it, and the cluster collects it.
	"internal/topkeys": {},
	// Spans of checks: the API makes them, and the node says where they go.
	"internal/tracing": {},
	// It is to the client what a node is, and the node's parts to it: so nothing but programs may
	// import it.
	"client/embedded":            {"client", "api", "api/weir/v1", "rules", "shard", "ring"},
	"client/httplimit":           {"client", "client/internal/middleware", "api/weir/v1", "internal/headers", "internal/clientip"},
	"client/grpclimit":           {"client", "client/internal/middleware", "api/weir/v1", "internal/headers", "internal/clientip"},
	"client/internal/middleware": {"client", "api/weir/v1", "internal/headers"},
	// It asks nodes as any client does, and measures the counters alone, below the node.
	"cmd/weir/internal/bench": {"client", "api/weir/v1", "shard", "ring", "algorithms"},

	// It starts nodes as processes, and asks them as any client does.
	"cmd/weir/internal/dev": {"client", "api/weir/v1"},

	// It computes with bounds that a node has.
	"cmd/weir/internal/sizing": {"shard", "ring"},
	// Pages for people, of what the public API answers.
	"ui": {"api/weir/v1", "algorithms"},

	"cluster":      {"internal/topkeys", "cluster/peerv1", "cluster/ownership", "cluster/replica", "cluster/view", "shard", "ring", "algorithms"},
	"node":         {"ui", "internal/backtest", "internal/asciijson", "internal/topkeys", "rules/xds", "internal/audit", "internal/decisionlog", "internal/tracing", "internal/access", "internal/certs", "overload", "api", "api/envoy", "api/weir/v1", "internal/headers", "cluster", "cluster/etcd", "cluster/snapshot", "cluster/view", "shard", "rules", "rules/envoy", "ring", "algorithms"},
	"api":          {"overload", "internal/topkeys", "internal/audit", "internal/decisionlog", "internal/tracing", "internal/access", "api/envoy", "api/internal/check", "api/internal/jsonbody", "api/internal/wire", "api/internal/gateway/weir/v1", "api/weir/v1", "internal/headers", "internal/clientip", "cluster", "rules", "rules/envoy", "shard", "ring", "algorithms"},
	"cluster/etcd": {"cluster", "cluster/view", "ring"},
	// Which node has each partition, and which one is to have it next: no clock, lock or message.
	"cluster/view": {"ring"},
	// The state machine of a partition's copy: the same.
	"cluster/replica": {"cluster/view"},
	// What drives it: counters, and messages that another package carries.
	"cluster/ownership": {"cluster/replica", "cluster/view", "shard"},
	// The format of files of counters, which knows nothing of what is in them.
	"cluster/snapshot": {},
	"rules":            {"rules/envoy", "rules/internal/counter", "rules/internal/problem", "rules/internal/yamlnode", "ring", "algorithms"},
	"shard":            {"ring", "algorithms"},

	// The format of another product: rules make rules of what it has read.
	"rules/envoy": {"rules/internal/counter", "rules/internal/problem", "rules/internal/yamlnode", "ring", "algorithms"},
	// Rules that a server sends.
	"rules/xds": {"rules", "rules/envoy"},
	// What the readers of all formats of rules share.
	"rules/internal/counter":  {"ring", "algorithms"},
	"rules/internal/problem":  {},
	"rules/internal/yamlnode": {},

	// The service of another product. It and api stand on the same: what is decided, and what travels.
	"api/envoy":             {"api/internal/check", "api/internal/jsonbody", "api/internal/wire", "api/weir/v1", "internal/access", "rules", "rules/envoy", "shard", "ring", "algorithms"},
	"api/internal/check":    {"internal/topkeys", "api/internal/wire", "internal/access", "internal/decisionlog", "internal/tracing", "rules", "shard", "ring", "algorithms"},
	"api/internal/jsonbody": {},
	"api/internal/wire":     {},
	// What the tests of both, and of the client, share.
	"internal/apitest": {"internal/topkeys", "api/weir/v1", "cluster", "rules", "shard", "ring"},
	// The server that sends rules, in the tests of any package.
	"internal/xdstest": {},
	// What stands for the network and for etcd in the tests of any package.
	"internal/inmemory": {},
	// Which tests run, and how long they take.
	"internal/testform": {},

	// Which calls a node has no time for.
	"overload": {},

	"ring":       {},
	"algorithms": {},

	"cluster/peerv1": {},

	// How a decision is told to people's clients: by api, and where client enforces it.
	"internal/headers": {"api/weir/v1"},
	// Whom a request comes from through proxies: for the same two.
	"internal/clientip": {},

	"api/weir/v1":                  {},
	"api/internal/gateway/weir/v1": {"api/weir/v1"},
}

// namedAlgorithms are the algorithms that a package chooses for a limit. Other uses of the constants outside of
// algorithms and test are violations: what differs between algorithms is a trait, which a new one declares too.
var namedAlgorithms = map[string][]string{
	"rules":                   {"SlidingWindow"},                // the default
	"rules/envoy":             {"FixedWindow"},                  // what the format means, and the default for its option
	"cmd/weir":                {"SlidingWindow"},                // the default of bench
	"cmd/weir/internal/bench": {"FixedWindow"},                  // counters of the size of a State
	"internal/backtest":       {"SlidingWindow", "TokenBucket"}, // what suggestions are
}

// etcdPackage is the only one that knows etcd.
const etcdPackage = "cluster/etcd"

// clockless packages compute with instants that they are given.
var clockless = []string{"algorithms", "ring", "rules", "cluster/view", "cluster/replica"}

// relayless packages decide about copies. Which member is reached, and through which one, is a matter of transport: they are told which one is reached.
var relayless = []string{"cluster/ownership", "cluster/replica", "cluster/view"}

// ofPartitions are the structs that a node has for each partition, and those within them.
var ofPartitions = []string{
	"cluster/replica.Replica", "cluster/replica.Claim", "cluster/replica.Copy", "cluster/replica.Own",
	"cluster/ownership.partition", "cluster/ownership.sending", "cluster/ownership.receiving", "cluster/ownership.deltas", "cluster/ownership.ownDeltas",
	"cluster/ownership.place", "cluster/ownership.feed", "cluster/ownership.progress", "cluster/ownership.known", "cluster/ownership.intake",
	"cluster/ownership.salvage", "cluster/ownership.given",
}

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
	declared := declaredTypes(files)
	for _, name := range ofPartitions {
		if !slices.Contains(declared, name) {
			t.Errorf("%s is named in ofPartitions, and is no type", name)
		}
	}
}
