package certs

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestUnusableFiles(t *testing.T) {
	a, other := newAuthority(t, "shop"), newAuthority(t, "other")
	good := issue(t, a, node("a"))
	replace := func(change func(f *Files)) Files {
		f := good
		change(&f)
		return f
	}
	old, err := a.Issue(node("old"), nil, time.Now().Add(-2*lifetime))
	if err != nil {
		t.Fatal(err)
	}
	rubbish := filepath.Join(t.TempDir(), "rubbish")
	if err := os.WriteFile(rubbish, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		files Files
		want  string
	}{
		"no file":           {replace(func(f *Files) { f.Cert = "/no/such" }), "tls-cert: "},
		"no CA":             {replace(func(f *Files) { f.CA = rubbish }), "has no certificate in PEM"},
		"another CA":        {replace(func(f *Files) { f.CA = other.CertFile() }), "unknown authority"},
		"another key":       {replace(func(f *Files) { f.Key = issue(t, a, node("b")).Key }), "private key does not match"},
		"another node":      {issue(t, a, node("c")), `is for node "c" of cluster "shop", and this is node "a" of cluster "shop"`},
		"another cluster":   {issue(t, other, node("a")), `is for node "a" of cluster "other"`},
		"of a client":       {issue(t, a, Name{Kind: Client, ID: "a", Role: "admin"}), "tls-cert: "},
		"expired":           {replace(func(f *Files) { f.Cert, f.Key = old.Cert, old.Key }), "expired"},
		"no name in it":     {replace(func(f *Files) { f.Cert, f.Key = a.CertFile(), filepath.Join(a.dir, caKey) }), "names no node or client of Weir"},
		"more than allowed": {replace(func(f *Files) { f.CA = "/dev/zero" }), "has more than 1048576 bytes"},
	} {
		_, err := Open(tc.files, Name{Cluster: "shop", Kind: Node, ID: "a"}, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// Changed files are in force for the next connection; broken ones leave what was read before.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, "shop") // at the time of the bubble
		files := issue(t, a, node("a"))
		s := open(t, files, "a")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.Run(ctx); close(ended) }()
		first := s.current.Load().cert.Leaf.SerialNumber

		broken, _ := os.ReadFile(files.Cert)
		if err := os.WriteFile(files.Cert, broken[:len(broken)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lookEvery)
		synctest.Wait()
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), files.Cert) {
			t.Errorf("broken file: %v", err)
		}
		if got := s.current.Load().cert.Leaf.SerialNumber; got.Cmp(first) != 0 {
			t.Error("a broken file is in force")
		}

		for _, path := range []string{files.Cert, files.Key} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		issue(t, a, node("a"))
		s.Reread()
		synctest.Wait()
		if err := s.Err(); err != nil {
			t.Error(err)
		}
		if got := s.current.Load().cert.Leaf.SerialNumber; got.Cmp(first) == 0 {
			t.Error("the new certificate is not in force")
		}
		cancel()
		<-ended
	})
}

// Clusters may share a CA, and are apart all the same.
func TestClustersWithOneCA(t *testing.T) {
	shop := newAuthority(t, "shop")
	other := forCluster(t, shop, "other")
	server := open(t, issue(t, shop, node("a")), "a")
	stranger, err := Open(issue(t, other, node("b")), Name{Cluster: "other", Kind: Node, ID: "b"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var byCaller error
	connect := func(conn net.Conn) error { _, byCaller = server.Connect(t.Context(), conn); return nil }
	_, _ = handshake(t, stranger, Require, connect) // what the other end says does not matter
	_, ofClient := handshake(t, server, Require, asClientOf(t, other))
	for what, err := range map[string]error{"a node that connects": byCaller, "a client": ofClient} {
		if err == nil || !strings.Contains(err.Error(), "of cluster") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
