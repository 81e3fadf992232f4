package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// A limit that lasts for the whole test.
const lastingRule = "domain: default\nrules:\n  - {id: year, per: [user], limits: [{limit: 30, window: 365d}]}\n"

// startSecuredThree starts a cluster of three nodes with TLS.
func startSecuredThree(t *testing.T, p process.Certificates, rules string, args ...string) []*process.Node {
	t.Helper()
	etcd := process.StartEtcd(t)
	var nodes []*process.Node
	for _, id := range []string{"a", "b", "c"} {
		nodes = append(nodes, p.Start(id, append([]string{"--etcd", etcd.Endpoint, "--rules", rules}, args...)...))
	}
	process.AwaitMembers(t, process.Patience, nodes...)
	return nodes
}

// Three nodes with TLS count together, and clients reach them by gRPC, HTTP and the command line.
func TestTLS(t *testing.T) {
	p := process.NewCertificates(t)
	nodes := startSecuredThree(t, p, writeRules(t, lastingRule))
	for user := range 20 {
		granted := 0
		for i := range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			resp, err := nodes[i%3].Client.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: fmt.Sprintf("user-%d", user)})
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			switch resp.GetSource() {
			case weirv1.Source_SOURCE_OWNER:
			case weirv1.Source_SOURCE_RELAYED: // by the owner, which the node does not reach yet: it has just joined
			default:
				t.Fatalf("decided by %v", resp.GetSource())
			}
			if resp.GetAllowed() {
				granted++
			}
		}
		if granted != 30 {
			t.Errorf("user %d: %d of 30 were granted", user, granted)
		}
	}
	all, err := client.New(nodes[0].GRPC, client.WithTLS(p.Config("client-admin")), client.WithTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = all.Close() }()
	if d, err := all.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "user-0"}); err != nil || d.GetAllowed() {
		t.Errorf("the client of all nodes: %v %v", d, err)
	}
	if out, err := weirWith(t, p, "client-admin", "nodes", "--node", nodes[1].GRPC); err != nil || strings.Count(out, "ready") != 3 {
		t.Errorf("weir nodes: %v\n%s", err, out)
	}
	get := func(url, cert string) (code int, err error) {
		transport := &http.Transport{TLSClientConfig: p.Config(cert)}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Get(url)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	if code, err := get("https://"+nodes[0].HTTP+"/readyz", "client-admin"); err != nil || code != http.StatusOK {
		t.Errorf("readyz: %d %v", code, err)
	}
	if code, err := get("https://"+nodes[0].HTTP+"/metrics", ""); err != nil || code != http.StatusUnauthorized {
		t.Errorf("metrics without a certificate: %d %v", code, err)
	}
	if code, err := get("http://"+nodes[0].HTTP+"/readyz", ""); err == nil && code == http.StatusOK {
		t.Error("HTTP without TLS was answered")
	}
	for name, tc := range map[string]struct {
		cert string
		want string
	}{
		"without TLS":           {"", "pass --tls-ca if it has TLS"},
		"without a certificate": {"ca", "neither a certificate of a client nor a token"},
	} {
		if out, err := weirWith(t, p, tc.cert, "nodes", "--node", nodes[1].GRPC); err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("%s: %v\n%s, want %q", name, err, out, tc.want)
		}
	}
}

// weirWith runs a command with the files of TLS: none if cert is empty, only the CA if it is "ca".
func weirWith(t *testing.T, p process.Certificates, cert string, args ...string) (string, error) {
	switch cert {
	case "":
	case "ca":
		args = append(args, "--tls-ca", p.File("ca.crt"))
	default:
		args = append(args, p.Flags(cert)...)
	}
	out, err := exec.CommandContext(t.Context(), process.Binary(t), args...).CombinedOutput()
	return string(out), err
}

// A client that shows a certificate of another CA, or trusts another one, is told so. To make a second CA in the same place is refused.
func TestForeignClientCertificates(t *testing.T) {
	p, other := process.NewCertificates(t), process.NewCertificates(t)
	n := p.Start("a")
	shows := append([]string{"nodes", "--node", n.GRPC}, other.Flags("client-admin")...)
	shows = append(shows, "--tls-ca", p.File("ca.crt")) // the last one counts
	trusts := append([]string{"nodes", "--node", n.GRPC}, other.Flags("client-admin")...)
	for range 5 { // where the client notices is a matter of time
		for _, tc := range []struct {
			args []string
			want string
		}{
			{shows, "node " + n.GRPC + " does not accept the certificate in --tls-cert: x509: certificate signed by unknown authority"},
			{trusts, "the certificate of node " + n.GRPC + " is not of the CA in --tls-ca"},
		} {
			if out, err := exec.Command(process.Binary(t), tc.args...).CombinedOutput(); err == nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v: %s (%v), want %s", tc.args, out, err, tc.want)
			}
		}
	}
	out, err := exec.Command(process.Binary(t), "certs", "init", "--dir", p.Dir, "--node", "b").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "has a CA already") || !strings.Contains(string(out), "weir certs node ID") {
		t.Errorf("certs init: %s (%v)", out, err)
	}
}

