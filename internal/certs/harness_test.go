package certs

import (
	"log/slog"
	"os"
	"testing"
	"time"
)

func newAuthority(t *testing.T, cluster string) *Authority {
	t.Helper()
	a, err := CreateAuthority(t.TempDir(), cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, n Name) Files {
	t.Helper()
	pair, err := a.Issue(n, []string{"localhost", "127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return Files{Cert: pair.Cert, Key: pair.Key, CA: a.CertFile()}
}

func open(t *testing.T, files Files, id string) *Source {
	t.Helper()
	s, err := Open(files, Name{Cluster: "shop", Kind: Node, ID: id}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func node(id string) Name { return Name{Kind: Node, ID: id} }

func withCA(f Files, ca string) Files {
	f.CA = ca
	return f
}

// forCluster returns the same CA as the issuer of certificates for another cluster.
func forCluster(t *testing.T, a *Authority, cluster string) *Authority {
	t.Helper()
	cert := *a.cert
	cert.Subject.Organization = []string{cluster}
	other := &Authority{dir: t.TempDir(), cert: &cert, key: a.key}
	text, err := os.ReadFile(a.CertFile())
	if err == nil {
		err = os.WriteFile(other.CertFile(), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return other
}
