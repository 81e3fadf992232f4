package linear

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"syscall"
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// replace makes another certificate for a node, in the place of the one before.
func replace(t *testing.T, c process.Certificates, id string) {
	t.Helper()
	for _, end := range []string{".crt", ".key"} { // moved, as operators do: never half a file
		if err := os.Rename(c.File("node-"+id+end), c.File("old-"+id+end)); err != nil {
			t.Fatal(err)
		}
	}
	c.Make("node", id, "--host", process.Host(t))
}

// serial returns the serial number of the certificate that a node shows.
func serial(t *testing.T, c process.Certificates, n *process.Node) string {
	t.Helper()
	conn, err := tls.Dial("tcp", n.HTTP, c.Config("client-admin"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// dialing asks a node over a new connection each time. It implements decider.
type dialing struct {
	addr   string
	config *tls.Config
}

// Check implements decider.
func (d dialing) Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	n, err := client.NewNode(d.addr, client.WithTLS(d.config))
	if err != nil {
		return nil, err
	}
	defer func() { _ = n.Close() }()
	return n.Check(ctx, req)
}

// CheckBatch implements decider.
func (d dialing) CheckBatch(ctx context.Context, reqs []*weirv1.RateLimitRequest) ([]*weirv1.RateLimitResponse, error) {
	n, err := client.NewNode(d.addr, client.WithTLS(d.config))
	if err != nil {
		return nil, err
	}
	defer func() { _ = n.Close() }()
	return n.CheckBatch(ctx, reqs)
}

// Histories are linearizable while the certificates of all nodes are replaced, for clients that stay connected and for
// those that connect for each call.
func TestRotation(t *testing.T) {
	testform.NotWhileRacing(t)
	form.FullOnly(t)
	all, c := kinds(), process.NewCertificates(t)
	s := newStage(t, all, c.Start)
	l := newLoad("rotation", all, s.deciders()...)
	for _, n := range s.nodes {
		l.with(dialing{n.GRPC, c.Config("client-admin")})
	}
	l.every = 5 * tick // connections cost more than checks
	l.start(t)
	wait(calm())
	for i, n := range s.nodes {
		before := serial(t, c, n)
		replace(t, c, n.ID)
		if i == 0 {
			n.Signal(syscall.SIGHUP)
		}
		process.Await(t, settledWithin, func() error {
			if serial(t, c, n) == before {
				return fmt.Errorf("%s still shows the certificate before", n.ID)
			}
			return nil
		})
		wait(calm() / 2)
	}
	l.finish()
	l.allDecided(t)
	l.verify(t)
	seedInto(t, l)
}
