package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// put has a file of p be what a file of from is, at once.
func put(t *testing.T, p process.Certificates, name string, from ...process.Certificates) {
	t.Helper()
	var text []byte
	for _, c := range from {
		one, err := os.ReadFile(c.File(name))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, one...)
	}
	err := os.WriteFile(p.File(name+".new"), text, 0o600)
	if err == nil {
		err = os.Rename(p.File(name+".new"), p.File(name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// trustingBoth returns the configuration of the client admin of c, which trusts both CAs.
func trustingBoth(t *testing.T, c, other process.Certificates) *tls.Config {
	t.Helper()
	config := c.Config("client-admin")
	config.RootCAs = x509.NewCertPool()
	for _, ca := range []process.Certificates{c, other} {
		text, err := os.ReadFile(ca.File("ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		config.RootCAs.AppendCertsFromPEM(text)
	}
	return config
}

// dialTo returns a client on one connection to a node.
func dialTo(t *testing.T, n *process.Node, config *tls.Config) weirv1.RateLimiterClient {
	t.Helper()
	conn, err := grpc.NewClient(n.GRPC, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return weirv1.NewRateLimiterClient(conn)
}

// keptConn asks over HTTP on one connection, and fails once that has ended.
type keptConn struct {
	client *tls.Config
	url    string
	http   *http.Client
}

func (k *keptConn) ask() error {
	if k.http == nil {
		dialed := false
		k.http = &http.Client{Transport: &http.Transport{DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dialed {
				return nil, errors.New("the connection has ended")
			}
			dialed = true
			return (&tls.Dialer{Config: k.client}).DialContext(ctx, network, address)
		}}}
	}
	resp, err := k.http.Get(k.url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %w", resp.Status, err)
	}
	return nil
}

// The CA is replaced as docs/security.md says, while clients with certificates of the new one ask on connections that last: no check of
// theirs fails, and owners decide all. The connection of a client with a certificate of the CA that was taken out ends.
func TestCAIsReplaced(t *testing.T) {
	testform.NotInBrief(t)
	old, next := process.NewCertificates(t), process.NewCertificates(t)
	before, after := trustingBoth(t, old, next), trustingBoth(t, next, old)
	nodes := startSecuredThree(t, old, writeRules(t, lastingRule), "--peer-timeout", "4s") // a busy machine is no broken connection
	stays := dialTo(t, nodes[0], before)
	check := func(c weirv1.RateLimiterClient, name string) (*weirv1.RateLimitResponse, error) {
		ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
		defer cancel()
		return c.CheckRateLimit(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: name})
	}
	if _, err := check(stays, "before"); err != nil {
		t.Fatal(err)
	}
	overHTTP := &keptConn{client: before, url: "https://" + nodes[0].HTTP + "/v1/nodes"}
	if err := overHTTP.ask(); err != nil {
		t.Fatal(err)
	}
	put(t, old, "ca.crt", next, old) // the first step; old's files are those of the nodes
	process.Await(t, process.Patience, func() error {
		_, err := check(dialTo(t, nodes[2], after), "first")
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	var asked atomic.Int64
	for i, n := range nodes {
		c := dialTo(t, n, after)
		process.Await(t, process.Patience, func() error { // until the node reaches all owners
			for k := range 20 {
				if resp, err := check(c, fmt.Sprint("reached-", k)); err != nil || resp.GetSource() != weirv1.Source_SOURCE_OWNER {
					return fmt.Errorf("%v %w", resp, err)
				}
			}
			return nil
		})
		asking.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				resp, err := check(c, fmt.Sprintf("%d-%d", i, j))
				if err != nil || resp.GetSource() != weirv1.Source_SOURCE_OWNER {
					t.Errorf("check %d of node %s: %v %v", j, n.ID, resp, err)
					return
				}
				asked.Add(1)
			}
		})
	}
	for _, n := range nodes { // the second step
		put(t, old, "node-"+n.ID+".key", next)
		put(t, old, "node-"+n.ID+".crt", next)
	}
	process.Await(t, process.Patience, func() error {
		_, err := check(dialTo(t, nodes[1], next.Config("client-admin")), "second")
		return err
	})
	if err := overHTTP.ask(); err != nil {
		t.Errorf("the connection over HTTP, while both CAs are in force: %v", err)
	}
	put(t, old, "ca.crt", next) // the third step
	process.Await(t, process.Patience, func() error {
		if _, err := check(stays, "after"); err == nil {
			return fmt.Errorf("the connection of the old CA goes on after %d checks", asked.Load())
		}
		return nil
	})
	process.Await(t, process.Patience, func() error {
		if err := overHTTP.ask(); err == nil {
			return errors.New("the connection over HTTP of the old CA goes on")
		}
		return nil
	})
	cancel()
	asking.Wait()
	if asked.Load() < 50 {
		t.Errorf("%d checks", asked.Load())
	}
}
