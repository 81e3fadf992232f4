package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// wire is the network of nodes, from which one address can be cut off.
type wire struct {
	mu    sync.Mutex
	cut   string                // guarded by mu
	conns map[string][]net.Conn // by address; guarded by mu
}

func (w *wire) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if address == w.cut {
		return nil, errors.Join(fmt.Errorf("%s is cut off", address), conn.Close())
	}
	w.conns[address] = append(w.conns[address], conn)
	return conn, nil
}

// cutOff ends all connections to an address, and lets none be opened.
func (w *wire) cutOff(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = address
	for _, conn := range w.conns[address] {
		_ = conn.Close()
	}
}

// chain says which spans s belongs to, from the check on, with the attribute that tells most of each.
func chain(spans map[string]*tracev1.Span, s *tracev1.Span) string {
	said := ""
	for ; s != nil; s = spans[string(s.GetParentSpanId())] {
		a := attributesOf(s)
		said = strings.TrimSpace(s.GetName()+" "+a["weir.role"]) + " > " + said
	}
	return strings.TrimSuffix(said, " > ")
}

// has reports whether the collector has got a span of each chain, and which it has got. Of the decisions it looks at those that were
// made in the place of an owner, of any if owner is empty: a node that is late decides nothing, and has a span as well.
func (c *collector) has(owner string, chains ...string) (all bool, got map[string]*tracev1.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := make(map[string]*tracev1.Span)
	for _, s := range c.spans {
		spans[string(s.GetSpanId())] = s
	}
	got = make(map[string]*tracev1.Span)
	for _, s := range spans {
		a := attributesOf(s)
		if s.GetName() == "weir.decide" && (a["weir.decided"] == "0" || owner != "" && a["weir.owner"] != owner) {
			continue
		}
		got[chain(spans, s)] = s
	}
	for _, want := range chains {
		if got[want] == nil {
			return false, got
		}
	}
	return true, got
}

// A trace of three nodes has the owner's decision and the wait for strict durability under the hop of the node that was asked,
// and the standby's decision if the owner is cut off.
func TestTraceOfThreeNodes(t *testing.T) {
	c, url := collect(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: default\nrules: [{id: r, per: [user], durability: strict, limits: [{limit: 100000, window: 365d}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	network := &wire{conns: make(map[string][]net.Conn)}
	var infos []Info
	for _, id := range []string{"a", "b", "c"} {
		opts := testOptions(t)
		opts.ID, opts.Rules, opts.TraceEndpoint = id, rules, url
		if len(infos) > 0 {
			opts.Etcd = []string{infos[0].Etcd}
		}
		info, _, _ := startOn(t, Network{Dial: network.dial}, opts)
		infos = append(infos, info)
	}
	conn, err := grpc.NewClient(infos[0].GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client, user := weirv1.NewRateLimiterClient(conn), 0
	askUntil := func(owner string, chains ...string) map[string]*tracev1.Span {
		for last := user + 20_000; user < last; user++ {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", fmt.Sprintf("00-%032x-00000000000000aa-01", user+1))
			for range 3 { // of the second one the answer waits, unless the standby has acknowledged the first one by then
				if _, err := client.CheckRateLimit(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: fmt.Sprint("secret", user), TokensRequested: 9000}); err != nil {
					t.Fatal(err)
				}
			}
			if all, got := c.has(owner, chains...); all {
				return got
			}
		}
		t.Fatalf("no spans %q", chains)
		return nil
	}
	const hop = "weir.check > weir.hop owner"
	got := askUntil("", hop, hop+" > weir.decide owner", hop+" > weir.strict_wait")
	if a := attributesOf(got[hop+" > weir.decide owner"]); a["weir.source"] != "owner" || a["weir.owner"] != "b" && a["weir.owner"] != "c" || a["weir.groups"] == "" || a["weir.decided"] == "" {
		t.Errorf("the owner's span has %v", a)
	}
	awaitSettled(t, weirv1.NewClusterClient(conn)) // from then on c stands by for partitions of b as well
	network.cutOff(infos[1].GRPC)
	got = askUntil("b", "weir.check > weir.hop standby > weir.decide standby")
	if a := attributesOf(got["weir.check > weir.hop standby > weir.decide standby"]); a["weir.source"] == "" {
		t.Errorf("the standby's span has %v", a)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if strings.Contains(s.String(), "secret") {
			t.Errorf("a span names the user: %v", s)
		}
	}
}

// awaitSettled waits until each of three members decides in all its partitions.
func awaitSettled(t *testing.T, cluster weirv1.ClusterClient) {
	t.Helper()
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		nodes, err := cluster.ListNodes(t.Context(), &weirv1.ListNodesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(nodes.GetNodes()) == 3 && !slices.ContainsFunc(nodes.GetNodes(), func(n *weirv1.Node) bool {
			return n.GetActive() == 0 || n.GetWanted()+n.GetLeaving() > 0
		}) {
			return
		}
	}
}
