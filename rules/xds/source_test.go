package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/xdstest"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait for what must happen.
const patience = 20 * time.Second

func config(server string) Config {
	return Config{
		Server: server, NodeID: xdstest.NodeID, RetryMin: 10 * time.Millisecond, RetryMax: 100 * time.Millisecond, Now: time.Now,
		Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	}
}

// start runs a source until the test ends. Its changes come in the channel.
func start(t *testing.T, cfg Config) (*Source, <-chan *rules.Set) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan *rules.Set, 100)
	s.OnChange(func(set *rules.Set) { changes <- set })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, changes
}

func next(t *testing.T, changes <-chan *rules.Set) *rules.Set {
	t.Helper()
	select {
	case set := <-changes:
		return set
	case <-time.After(patience):
		t.Fatalf("no rules in %v", patience)
		return nil
	}
}

// until waits for a state that nothing signals.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	late, look := time.After(patience), time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !condition() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("not %s in %v", what, patience)
		}
	}
}

func policy(name, domain string, perHour uint32) *rlsconf.RateLimitConfig {
	return &rlsconf.RateLimitConfig{Name: name, Domain: domain, Descriptors: []*rlsconf.RateLimitDescriptor{
		{Key: "k", RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_HOUR, RequestsPerUnit: perHour}},
	}}
}

func limitOf(t *testing.T, set *rules.Set, domain string) int64 {
	t.Helper()
	r := set.Rule(domain, "k")
	if r == nil {
		return -1
	}
	return r.Limits[0].Limit
}

// generate makes policies of everything that a resource can say: n limits over some domains.
func generate(random *rand.Rand, n int) (configs []*rlsconf.RateLimitConfig, asked [][]rules.Attribute) {
	units := []rlsconf.RateLimitUnit{
		rlsconf.RateLimitUnit_SECOND, rlsconf.RateLimitUnit_MINUTE, rlsconf.RateLimitUnit_HOUR, rlsconf.RateLimitUnit_DAY,
		rlsconf.RateLimitUnit_WEEK, rlsconf.RateLimitUnit_MONTH, rlsconf.RateLimitUnit_YEAR,
	}
	for d := range 10 {
		configs = append(configs, &rlsconf.RateLimitConfig{Name: fmt.Sprintf("gateway/listener-%d", d), Domain: fmt.Sprintf("domain-%d", d)})
	}
	for i := range n {
		l := &rlsconf.RateLimitPolicy{Unit: units[random.IntN(len(units))], RequestsPerUnit: random.Uint32()}
		switch random.IntN(5) {
		case 0:
			l = &rlsconf.RateLimitPolicy{Unlimited: true}
		case 1:
			l.Name, l.Replaces = fmt.Sprintf("limit-%d", i), []*rlsconf.RateLimitReplace{{Name: "limit-0"}, {Name: "other: one"}}
		}
		value := []string{fmt.Sprintf("value-%d", i), "", fmt.Sprintf("path-%d-*", i), "yes", "0x10", "ünï: #code"}[random.IntN(6)]
		leaf := &rlsconf.RateLimitDescriptor{
			Key: fmt.Sprintf("key_%d", i), Value: value, RateLimit: l,
			ShadowMode: random.IntN(4) == 0, QuotaMode: random.IntN(4) == 0, DetailedMetric: random.IntN(4) == 0,
		}
		if random.IntN(3) == 0 {
			leaf.Metadata, _ = structpb.NewStruct(map[string]any{"a": 1.5, "b": []any{"x", true, nil}, "c": map[string]any{"d": "no"}})
		}
		entries := []rules.Attribute{{Key: leaf.GetKey(), Value: strings.ReplaceAll(value, "*", "star")}}
		for range random.IntN(4) {
			leaf = &rlsconf.RateLimitDescriptor{Key: "above " + leaf.GetKey(), Descriptors: []*rlsconf.RateLimitDescriptor{leaf}}
			entries = append([]rules.Attribute{{Key: leaf.GetKey(), Value: "any"}}, entries...)
		}
		c := configs[random.IntN(len(configs))]
		c.Descriptors = append(c.Descriptors, leaf)
		asked = append(asked, entries)
	}
	return configs, asked
}

