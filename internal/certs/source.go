package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Files are the three PEM files of a node: its certificate with the chain above it, the
// certificate's key, and the CA of the cluster. The file of the CA may hold several
// certificates, as while a CA is replaced.
type Files struct{ Cert, Key, CA string }

// lookEvery is how often a Source looks at its files.
const lookEvery = time.Second

// maxFile bounds a file of certificates.
const maxFile = 1 << 20

// material is what was read of Files at one time.
type material struct {
	cert tls.Certificate
	pool *x509.CertPool
	sums [3][sha256.Size]byte // of the files
}

// Source has the certificate of a node, and reads it again when its files change. A file that
// cannot be used leaves what was read before in force. It is safe for concurrent use.
type Source struct {
	files Files
	self  Name
	log   *slog.Logger

	current atomic.Pointer[material]
	reread  chan struct{} // holds one value when the files should be read at once
	open    openConns
	http    httpConns

	mu      sync.Mutex
	problem error // guarded by mu; of the files as they are now; nil if they are in force
}

// Open reads the certificate of the node that self names. The error says which file cannot be
// used, and why.
func Open(files Files, self Name, log *slog.Logger) (*Source, error) {
	s := &Source{files: files, self: self, log: log, reread: make(chan struct{}, 1)}
	m, err := s.read()
	if err != nil {
		return nil, err
	}
	s.current.Store(m)
	return s, nil
}

// Run reads the files again when they change, until ctx ends.
func (s *Source) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.reread:
		}
		s.look()
	}
}

// Reread has Run read the files at once. It does not block.
func (s *Source) Reread() {
	select {
	case s.reread <- struct{}{}:
	default:
	}
}

// Err returns why the files as they are now cannot be used, or nil. What was read before is then
// still in force.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Expires returns when the node's certificate ends.
func (s *Source) Expires() time.Time { return s.current.Load().cert.Leaf.NotAfter }

// AuthorityExpires returns when the certificate ends that this node's leads to.
func (s *Source) AuthorityExpires() (ends time.Time) {
	m := s.current.Load()
	between := x509.NewCertPool()
	for _, c := range intermediates(m.cert) {
		between.AddCert(c)
	}
	chains, err := m.cert.Leaf.Verify(x509.VerifyOptions{Roots: m.pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil { // it has ended since it was read
		return m.cert.Leaf.NotAfter
	}
	for _, chain := range chains {
		if root := chain[len(chain)-1]; root.NotAfter.After(ends) {
			ends = root.NotAfter
		}
	}
	return ends
}

// look reads the files, and puts them in force if they have changed and can be used.
func (s *Source) look() {
	m, err := s.read()
	s.mu.Lock()
	before := s.problem
	s.problem = err
	s.mu.Unlock()
	switch {
	case err != nil:
		if before == nil || before.Error() != err.Error() {
			s.log.Error("certificate not read again: the one before stays in force", "error", err)
		}
	case m.sums != s.current.Load().sums:
		s.current.Store(m)
		s.open.endRefused(m)
		s.http.endRefused(m)
		s.log.Info("certificate read again", "file", s.files.Cert, "expires", m.cert.Leaf.NotAfter)
	}
}

// read reads and checks the files.
func (s *Source) read() (*material, error) {
	m := new(material)
	var texts [3][]byte
	for i, f := range []struct{ option, path string }{{"tls-cert", s.files.Cert}, {"tls-key", s.files.Key}, {"tls-ca", s.files.CA}} {
		text, err := readFile(f.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.option, err)
		}
		texts[i], m.sums[i] = text, sha256.Sum256(text)
	}
	var err error
	if m.cert, err = tls.X509KeyPair(texts[0], texts[1]); err != nil {
		return nil, fmt.Errorf("tls-cert, tls-key: %s, %s: %w", s.files.Cert, s.files.Key, err)
	}
	m.pool = x509.NewCertPool()
	if !m.pool.AppendCertsFromPEM(texts[2]) {
		return nil, fmt.Errorf("tls-ca: %s has no certificate in PEM", s.files.CA)
	}
	if err := s.check(m); err != nil {
		return nil, fmt.Errorf("tls-cert: %s: %w", s.files.Cert, err)
	}
	return m, nil
}

// check refuses a certificate that other nodes would refuse.
func (s *Source) check(m *material) error {
	name, err := verify(m.cert.Leaf, intermediates(m.cert), m.pool, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return err
	}
	if name.Kind != Node || name.Cluster != s.self.Cluster || name.ID != s.self.ID {
		return fmt.Errorf("the certificate is for %v, and this is %v", name, s.self)
	}
	if _, err := verify(m.cert.Leaf, intermediates(m.cert), m.pool, x509.ExtKeyUsageClientAuth); err != nil {
		return fmt.Errorf("as a client of other nodes: %w", err)
	}
	return nil
}

// intermediates returns the certificates behind the first one of a chain.
func intermediates(cert tls.Certificate) []*x509.Certificate {
	var above []*x509.Certificate
	for _, der := range cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			above = append(above, c)
		}
	}
	return above
}

// verify returns the name in a certificate that the CA has issued for that use.
func verify(leaf *x509.Certificate, above []*x509.Certificate, pool *x509.CertPool, use x509.ExtKeyUsage) (Name, error) {
	between := x509.NewCertPool()
	for _, c := range above {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{use}})
	if err != nil {
		return Name{}, err
	}
	return nameOf(leaf)
}

// readFile reads a file of at most maxFile bytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, err
}

// pool reads the CA. Options names the file in errors, as OPTIONS-ca.
func (f Files) pool(options string) (*x509.CertPool, error) {
	text, err := readFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("%s-ca: %w", options, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s-ca: %s has no certificate in PEM", options, f.CA)
	}
	return pool, nil
}

// pair reads the certificate, nil if there is none. Options names the files in errors, as OPTIONS-cert.
func (f Files) pair(options string) (*tls.Certificate, error) {
	if f.Cert == "" && f.Key == "" {
		return nil, nil
	}
	if f.Cert == "" || f.Key == "" {
		return nil, fmt.Errorf("%s-cert and %s-key go together: they are %q and %q", options, options, f.Cert, f.Key)
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("%s-cert, %s-key: %q, %q: %w", options, options, f.Cert, f.Key, err)
	}
	return &pair, nil
}
