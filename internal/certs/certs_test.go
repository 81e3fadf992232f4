package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
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

func TestFilesArePrivateAndNeverOverwritten(t *testing.T) {
	a := newAuthority(t, "shop")
	files := issue(t, a, node("a"))
	for _, path := range []string{files.Cert, files.Key, files.CA, filepath.Join(a.dir, caKey)} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	before, _ := os.ReadFile(files.Key)
	if _, err := a.Issue(node("a"), nil, time.Now()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second certificate for a: %v", err)
	}
	if _, err := CreateAuthority(a.dir, "shop", time.Now()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second CA: %v", err)
	}
	if after, _ := os.ReadFile(files.Key); !slices.Equal(before, after) {
		t.Error("the key has changed")
	}
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Issue(node("a"), nil, time.Now()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a certificate without a key is there: %v", err)
	}
	if _, err := os.Stat(files.Key); !errors.Is(err, fs.ErrNotExist) {
		t.Error("half a pair was left behind")
	}
}

func TestInvalidNames(t *testing.T) {
	a := newAuthority(t, "shop")
	for _, tc := range []struct {
		name Name
		want string
	}{
		{Name{Kind: Node, ID: "a/b"}, `node "a/b"`},
		{Name{Kind: Node, ID: ""}, `node ""`},
		{Name{Kind: Node, ID: strings.Repeat("a", 129)}, "1 to 128"},
		{Name{Kind: Client, ID: "x", Role: "root"}, `role "root" is none of check, rules, admin`},
		{Name{Kind: Client, ID: "x:admin", Role: "check"}, `client "x:admin"`},
	} {
		if _, err := a.Issue(tc.name, nil, time.Now()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v", tc.name, err)
		}
	}
	if _, err := CreateAuthority(t.TempDir(), "a b", time.Now()); err == nil || !strings.Contains(err.Error(), `cluster "a b"`) {
		t.Error(err)
	}
}

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

// handshake connects a client by config, or another node, to the server of s, and returns what the
// server knows of it.
func handshake(t *testing.T, s *Source, auth ClientAuth, connect func(net.Conn) error) (credentials.AuthInfo, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	clientDone := make(chan error, 1)
	go func() {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			err = connect(conn)
		}
		clientDone <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, info, err := s.Credentials(auth, insecure.NewCredentials()).ServerHandshake(conn)
	_ = conn.Close()
	return info, errors.Join(err, <-clientDone)
}

func TestAllowedConnections(t *testing.T) {
	a, other := newAuthority(t, "shop"), newAuthority(t, "shop")
	server := open(t, issue(t, a, node("a")), "a")
	asClient := func(files Files, protocols ...string) func(net.Conn) error {
		return func(conn net.Conn) error {
			config, err := ClientConfig(files)
			if err != nil {
				return err
			}
			config.NextProtos, config.ServerName = protocols, "localhost"
			return tls.Client(conn, config).Handshake()
		}
	}
	asNode := func(s *Source) func(net.Conn) error {
		return func(conn net.Conn) error {
			_, err := s.Connect(t.Context(), conn)
			return err
		}
	}
	client := issue(t, a, Name{Kind: Client, ID: "x", Role: "check"})
	foreign, err := Open(issue(t, other, node("b")), Name{Cluster: "shop", Kind: Node, ID: "b"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		auth    ClientAuth
		connect func(net.Conn) error
		ok      bool
		node    string
	}{
		"node":                              {None, asNode(open(t, issue(t, a, node("b")), "b")), true, "b"},
		"node of another CA":                {None, asNode(foreign), false, ""},
		"client as a node":                  {None, asClient(client, peerProtocol), false, ""},
		"no certificate as a node":          {None, asClient(Files{CA: a.CertFile()}, peerProtocol), false, ""},
		"client":                            {Require, asClient(client, "h2"), true, ""},
		"client without certificate":        {Require, asClient(Files{CA: a.CertFile()}, "h2"), false, ""},
		"without certificate, none needed":  {None, asClient(Files{CA: a.CertFile()}, "h2"), true, ""},
		"without certificate, optional":     {Optional, asClient(Files{CA: a.CertFile()}, "h2"), true, ""},
		"certificate of another CA":         {Optional, asClient(withCA(issue(t, other, Name{Kind: Client, ID: "x", Role: "check"}), a.CertFile()), "h2"), false, ""},
		"another protocol":                  {None, asClient(Files{CA: a.CertFile()}, "http/1.1"), false, ""},
		"not encrypted":                     {None, func(c net.Conn) error { _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); return err }, false, ""},
		"certificate of a node as a client": {Require, asClient(issue(t, a, node("d")), "h2"), true, ""},
	} {
		info, err := handshake(t, server, tc.auth, tc.connect)
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tc.ok && info.(Info).NodeID() != tc.node {
			t.Errorf("%s: node %q", name, info.(Info).NodeID())
		}
	}
}