// files writes resources as files of envoyproxy/ratelimit. JSON is YAML, and its names are those of the format.
func files(t *testing.T, configs []*rlsconf.RateLimitConfig) string {
	t.Helper()
	dir := t.TempDir()
	for i, c := range configs {
		c = proto.CloneOf(c)
		c.Name = ""
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// 500 policies mean the same by xDS and in files: every request finds the same limit and the same counter.
func TestPoliciesMeanWhatFilesMean(t *testing.T) {
	const policies = 500
	configs, asked := generate(rand.New(rand.NewPCG(1, 2)), policies)
	want, err := rules.Load(files(t, configs))
	if err != nil {
		t.Fatal(err)
	}
	server := xdstest.New(t, nil)
	server.Start(t)
	server.Set(t, "1", configs...)
	_, changes := start(t, config(server.Address))
	got := next(t, changes)
	if got.Len() != policies || got.Hash() != want.Hash() {
		t.Errorf("%d rules of revision %s, want %d of %s", got.Len(), got.Hash(), want.Len(), want.Hash())
	}
	h := ring.NewHasher([ring.SecretSize]byte{1})
	matched := 0
	for _, c := range configs {
		for _, entries := range asked {
			gotRule, gotKey := got.Descriptors(c.GetDomain()).Match(h, entries)
			wantRule, wantKey := want.Descriptors(c.GetDomain()).Match(h, entries)
			if (gotRule == nil) != (wantRule == nil) {
				t.Fatalf("%s %v: %v, want %v", c.GetDomain(), entries, gotRule, wantRule)
			}
			if gotRule == nil {
				continue
			}
			matched++
			if gotKey != wantKey || !reflect.DeepEqual(gotRule.Spec(), wantRule.Spec()) {
				t.Errorf("%s %v: %v and %v, want %v and %v", c.GetDomain(), entries, gotRule.Spec(), gotKey, wantRule.Spec(), wantKey)
			}
		}
	}
	if matched != policies {
		t.Errorf("%d requests have a limit, want %d", matched, policies)
	}
}

// A change is in force within a second, and the server knows.
func TestChangeIsInForceWithinASecond(t *testing.T) {
	server := xdstest.New(t, nil)
	server.Start(t)
	cfg := config(server.Address)
	cfg.Metadata, cfg.Headers = map[string]string{"zone": "z1"}, map[string]string{"x-tenant": "t1"}
	s, changes := start(t, cfg)
	if subscription := server.Subscribed(t); subscription.GetTypeUrl() != TypeURL || subscription.GetNode().GetMetadata().GetFields()["zone"].GetStringValue() != "z1" ||
		len(subscription.GetResourceNames()) != 0 || subscription.GetVersionInfo() != "" {
		t.Errorf("subscribed by %v", subscription)
	}
	select {
	case <-s.Received():
		t.Error("rules are there before the server has sent any")
	default:
	}
	server.Set(t, "1", policy("a", "d", 1))
	next(t, changes)
	server.Accepted(t, "1")
	<-s.Received()
	for n := range uint32(20) {
		before := time.Now()
		server.Set(t, fmt.Sprint(n+2), policy("a", "d", n+2), policy("b", "e", n))
		set := next(t, changes)
		if took := time.Since(before); took > time.Second {
			t.Errorf("a change was in force after %v", took)
		}
		if s.Set() != set || limitOf(t, set, "d") != int64(n+2) || limitOf(t, set, "e") != int64(n) {
			t.Fatalf("after change %d: %v", n, set.Documents())
		}
		server.Accepted(t, fmt.Sprint(n+2))
	}
	server.Set(t, "none") // no resources are no limits
	if set := next(t, changes); set.Len() != 0 {
		t.Errorf("%d rules without resources", set.Len())
	}
	if _, _, err := s.Change(t.Context(), false, nil); !errors.Is(err, rules.ErrReadOnly) || !strings.Contains(err.Error(), server.Address) {
		t.Errorf("a change through the node: %v", err)
	}
}

// Bad resources are refused whole, with what is wrong, and named; the last good ones stay until there are new ones.
func TestBadResourcesAreRefused(t *testing.T) {
	server := xdstest.New(t, nil)
	server.Start(t)
	server.Set(t, "1", policy("a", "d", 5))
	s, changes := start(t, config(server.Address))
	good := next(t, changes)
	for name, bad := range map[string]struct {
		configs []*rlsconf.RateLimitConfig
		want    string
	}{
		"unit":   {[]*rlsconf.RateLimitConfig{policy("a", "d", 6), {Name: "bad", Domain: "e", Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "k", Value: "v", RateLimit: &rlsconf.RateLimitPolicy{RequestsPerUnit: 1}}}}}, `bad: rule "k_v": rate_limit.unit: invalid rate limit unit "UNKNOWN"`},
		"domain": {[]*rlsconf.RateLimitConfig{{Name: "bad"}}, "bad: domain: config file cannot have empty domain"},
		"twice":  {[]*rlsconf.RateLimitConfig{policy("a", "d", 6), policy("bad", "d", 7)}, `bad: domain: duplicate domain "d"`},
		"long":   {[]*rlsconf.RateLimitConfig{{Name: "bad", Domain: "e", Descriptors: []*rlsconf.RateLimitDescriptor{{Key: strings.Repeat("ü", 600)}}}}, "1200 bytes, more than 1024"},
		"nested": {[]*rlsconf.RateLimitConfig{{Name: "bad", Domain: "e", Descriptors: nest(maxNested + 1)}}, "bad: the descriptors stand one in the other more than 64 deep"},
	} {
		server.Set(t, name, bad.configs...)
		nack := server.Refused(t)
		if detail := nack.GetErrorDetail().GetMessage(); !strings.Contains(detail, bad.want) || nack.GetErrorDetail().GetCode() != 3 {
			t.Errorf("%s: %v, want %s", name, nack.GetErrorDetail(), bad.want)
		}
		if v := nack.GetVersionInfo(); v == name {
			t.Errorf("%s: the NACK says that this version is in force", name)
		}
		if s.Set() != good {
			t.Errorf("%s: %v is in force", name, s.Set().Documents())
		}
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v", name, err)
		}
		server.Set(t, "good after "+name, policy("a", "d", 5))
		server.Accepted(t, "good after "+name)
		if err := s.Err(); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	// The same ones are as bad after good ones as before.
	server.Set(t, "bad", policy("a", "", 1))
	server.Refused(t)
	server.Set(t, "good", policy("a", "d", 5))
	server.Accepted(t, "good")
	server.Set(t, "bad again", policy("a", "", 1))
	if detail := server.Refused(t).GetErrorDetail().GetMessage(); detail != "a: domain: config file cannot have empty domain" {
		t.Errorf("again: %s", detail)
	}
}

