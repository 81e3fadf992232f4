package etcd

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/ring"
)

// DefaultLeaseTTL is how long a node's key outlives its last renewal.
const DefaultLeaseTTL = 5 * time.Second

// DefaultWait is how long Open waits for an etcd of which nothing is known.
const DefaultWait = openTimeout

// MaxRules is the most bytes of the rules as stored, and maxTokens of the tokens. etcd itself takes 1.5 MiB by
// default.
const (
	MaxRules  = 1 << 20
	maxTokens = 1 << 20
)

// MaxEndpoints is the most endpoints of etcd.
const MaxEndpoints = 64

// Bounds of names, counts and sizes.
const (
	maxClusterName = 64                 // bytes
	maxNodeID      = ring.MaxMemberName // bytes
	maxNodes       = 8192               // of the largest ring; more node keys are an error
	maxNodeValue   = 8 << 10            // bytes of a node's JSON
	maxMessage     = 64 << 20           // bytes of one answer of etcd
	minLeaseTTL    = 2 * time.Second    // etcd raises shorter ones itself
	maxLeaseTTL    = 10 * time.Minute   // a dead node would be listed for that long
)

// Bounds of waiting.
const (
	openTimeout  = 5 * time.Second // of one try of Open, and of Bootstrap, NextIncarnation and Nodes
	tellAfter    = 2 * time.Second // without an answer Open says that it waits
	knownTimeout = time.Second     // of Open, if the node can do without
	callTimeout  = 2 * time.Second // of a list, a put or a swap, or of reading the rules

	// A lease is renewed five times per TTL but at least every second, so that
	// several attempts may fail before it is lost.
	renewsPerTTL  = 5
	maxRenewEvery = time.Second
	renewTimeout  = time.Second
	revokeTimeout = time.Second

	// A watch that is silent for staleAfter although it was asked for its
	// progress is given up: a stopped or cut-off etcd leaves the connection open,
	// and gRPC's own keep-alive takes 13 s to see it.
	progressEvery = 500 * time.Millisecond
	staleAfter    = 2 * time.Second
	relistEvery   = 5 * time.Minute

	// etcd counts as unreachable when nothing has succeeded for this long. A
	// single failed call says little: with two endpoints of which one hangs, every
	// other fails, after a second.
	unreachableAfter = 3 * time.Second

	minPause = 50 * time.Millisecond // between two lists, doubled up to
	maxPause = time.Second
)

// checkAddress refuses what no other machine can dial. The zone of an IPv6 address
// means something on one machine only.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
		return fmt.Errorf("address %q is not host:port", address)
	}
	if strings.Contains(host, "%") {
		return fmt.Errorf("address %q has a zone", address)
	}
	return nil
}
