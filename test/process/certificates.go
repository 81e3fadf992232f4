package process

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/client"
)

// Certificates are a directory that weir certs has made.
type Certificates struct {
	Dir string

	t testing.TB
}

// NewCertificates makes a CA and the certificates of nodes a, b and c, for the address of the test and other hosts.
func NewCertificates(t testing.TB, hosts ...string) Certificates {
	t.Helper()
	c := Certificates{filepath.Join(t.TempDir(), "certs"), t}
	c.Make("init", "--node", "a,b,c", "--host", strings.Join(append(hosts, Host(t)), ","))
	return c
}

// Make runs a command of weir certs.
func (c Certificates) Make(args ...string) {
	c.t.Helper()
	if out, err := exec.CommandContext(c.t.Context(), Binary(c.t), append(append([]string{"certs"}, args...), "--dir", c.Dir)...).CombinedOutput(); err != nil {
		c.t.Fatalf("weir certs %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// File returns the path of a file, such as node-a.crt.
func (c Certificates) File(name string) string { return filepath.Join(c.Dir, name) }

// Flags returns the flags of TLS with the certificate of that name, such as node-a.
func (c Certificates) Flags(name string) []string {
	return []string{"--tls-ca", c.File("ca.crt"), "--tls-cert", c.File(name + ".crt"), "--tls-key", c.File(name + ".key")}
}

// Config returns how a client with the certificate of that name connects; without one if it is empty.
func (c Certificates) Config(name string) *tls.Config {
	c.t.Helper()
	ca, err := os.ReadFile(c.File("ca.crt"))
	if err != nil {
		c.t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	config.RootCAs.AppendCertsFromPEM(ca)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(c.File(name+".crt"), c.File(name+".key"))
		if err != nil {
			c.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// Start starts the node of that id, with its certificate.
func (c Certificates) Start(id string, args ...string) *Node {
	c.t.Helper()
	how := How{Client: []client.Option{client.WithTLS(c.Config("client-admin"))}}
	return how.Start(c.t, append(append(c.Flags("node-"+id), "--id", id), args...)...)
}