func nest(depth int) []*rlsconf.RateLimitDescriptor {
	if depth == 0 {
		return nil
	}
	return []*rlsconf.RateLimitDescriptor{{Key: "k", Descriptors: nest(depth - 1)}}
}

// A server answers a NACK with what it has. Both sides then rest before the next.
func TestRefusalsAreFew(t *testing.T) {
	server := xdstest.New(t, nil)
	server.Start(t)
	server.Set(t, "bad", policy("a", "", 5), policy("b", "", 6), policy("c", "", 7))
	var loads strings.Builder
	cfg := config(server.Address)
	cfg.Logger = slog.New(slog.NewTextHandler(&loads, nil))
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	first := server.Refused(t)
	before := time.Now()
	const more = 3
	for range more {
		if again := server.Refused(t); again.GetErrorDetail().GetMessage() != first.GetErrorDetail().GetMessage() {
			t.Errorf("%v after %v", again.GetErrorDetail(), first.GetErrorDetail())
		}
	}
	if took := time.Since(before); took < more*nackPause/2 {
		t.Errorf("%d refusals of the same in %v", more, took)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := strings.Count(loads.String(), "rules refused"); n != 1 {
		t.Errorf("refusals are logged %d times: %s", n, loads.String())
	}
}

// A server that is away at the start, and again later, is awaited; what it sent last stays. One that was started again
// counts its versions from the beginning.
func TestServerAway(t *testing.T) {
	server := xdstest.New(t, nil)
	s, changes := start(t, config(server.Address))
	until(t, "away", func() bool { return s.Disconnected() != nil && !errors.Is(s.Disconnected(), errNotYet) })
	if err := s.Disconnected(); !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("away: %v", err)
	}
	for round := range uint32(3) {
		server.Start(t)
		server.Set(t, "1", policy("a", "d", round+1))
		if set := next(t, changes); limitOf(t, set, "d") != int64(round+1) {
			t.Fatalf("round %d: %v", round, set.Documents())
		}
		if err := s.Disconnected(); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		server.Stop()
		until(t, "away again", func() bool { return s.Disconnected() != nil })
		if got := limitOf(t, s.Set(), "d"); got != int64(round+1) || s.Err() != nil {
			t.Errorf("round %d: away, the limit is %d, %v", round, got, s.Err())
		}
	}
}

