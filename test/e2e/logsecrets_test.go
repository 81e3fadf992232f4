package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/test/process"
)

// secureEtcd has an etcd ask for users, and returns the file of the password of user weir, who may do everything.
func secureEtcd(t *testing.T, etcd *process.Etcd, password string) (passwordFile string) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, user := range []string{"root", "weir"} {
		if _, err := c.UserAdd(t.Context(), user, password); err != nil {
			t.Fatal(err)
		}
		if _, err := c.UserGrantRole(t.Context(), user, "root"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.AuthEnable(t.Context()); err != nil {
		t.Fatal(err)
	}
	passwordFile = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(passwordFile, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return passwordFile
}

// What callers show and ask about is in no log, at any level: no access token, also not a wrong one, and no value of an attribute, also not one that is
// refused. Decisions are logged with hashed values. The password of etcd is in no log either, nor one that etcd refuses.
func TestLogsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	etcd := process.StartEtcd(t)
	const password, wrongPassword = "SecretPassword", "SecretThatEtcdRefuses"
	asUser := []string{"--etcd", etcd.Endpoint, "--etcd-user", "weir", "--etcd-password-file", secureEtcd(t, etcd, password)}
	start := func(id string) *process.Node {
		return p.Start(id, append(asUser, "--log-level", "debug", "--audit-log", p.File("audit-"+id), "--decision-log", p.File("decisions-"+id), "--decision-log-which", "all")...)
	}
	a, b := start("a"), start("b")
	process.AwaitMembers(t, process.Patience, a, b)
	rules := writeRules(t, "domain: default\nrules: [{id: r, per: [user], limits: [{limit: 3, window: 1h}]}]\n")
	if out, err := weirWith(t, p, "client-admin", "rules", "apply", "-f", rules, "--node", a.GRPC); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := weirWith(t, p, "client-admin", "tokens", "create", "checkout", "--role", "check", "--node", a.GRPC)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	token := strings.TrimSpace(out)
	const wrong, user, path, long = "weir_SecretThatIsWrong", "SecretUser", "/secret/path", "SecretLong"
	for _, n := range []*process.Node{a, b} {
		for _, shown := range []string{token, wrong} {
			c, err := client.NewNode(n.GRPC, client.WithTLS(p.Config("")), client.WithAccessToken(shown), client.WithTimeout(process.Patience))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 20 { // on both nodes, some denied
				for range 5 {
					_, _ = c.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: fmt.Sprint(user, i), Endpoint: path})
				}
			}
			if _, err := c.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: strings.Repeat(long, 1000)}); err == nil {
				t.Error("a value that is too long was accepted")
			}
			_ = c.Close()
			transport := &http.Transport{TLSClientConfig: p.Config("")}
			body := `{"identifier_type":"user","identifier":"` + user + `",}`
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+n.HTTP+"/v1/check?"+user+"=1", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+shown)
			if resp, err := transport.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			} else {
				t.Error(err)
			}
			cancel()
			transport.CloseIdleConnections()
		}
	}
	if err := os.WriteFile(asUser[len(asUser)-1], []byte(wrongPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	free := process.Host(t) + ":0"
	serve := slices.Concat([]string{"serve", "--id", "c", "--grpc", free, "--http", free, "--data-dir", t.TempDir(), "--log-level", "debug"}, p.Flags("node-c"), asUser)
	refused, err := weirWith(t, p, "", serve...)
	if err == nil || !strings.Contains(refused, "invalid user ID or password") {
		t.Errorf("a wrong password: %v\n%s", err, refused)
	}
	etcd.Kill() // which nodes log
	process.Await(t, process.Patience, func() error {
		if !strings.Contains(a.Log(), "etcd unreachable") {
			return fmt.Errorf("not logged yet: %s", a.Log())
		}
		return nil
	})
	logs := map[string]string{"node a": a.Log(), "node b": b.Log(), "node c, which etcd refuses": refused}
	for _, name := range []string{"audit-a", "audit-b", "decisions-a", "decisions-b"} {
		process.Await(t, process.Patience, func() error {
			text, err := os.ReadFile(p.File(name))
			if err == nil && len(text) == 0 && name != "audit-b" { // which no change was asked of
				err = fmt.Errorf("%s is empty", name)
			}
			logs[name] = string(text)
			return err
		})
	}
	for name, text := range logs {
		for _, secret := range []string{token, strings.TrimPrefix(token, "weir_"), wrong, user, path, long, password, wrongPassword} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("the log of %s has %q: %s", name, secret, text[max(0, i-200):min(len(text), i+100)])
			}
		}
	}
}
