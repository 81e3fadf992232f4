package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/certs"
)

// expiresSoon is how long before its end a certificate is named in health.
const expiresSoon = 7 * 24 * time.Hour

func (o Options) badTLS() string {
	files := []struct{ option, path string }{{"tls-cert", o.TLSCert}, {"tls-key", o.TLSKey}, {"tls-ca", o.TLSCA}}
	var given, missing []string
	for _, f := range files {
		if f.path == "" {
			missing = append(missing, "--"+f.option)
		} else {
			given = append(given, "--"+f.option)
		}
	}
	switch {
	case len(given) == 0:
		return ""
	case len(missing) > 0:
		return fmt.Sprintf("%s needs %s as well", strings.Join(given, " with "), strings.Join(missing, " and "))
	case o.Insecure:
		return "a node with TLS does not listen without it: drop --insecure, or the three options of TLS"
	}
	return ""
}

func (o Options) badClientAuth() string {
	if o.TLSClientAuth == string(certs.Require) && o.TLSCert == "" {
		return "clients have no certificates without TLS: require needs --tls-cert, --tls-key and --tls-ca"
	}
	if slices.Contains(certs.ClientAuths, certs.ClientAuth(o.TLSClientAuth)) {
		return ""
	}
	return fmt.Sprintf("%q is none of none, optional and require", o.TLSClientAuth)
}

// openCerts reads the certificate of this node, if it has one.
func (n *node) openCerts(context.Context) (err error) {
	if n.opts.TLSCert == "" {
		if n.isExposed() {
			n.log.Warn("serving beyond loopback without TLS: the network can read and change everything", "grpc", n.opts.GRPC, "http", n.opts.HTTP, "admin", n.opts.Admin)
		}
		return nil
	}
	files := certs.Files{Cert: n.opts.TLSCert, Key: n.opts.TLSKey, CA: n.opts.TLSCA}
	n.certs, err = certs.Open(files, certs.Name{Cluster: n.opts.Cluster, Kind: certs.Node, ID: n.opts.ID}, n.log)
	if err != nil {
		return err
	}
	n.exportExpiry("tls-cert", n.certs.Expires)
	return nil
}

// exportExpiry makes a metric of when the certificate of an option ends.
func (n *node) exportExpiry(option string, ends func() time.Time) {
	promauto.With(n.metrics).NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "weir_certificate_expiry_timestamp_seconds",
		Help:        "When the certificate of an option of this node ends, in Unix seconds: tls-cert, rls-cert or xds-cert.",
		ConstLabels: prometheus.Labels{"option": option},
	}, func() float64 { return float64(ends().Unix()) })
}

// isExposed reports whether other machines reach this node's ports.
func (n *node) isExposed() bool {
	return slices.ContainsFunc([]string{n.opts.GRPC, n.opts.HTTP, n.opts.Admin}, exposed)
}

// exposed reports whether other machines reach what listens at an address.
func exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !isLoopback(host)
}

// dial connects to another node.
func (n *node) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := n.network.dial(ctx, address)
	if err != nil || n.certs == nil {
		return conn, err
	}
	return n.certs.Connect(ctx, conn)
}

// credentials secures the connections of the gRPC server.
func (n *node) credentials() credentials.TransportCredentials {
	creds := n.peers.Credentials(insecure.NewCredentials())
	if n.certs != nil {
		creds = n.certs.Credentials(certs.ClientAuth(n.opts.TLSClientAuth), creds)
	}
	return n.limiter.Credentials(creds)
}

// certProblems says what is wrong with how connections are secured, and with the record of changes.
func (n *node) certProblems(now time.Time) (problems []problem) {
	if err := n.audit.Err(); err != nil {
		problems = append(problems, problemAbout("the audit log cannot be written", "changes are not recorded: the audit log cannot be written: %v", err))
	}
	if n.auditFile != nil && n.auditFile.Err() != nil {
		problems = append(problems, problemAbout("the audit log was not opened again", "the audit log was not opened again, and changes are recorded in the file before: %v", n.auditFile.Err()))
	}
	if n.certs == nil {
		if n.isExposed() {
			problems = append(problems, problem{"no TLS beyond loopback", "this node serves beyond loopback without TLS (--insecure)"})
		}
		return problems
	}
	if err := n.certs.Err(); err != nil {
		problems = append(problems, problemAbout("the files of the certificate cannot be used", "the files of the certificate as they are now cannot be used, the certificate read before stays in force: %v", err))
	}
	if n.tokens != nil && n.tokens.Err() != nil {
		problems = append(problems, problemAbout("the file of tokens cannot be used", "the file of tokens as it is now cannot be used, the tokens before stay in force: %v", n.tokens.Err()))
	}
	if err := n.clusterTokens.Err(); err != nil {
		problems = append(problems, problemAbout("the access tokens in etcd cannot be used", "the access tokens in etcd as they are now cannot be used, those before stay in force: %v", err))
	}
	if names := n.clusterTokens.Returned(); names != "" {
		problems = append(problems, problemAbout("etcd has revoked tokens again", "etcd was restored: it has tokens again that were revoked: %s; they stay revoked on each node that has seen it, until weir tokens revoke NAME --node %s, or any other change of the tokens through this node, removes them from etcd", names, n.opts.callsAt()))
	}
	if ends := n.certs.Expires(); ends.Sub(now) < expiresSoon {
		problems = append(problems, problemAbout("the certificate of this node ends", "the certificate of this node ends at %v: put a new one in its place (weir certs node %s)", ends.UTC().Format(time.RFC3339), n.opts.ID))
	}
	return problems
}

var errMixed = errors.New("all nodes of a cluster need TLS, or none")

// refuseMixed refuses to start in a cluster whose nodes have TLS if this one has none, or the other way round.
func (n *node) refuseMixed(others []cluster.Node) error {
	for _, other := range others {
		if other.ID == n.opts.ID || other.TLS == (n.certs != nil) {
			continue
		}
		if other.TLS {
			return fmt.Errorf("tls-cert: node %q at %s has TLS, and this one has none: %w", other.ID, other.Address, errMixed)
		}
		return fmt.Errorf("tls-cert: node %q at %s has no TLS, and this one has: %w", other.ID, other.Address, errMixed)
	}
	return nil
}