// Reread connects again without a wait.
func TestRereadConnectsAgain(t *testing.T) {
	server := xdstest.New(t, nil)
	server.Start(t)
	server.Set(t, "1", policy("a", "d", 1))
	cfg := config(server.Address)
	cfg.RetryMin, cfg.RetryMax = time.Hour, time.Hour
	s, changes := start(t, cfg)
	next(t, changes)
	server.Subscribed(t)
	s.Reread()
	server.Subscribed(t)
	server.Accepted(t, "1")
	server.Stop()
	until(t, "away", func() bool { return s.Disconnected() != nil })
	server.Start(t)
	server.Set(t, "1", policy("a", "d", 2))
	s.Reread() // ends the wait of an hour
	next(t, changes)
}

// The waits between attempts grow to the bound, and are never longer.
func TestRetriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const least, most = time.Second, 20 * time.Second
		var at []time.Time
		cfg := config("xds.example:18000")
		cfg.RetryMin, cfg.RetryMax = least, most
		cfg.Dial = func(context.Context, string) (net.Conn, error) {
			at = append(at, time.Now())
			return nil, errors.New("no route")
		}
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		bound, distinct := least, make(map[time.Duration]bool)
		for i := 1; i < len(at); i++ {
			wait := at[i].Sub(at[i-1])
			if wait < bound/2 || wait > bound+time.Millisecond {
				t.Errorf("wait %d is %v, not between %v and %v", i, wait, bound/2, bound)
			}
			distinct[wait] = true
			bound = min(2*bound, most)
		}
		if len(at) < 30 || len(distinct) < len(at)/2 {
			t.Errorf("%d attempts with %d different waits", len(at), len(distinct))
		}
		if err := s.Disconnected(); err == nil || !strings.Contains(err.Error(), "no route") {
			t.Errorf("%v", err)
		}
	})
}