// Ports of a node with TLS refuse versions before 1.3.
func TestTLS12IsRefused(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	admin := freeAddressOn(t, process.Host(t))
	n := p.Start("a", "--admin", admin)
	for port, address := range map[string]string{"gRPC": n.GRPC, "HTTP": n.HTTP, "admin": admin} {
		for version, refused := range map[uint16]bool{tls.VersionTLS12: true, tls.VersionTLS13: false} {
			config := p.Config("client-admin")
			config.MinVersion, config.MaxVersion, config.NextProtos = tls.VersionTLS12, version, []string{"h2"}
			conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), "protocol version not supported") {
				t.Errorf("%s with %s: %v, refused %v", port, tls.VersionName(version), err, refused)
			}
			if err == nil {
				_ = conn.Close()
			}
		}
	}
}

// A node that listens beyond loopback without TLS says so at every start, in its log and in its health.
func TestInsecureIsSaid(t *testing.T) {
	t.Parallel()
	n := process.Start(t, "--insecure", "--http", "0.0.0.0:0")
	for range 2 {
		if text := reasons(n); !strings.Contains(text, "this node serves beyond loopback without TLS (--insecure)") {
			t.Errorf("health says %q", text)
		}
		n.Signal(syscall.SIGTERM)
		if code := n.Wait(process.Patience); code != 0 {
			t.Fatalf("it ended with %d", code)
		}
		n.Restart()
	}
	if said := strings.Count(n.Log(), "without TLS"); said != 3 {
		t.Errorf("the log of three starts says it %d times: %s", said, n.Log())
	}
}

// Nodes with TLS and nodes without do not mix, and a node cannot take the certificate of another.
func TestTLSDoesNotMix(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	etcd := process.StartEtcd(t)
	first := p.Start("a", "--etcd", etcd.Endpoint)
	serve := func(args ...string) string {
		free := process.Host(t) + ":0"
		args = append([]string{"serve", "--etcd", etcd.Endpoint, "--data-dir", t.TempDir(), "--grpc", free, "--http", free}, args...)
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		out, err := exec.CommandContext(ctx, process.Binary(t), args...).CombinedOutput()
		if err == nil || ctx.Err() != nil {
			t.Errorf("weir %s serves", strings.Join(args, " "))
		}
		return string(out)
	}
	if out := serve("--id", "b"); !strings.Contains(out, "all nodes of a cluster need TLS, or none") || !strings.Contains(out, first.GRPC) {
		t.Errorf("a node without TLS: %s", out)
	}
	if out := serve(append(p.Flags("node-a"), "--id", "b")...); !strings.Contains(out, "and this is node") {
		t.Errorf("a node with the certificate of another: %s", out)
	}
	if out := serve("--id", "b", "--tls-cert", p.File("node-b.crt")); !strings.Contains(out, "needs --tls-key and --tls-ca") {
		t.Errorf("a certificate without a key: %s", out)
	}
	if out := serve(append(p.Flags("node-b"), "--id", "b", "--insecure")...); !strings.Contains(out, "does not listen without it") {
		t.Errorf("insecure with TLS: %s", out)
	}
}

