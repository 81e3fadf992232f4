package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// startSecuredEtcd starts an etcd program whose clients need a certificate. The user weir with the password in the file
// may touch what is below /weir/default/ and nothing else.
func startSecuredEtcd(t *testing.T, p process.Certificates) (e *etcdProgram, passwordFile string) {
	t.Helper()
	etcdctl := findEtcd(t, "etcdctl")
	p.Make("node", "etcd", "--host", process.Host(t))
	e = newEtcdProgram(t)
	e.scheme = "https"
	e.flags = []string{"--cert-file", p.File("node-etcd.crt"), "--key-file", p.File("node-etcd.key"), "--trusted-ca-file", p.File("ca.crt"), "--client-cert-auth"}
	e.start()
	ctl := func(args ...string) error {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, etcdctl, append([]string{"--endpoints", e.url(), "--cacert", p.File("ca.crt"),
			"--cert", p.File("client-admin.crt"), "--key", p.File("client-admin.key")}, args...)...)
		cmd.Env = []string{}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("etcdctl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	e.await(func() error { return ctl("endpoint", "health") })
	for _, line := range []string{
		"user add root:secret", "user grant-role root root",
		"role add weir", "role grant-permission --prefix=true weir readwrite /weir/default/",
		"user add weir:pass word", "user grant-role weir weir", "auth enable",
	} {
		args := strings.SplitN(line, " ", 3)
		if !strings.Contains(line, ":") {
			args = strings.Fields(line)
		}
		if err := ctl(args...); err != nil {
			t.Fatal(err)
		}
	}
	passwordFile = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(passwordFile, []byte("pass word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return e, passwordFile
}

// Nodes register in an etcd that wants certificates and users, with a user who may touch their cluster only. They keep
// their places while that etcd restarts and forgets who they are.
func TestEtcdWithTLSAndUsers(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	etcd, passwordFile := startSecuredEtcd(t, p)
	secured := []string{"--etcd", etcd.url(), "--etcd-user", "weir", "--etcd-password-file", passwordFile}
	nodes := []*process.Node{
		p.Start("a", secured...), // shows its own certificate
		p.Start("b", append([]string{"--etcd-ca", p.File("ca.crt"), "--etcd-cert", p.File("client-admin.crt"), "--etcd-key", p.File("client-admin.key")}, secured...)...),
	}
	process.AwaitMembers(t, process.Patience, nodes...)
	apply := func(id string) {
		t.Helper()
		rules := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(rules, []byte(strings.Replace(lastingRule, "year", id, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		process.Await(t, process.Patience, func() error {
			out, err := weirWith(t, p, "client-admin", "rules", "apply", "-f", rules, "--node", nodes[0].GRPC)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		})
		process.Await(t, process.Patience, func() error {
			resp, err := nodes[1].Client.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
			if err != nil || !strings.Contains(fmt.Sprint(resp), id) {
				return fmt.Errorf("rule %s: %v, %w", id, resp, err)
			}
			return nil
		})
	}
	apply("first")
	etcd.kill()
	process.Await(t, process.Patience, func() error {
		if text := reasons(nodes[0]); !strings.Contains(text, "etcd") {
			return fmt.Errorf("health says %q", text)
		}
		return nil
	})
	etcd.start()
	apply("second")
	process.AwaitMembers(t, process.Patience, nodes...)
	nodes[1].Kill()
	if out, err := weirWith(t, p, "client-admin", "nodes", "remove", "b", "--node", nodes[0].GRPC); err != nil {
		t.Errorf("weir nodes remove: %v\n%s", err, out)
	}
	process.AwaitMembers(t, process.Patience, nodes[0])

	wrong := filepath.Join(t.TempDir(), "wrong")
	if err := os.WriteFile(wrong, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	own, files := p.Flags("node-c"), []string{"--etcd-ca", p.File("ca.crt"), "--etcd-cert", p.File("node-c.crt"), "--etcd-key", p.File("node-c.key")}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"wrong password":     {append(own, "--etcd", etcd.url(), "--etcd-user", "weir", "--etcd-password-file", wrong), "invalid user ID or password"},
		"no such file":       {append(own, "--etcd", etcd.url(), "--etcd-user", "weir", "--etcd-password-file", wrong+"er"), "etcd-password-file: open " + wrong + "er"},
		"another's cluster":  {append(append(files, "--cluster", "other"), secured...), "permission denied"},
		"no user":            {append(own, "--etcd", etcd.url()), "permission denied"},
		"no certificate":     {append([]string{"--etcd-ca", p.File("ca.crt")}, secured...), "remote error: tls: certificate required"},
		"CA of another":      {append([]string{"--etcd-ca", process.NewCertificates(t).File("ca.crt")}, secured...), "certificate signed by unknown authority"},
		"no TLS":             {[]string{"--etcd", etcd.endpoint}, "no answer in 5s"},
		"without a password": {append(own, "--etcd", etcd.url(), "--etcd-user", "weir"), "--etcd-user needs --etcd-password-file as well"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some wait for an answer for seconds
			free := process.Host(t) + ":0"
			args := slices.Concat([]string{"serve", "--data-dir", t.TempDir(), "--grpc", free, "--http", free, "--id", "c"}, tc.args)
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			defer cancel()
			out, err := exec.CommandContext(ctx, process.Binary(t), args...).CombinedOutput()
			if err == nil || ctx.Err() != nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v\n%s, want %q", err, out, tc.want)
			}
		})
	}
}

// The etcd in a node has the node's TLS where other machines reach it, and takes nodes and administrators only.
func TestEmbeddedEtcdWithTLS(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	p := process.NewCertificates(t)
	p.Make("client", "checker", "--role", "check")
	_, port, _ := strings.Cut(freeAddress(t), ":")
	address := process.Host(t) + ":" + port
	first := p.Start("a", "--etcd-listen", "0.0.0.0:"+port)
	second := p.Start("b", "--etcd", "https://"+address)
	if out, err := weirWith(t, p, "", append(p.Flags("node-c"), "serve", "--id", "c", "--grpc", process.Host(t)+":0", "--http", process.Host(t)+":0",
		"--data-dir", t.TempDir(), "--etcd", "https://localhost:"+port)...); err == nil || !strings.Contains(out, "wanted to match localhost") {
		t.Errorf("an etcd under a name that its certificate does not have: %v\n%s", err, out)
	}
	process.AwaitMembers(t, process.Patience, first, second)
	for cert, taken := range map[string]bool{"node-c": true, "client-admin": true, "client-checker": false, "": false} {
		if err := settings(t, address, p.Config(cert)); (err == nil) != taken {
			t.Errorf("certificate %q: %v", cert, err)
		}
	}
}

// settings asks a server of HTTP/2 for its settings.
func settings(t *testing.T, address string, config *tls.Config) error {
	t.Helper()
	config.NextProtos = []string{"h2"}
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return err
	}
	var frame [9]byte
	if _, err := conn.Read(frame[:]); err != nil {
		return err
	}
	if frame[3] != 4 {
		return fmt.Errorf("a frame of type %d", frame[3])
	}
	return nil
}