// TLS is verified by the CA and a name, and a server that asks for a certificate gets one.
func TestTLS(t *testing.T) {
	authority, err := certs.CreateAuthority(t.TempDir(), "c", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := certs.CreateAuthority(t.TempDir(), "c", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issue := func(a *certs.Authority, kind certs.Kind, id string, hosts ...string) (tls.Certificate, *x509.CertPool) {
		t.Helper()
		name := certs.Name{Cluster: "c", Kind: kind, ID: id}
		if kind == certs.Client {
			name.Role = "check"
		}
		pair, err := a.Issue(name, hosts, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(a.CertFile())
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		return cert, pool
	}
	serverCert, pool := issue(authority, certs.Node, "envoy-gateway", "envoy-gateway")
	clientCert, _ := issue(authority, certs.Client, "ratelimit")
	strangeCert, strangePool := issue(other, certs.Client, "stranger")
	for name, tc := range map[string]struct {
		auth tls.ClientAuthType
		cfg  *tls.Config
		bad  string // empty if the rules come
	}{
		"TLS":                          {tls.NoClientCert, &tls.Config{RootCAs: pool, ServerName: "envoy-gateway"}, ""},
		"mutual TLS":                   {tls.RequireAndVerifyClientCert, &tls.Config{RootCAs: pool, ServerName: "envoy-gateway", Certificates: []tls.Certificate{clientCert}}, ""},
		"no certificate of the client": {tls.RequireAndVerifyClientCert, &tls.Config{RootCAs: pool, ServerName: "envoy-gateway"}, "certificate required"},
		"another CA of the client":     {tls.RequireAndVerifyClientCert, &tls.Config{RootCAs: pool, ServerName: "envoy-gateway", Certificates: []tls.Certificate{strangeCert}}, "certificate"},
		"another CA of the server":     {tls.NoClientCert, &tls.Config{RootCAs: strangePool, ServerName: "envoy-gateway"}, "unknown authority"},
		"another name":                 {tls.NoClientCert, &tls.Config{RootCAs: pool, ServerName: "other"}, "not other"},
		"no name":                      {tls.NoClientCert, &tls.Config{RootCAs: pool}, "127.0.0.1"},
		"no TLS":                       {tls.NoClientCert, nil, "error reading server preface"},
	} {
		t.Run(name, func(t *testing.T) {
			server := xdstest.New(t, credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{serverCert}, ClientAuth: tc.auth, ClientCAs: pool}))
			server.Start(t)
			server.Set(t, "1", policy("a", "d", 7))
			cfg := config(server.Address)
			if tc.cfg != nil {
				cfg.TLS = func() (*tls.Config, error) { return tc.cfg, nil }
			}
			s, changes := start(t, cfg)
			if tc.bad != "" {
				until(t, "refused", func() bool {
					err := s.Disconnected()
					return err != nil && strings.Contains(err.Error(), tc.bad)
				})
				return
			}
			if set := next(t, changes); limitOf(t, set, "d") != 7 {
				t.Errorf("%v", set.Documents())
			}
		})
	}
	cfg := config("127.0.0.1:1")
	cfg.TLS = func() (*tls.Config, error) { return nil, errors.New("xds-ca: no such file") }
	s, _ := start(t, cfg)
	until(t, "without files", func() bool { return s.Disconnected().Error() == "xds-ca: no such file" })
}

// What is no RateLimitConfig is named by its place.
func TestStrangeResources(t *testing.T) {
	good, err := anypb.New(policy("a", "d", 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = documents([]*anypb.Any{good, {TypeUrl: TypeURL, Value: []byte{0xff}}, {TypeUrl: "type.googleapis.com/google.protobuf.Struct"}})
	const want = "resource 2: is no RateLimitConfig: "
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "\nresource 3: is no RateLimitConfig: ") {
		t.Errorf("%v", err)
	}
}

// Servers send resources in any order: it tells them apart no more than it changes what they mean.
func TestOrderDoesNotMatter(t *testing.T) {
	var resources []*anypb.Any
	for _, name := range []string{"c", "a", "b"} {
		resource, err := anypb.New(policy(name, "of "+name, 1))
		if err != nil {
			t.Fatal(err)
		}
		resources = append(resources, resource)
	}
	other := []*anypb.Any{resources[1], resources[2], resources[0]}
	if hash(resources) != hash(other) || hash(resources) == hash(other[1:]) || hash(nil) == hash(other[:1]) {
		t.Error("the hash depends on the order, or not on the resources")
	}
	docs, err := documents(resources)
	if err != nil || docs[0].Name != "a" || docs[1].Domain != "of b" || docs[2].Name != "c" {
		t.Errorf("%v, %v", docs, err)
	}
}

// What a NACK says is bounded, and ends at a character.
func TestDetailIsBounded(t *testing.T) {
	detail := invalid(errors.New("x" + strings.Repeat("ü", maxDetail))).GetMessage()
	if len(detail) < maxDetail || len(detail) > maxDetail+len("...") || strings.Trim(detail, "xü.") != "" {
		t.Errorf("%d bytes: ...%q", len(detail), detail[len(detail)-10:])
	}
}