// Clients cannot make the calls of nodes, not even with the role admin.
func TestTLSClientIsNoNode(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	n := p.Start("a")
	conn, err := grpc.NewClient(n.GRPC, grpc.WithTransportCredentials(credentials.NewTLS(p.Config("client-admin"))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = peerv1.NewPeerClient(conn).GetView(t.Context(), &peerv1.GetViewRequest{Caller: &peerv1.Caller{Id: "b", ToId: "a"}})
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "has no certificate of a node") {
		t.Error(err)
	}
}

func readCertificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("%s: %q", path, text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shows returns an error unless new connections to both ports of a node are shown this certificate, and its metric has when that ends.
func shows(t *testing.T, p process.Certificates, n *process.Node, want *x509.Certificate) error {
	t.Helper()
	for _, address := range []string{n.HTTP, n.GRPC} {
		config := p.Config("client-admin")
		config.NextProtos = []string{"h2"}
		conn, err := tls.Dial("tcp", address, config)
		if err != nil {
			t.Fatal(err)
		}
		shown := conn.ConnectionState().PeerCertificates[0]
		_ = conn.Close()
		if !shown.Equal(want) {
			return fmt.Errorf("%s shows the certificate with the serial number %v at %s, want %v", n.ID, shown.SerialNumber, address, want.SerialNumber)
		}
	}
	transport := &http.Transport{TLSClientConfig: p.Config("client-admin")}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + n.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `weir_certificate_expiry_timestamp_seconds{option="tls-cert"} `)
	value, _, _ := strings.Cut(rest, "\n")
	if ends, err := strconv.ParseFloat(value, 64); err != nil || int64(ends) != want.NotAfter.Unix() {
		return fmt.Errorf("the certificate of %s ends at %q by its metric, want %d", n.ID, value, want.NotAfter.Unix())
	}
	return nil
}

// Certificates are replaced while checks go on, and none of them fails. New connections are shown the new ones within 5 s. A broken file
// leaves the certificate before in force, and health says so.
func TestTLSRotation(t *testing.T) {
	testform.NotInBrief(t)
	p := process.NewCertificates(t)
	nodes := startSecuredThree(t, p, writeRules(t, lastingRule))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	var asked, failed atomic.Int64
	for i := range 6 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// A connection for each check, as connections that last are not concerned.
				c, err := client.NewNode(nodes[i%3].GRPC, client.WithTLS(p.Config("client-admin")))
				if err != nil {
					t.Error(err)
					return
				}
				ask, done := context.WithTimeout(context.Background(), process.Patience)
				_, err = c.Check(ask, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: fmt.Sprintf("%d-%d", i, n)})
				done()
				_ = c.Close()
				asked.Add(1)
				if err != nil {
					failed.Add(1)
					t.Errorf("check %d of %d: %v", n, i, err)
				}
			}
		})
	}
	before := make(map[string]*x509.Certificate)
	for _, n := range nodes {
		before[n.ID] = readCertificate(t, p.File("node-"+n.ID+".crt"))
		if err := shows(t, p, n, before[n.ID]); err != nil {
			t.Fatal(err)
		}
		for _, end := range []string{".crt", ".key"} { // moved, as operators do: never half a file
			if err := os.Rename(p.File("node-"+n.ID+end), p.File("old-"+n.ID+end)); err != nil {
				t.Fatal(err)
			}
		}
		p.Make("node", n.ID, "--host", process.Host(t))
	}
	nodes[1].Signal(syscall.SIGHUP)
	renewed := make(map[string]*x509.Certificate)
	for _, n := range nodes {
		renewed[n.ID] = readCertificate(t, p.File("node-"+n.ID+".crt"))
		if !renewed[n.ID].NotAfter.After(before[n.ID].NotAfter) {
			t.Fatalf("the certificates of %s both end at %v", n.ID, renewed[n.ID].NotAfter)
		}
		process.Await(t, 5*time.Second, func() error { return shows(t, p, n, renewed[n.ID]) })
	}
	if err := os.WriteFile(p.File("node-c.crt"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	process.Await(t, process.Patience, func() error {
		health, err := nodes[2].Client.Health(t.Context())
		if err != nil {
			return err
		}
		if text := fmt.Sprint(health.GetReasons()); !strings.Contains(text, "node-c.crt") {
			return fmt.Errorf("health: %s", text)
		}
		return nil
	})
	if err := shows(t, p, nodes[2], renewed["c"]); err != nil {
		t.Errorf("after a broken file: %v", err)
	}
	cancel()
	load.Wait()
	if asked.Load() < 50 || failed.Load() > 0 {
		t.Errorf("%d of %d checks failed", failed.Load(), asked.Load())
	}
}

// A member whose address shows a certificate of another CA is dropped, as one that is silent.
func TestMemberBehindAnotherCertificate(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	p, foreign := process.NewCertificates(t), process.NewCertificates(t)
	rules := writeRules(t, rulesPerYear(yearlyLimit))
	etcd := process.StartEtcd(t)
	args := []string{"--etcd", etcd.Endpoint, "--rules", rules, "--peer-timeout", "4s"}
	nodes := []*process.Node{p.Start("a", args...), p.Start("b", args...)}
	grpc := freeAddressOn(t, process.Host(t)) // for which its certificate is
	w := newWay(t, grpc)
	lost := p.Start("c", append(args, "--grpc", grpc, "--advertise", w.Address)...)
	other := foreign.Start("c", "--rules", rules)
	dropAndComeBack(t, nodes, lost, w.Address, "certificate signed by unknown authority", func() (heal func()) {
		w.redirect(t, other.GRPC)
		return func() { w.redirect(t, grpc) }
	})
}