// A client of HTTP that has taken the port of gRPC is told so by an alert, rather than by the end of the connection.
func TestClientOfHTTPIsTold(t *testing.T) {
	a := newAuthority(t, "shop")
	server := open(t, issue(t, a, node("a")), "a")
	var told error
	if _, err := handshake(t, server, None, func(conn net.Conn) error {
		config, err := ClientConfig(Files{CA: a.CertFile()})
		if err != nil {
			return err
		}
		config.NextProtos, config.ServerName = []string{"http/1.1"}, "localhost"
		told = tls.Client(conn, config).Handshake()
		return told
	}); err == nil {
		t.Error("the server takes it")
	}
	if told == nil || !strings.Contains(told.Error(), "no application protocol") {
		t.Errorf("the client is told %v", told)
	}
}

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

// asClientOf returns how a client with a certificate of that authority connects.
func asClientOf(t *testing.T, a *Authority) func(net.Conn) error {
	t.Helper()
	config, err := ClientConfig(issue(t, a, Name{Kind: Client, ID: "x", Role: "check"}))
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos, config.ServerName = []string{"h2"}, "localhost"
	return func(conn net.Conn) error { return tls.Client(conn, config).Handshake() }
}

// A node connects to no other end than a node of its cluster.
func TestConnectOnlyToNodes(t *testing.T) {
	shop, other := newAuthority(t, "shop"), newAuthority(t, "other")
	a := open(t, issue(t, shop, node("a")), "a")
	stranger, err := Open(issue(t, other, node("b")), Name{Cluster: "other", Kind: Node, ID: "b"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(t, stranger, None, func(c net.Conn) error { _, err := a.Connect(t.Context(), c); return err }); err == nil {
		t.Error("connected to a node of another cluster")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.WriteString(conn, "no TLS")
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Connect(t.Context(), conn); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("connected to a node without TLS: %v", err)
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

// A client of etcd uses the files as they are at the time of a connection. Broken ones leave what was read before in
// force. The other end is verified by its host.
func TestEtcdCredentials(t *testing.T) {
	a, other := newAuthority(t, "shop"), newAuthority(t, "shop")
	server := open(t, issue(t, a, node("a")), "a")
	files := issue(t, a, node("b"))
	creds, err := EtcdCredentials(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	at := func(host string) (shown string, err error) {
		t.Helper()
		info, err := handshake(t, server, Require, func(conn net.Conn) error {
			_, _, err := creds.ClientHandshake(t.Context(), host+":2379", conn)
			return err
		})
		if err == nil {
			shown = info.(Info).State.PeerCertificates[0].SerialNumber.String()
		}
		return shown, err
	}
	first, err := at("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.2", "etcd.example"} {
		if _, err := at(host); err == nil || !strings.Contains(err.Error(), host) {
			t.Errorf("a server that is not %s: %v", host, err)
		}
	}
	for _, path := range []string{files.Cert, files.Key} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if shown, err := at("localhost"); shown != first || err != nil {
		t.Errorf("without its files: %q, %v, want %q", shown, err, first)
	}
	issue(t, a, node("b"))
	if shown, err := at("localhost"); shown == first || err != nil {
		t.Errorf("the new certificate is not shown: %v", err)
	}
	text, err := os.ReadFile(other.CertFile())
	if err == nil {
		err = os.WriteFile(files.CA, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := at("localhost"); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("by the new CA: %v", err)
	}
	for _, bad := range []Files{{Cert: "/no/cert", Key: "/no/key"}, {CA: "/no/ca"}} {
		if _, err := EtcdCredentials(bad, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "etcd-c") || !strings.Contains(err.Error(), "/no/") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// A client that a server refuses for its certificate says so, also if it has written more before it reads that.
func TestRefusedClientSaysWhy(t *testing.T) {
	a := newAuthority(t, "shop")
	files := issue(t, a, node("a"))
	creds, err := EtcdCredentials(Files{CA: files.CA}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", open(t, files, "a").HTTP(Require))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	refused := make(chan error)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = conn.(*tls.Conn).HandshakeContext(t.Context())
			conn.Close()
		}
		refused <- err
	}()
	raw, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn, _, err := creds.ClientHandshake(t.Context(), listener.Addr().String(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-refused; err == nil {
		t.Fatal("the server takes a client without a certificate")
	}
	for range 1000 { // the first writes succeed, until the server's kernel has answered them
		if _, err = conn.Write([]byte("more")); err != nil {
			break
		}
		runtime.Gosched()
	}
	if err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
		t.Errorf("error %v, not that of the server", err)
	}
}

// A connection of a client ends when the certificate expires that it was made with.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, err := CreateAuthority(dir, "shop", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		files := issue(t, a, Name{Kind: Client, ID: "x", Role: "check"})
		config, err := ClientConfig(files)
		if err != nil {
			t.Fatal(err)
		}
		config.NextProtos, config.ServerName = []string{"h2"}, "localhost"
		server := open(t, issue(t, a, node("a")), "a")
		near, far := net.Pipe()
		client := tls.Client(near, config)
		go func() { _ = client.Handshake() }()
		conn, _, err := server.Credentials(Require, insecure.NewCredentials()).ServerHandshake(far)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, client) }() // as its alert would block
		ended := make(chan struct{})
		go func() {
			_, _ = conn.Read(make([]byte, 1))
			close(ended)
		}()
		expires := client.ConnectionState().PeerCertificates[0].NotAfter // the server's, of the same moment
		time.Sleep(time.Until(expires) - time.Second)
		select {
		case <-ended:
			t.Fatal("the connection has ended early")
		default:
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the connection goes on")
		}
		_ = conn.Close()
	})
}
