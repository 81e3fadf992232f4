package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Lifetimes of certificates. Those of nodes and clients are replaced while nodes run.
const (
	caLifetime = 10 * 365 * 24 * time.Hour
	lifetime   = 365 * 24 * time.Hour
	// backdated is how far clocks of other machines may be behind.
	backdated = time.Hour
)

// Names of the authority's files in its directory.
const (
	caCert = "ca.crt"
	caKey  = "ca.key"
)

// Authority issues the certificates of one cluster.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is the two files of a certificate.
type Pair struct{ Cert, Key string }

// CreateAuthority makes the CA of a cluster in a directory, which is created if missing. It
// overwrites nothing: the error is an fs.ErrExist if there is a CA already.
func CreateAuthority(dir, cluster string, now time.Time) (*Authority, error) {
	if !word.MatchString(cluster) {
		return nil, fmt.Errorf("cluster %q is not 1 to 128 letters, digits, '.', '_' and '-'", cluster)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(now, caLifetime)
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: "Weir CA of cluster " + cluster, Organization: []string{cluster}}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if err := writePair(Pair{filepath.Join(dir, caCert), filepath.Join(dir, caKey)}, der, key); err != nil {
		return nil, err
	}
	return OpenAuthority(dir)
}

// OpenAuthority reads the CA that CreateAuthority has made in a directory.
func OpenAuthority(dir string) (*Authority, error) {
	pair := Pair{filepath.Join(dir, caCert), filepath.Join(dir, caKey)}
	loaded, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; make the CA with \"weir certs init --dir %s\"", err, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", pair.Cert, pair.Key, err)
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !loaded.Leaf.IsCA {
		return nil, fmt.Errorf("%s: not a CA that weir certs has made", pair.Cert)
	}
	return &Authority{dir: dir, cert: loaded.Leaf, key: key}, nil
}

// Cluster returns the cluster whose certificates the authority issues.
func (a *Authority) Cluster() string {
	if len(a.cert.Subject.Organization) == 0 {
		return ""
	}
	return a.cert.Subject.Organization[0]
}

// CertFile returns the file of the CA's certificate, which all nodes and clients need.
func (a *Authority) CertFile() string { return filepath.Join(a.dir, caCert) }

// Issue makes a certificate and its key in the authority's directory, under the kind and the id of
// the name: node-a.crt and node-a.key. Hosts are the host names and addresses under which clients
// ask a node. It overwrites nothing: the error is an fs.ErrExist if there is one of the name.
func (a *Authority) Issue(n Name, hosts []string, now time.Time) (Pair, error) {
	n.Cluster = a.Cluster()
	if err := n.validate(); err != nil {
		return Pair{}, err
	}
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	template, err := newTemplate(now, lifetime)
	if err != nil {
		return Pair{}, err
	}
	template.Subject = pkix.Name{CommonName: n.ID, Organization: []string{n.Cluster}}
	template.URIs = []*url.URL{n.uri()}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if n.Kind == Node {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		for _, host := range hosts {
			if ip := net.ParseIP(host); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else {
				template.DNSNames = append(template.DNSNames, host)
			}
		}
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, err
	}
	base := filepath.Join(a.dir, string(n.Kind)+"-"+n.ID)
	pair := Pair{base + ".crt", base + ".key"}
	return pair, writePair(pair, der, key)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// newTemplate returns what certificates have in common: a serial number of 127 random bits and
// their time.
func newTemplate(now time.Time, lives time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-backdated), NotAfter: now.Add(lives)}, nil
}

// writePair writes both files of a certificate with mode 0600, or none of them.
func writePair(pair Pair, der []byte, key *ecdsa.PrivateKey) error {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeNew(pair.Key, "PRIVATE KEY", private); err != nil {
		return err
	}
	if err := writeNew(pair.Cert, "CERTIFICATE", der); err != nil {
		return errors.Join(err, os.Remove(pair.Key))
	}
	return nil
}

// writeNew writes a PEM file that must not exist.
func writeNew(path, kind string, der []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = pem.Encode(f, &pem.Block{Type: kind, Bytes: der})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
