package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// doctor runs weir doctor, and returns what it has printed as lines of single spaces, and its exit code.
func doctor(t *testing.T, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, process.Binary(t), append([]string{"doctor"}, args...)...)
	out, err := cmd.Output()
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code, out = exit.ExitCode(), append(out, exit.Stderr...)
	} else if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		line = strings.Join(strings.Fields(line), " ")
		if (strings.HasPrefix(line, "error ") || strings.HasPrefix(line, "warning ")) && !strings.Contains(line, "; to do: ") {
			t.Errorf("nothing says what to do about %q", line)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n") + "\n", code
}

// writeConfig writes a file of options.
func writeConfig(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// weir doctor finds nothing wrong with a node that could start, and names each thing that would keep it from that.
func TestDoctorBeforeTheStart(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	p := process.NewCertificates(t)
	l, err := net.Listen("tcp", net.JoinHostPort(process.Host(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	// Certificates that were made long ago.
	dir := filepath.Join(t.TempDir(), "old")
	now := time.Now()
	ca, err := certs.CreateAuthority(dir, "default", now.AddDate(-2, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	for id, made := range map[string]time.Time{"soon": now.AddDate(0, 0, 12).AddDate(-1, 0, 0), "over": now.AddDate(-1, 0, -2)} {
		if _, err := ca.Issue(certs.Name{Kind: certs.Node, ID: id}, nil, made); err != nil {
			t.Fatal(err)
		}
	}
	made := func(name string) []string {
		return []string{"tls-ca: " + filepath.Join(dir, "ca.crt"), "tls-cert: " + filepath.Join(dir, "node-"+name+".crt"), "tls-key: " + filepath.Join(dir, "node-"+name+".key")}
	}
	ours := []string{"tls-ca: " + p.File("ca.crt"), "tls-cert: " + p.File("node-a.crt"), "tls-key: " + p.File("node-a.key")}
	open := p.File("open.key")
	key, err := os.ReadFile(p.File("node-a.key"))
	if err == nil {
		err = os.WriteFile(open, key, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	base := []string{
		"grpc: " + freeAddress(t), "http: " + freeAddress(t), "etcd-listen: " + freeAddress(t),
		"data-dir: " + filepath.Join(t.TempDir(), "data"), "rules: " + writeRules(t, lastingRule),
	}
	forEnvoy := func(cert, key, ca string) []string {
		lines := []string{"rls-listen: " + freeAddress(t), "rls-ca: " + p.File(ca)}
		if cert != "" {
			lines = append(lines, "rls-cert: "+p.File("node-"+cert+".crt"), "rls-key: "+p.File("node-"+key+".key"))
		}
		return lines
	}
	for name, tc := range map[string]struct {
		lines []string
		code  int
		want  []string
	}{
		"good": {append([]string{"id: a"}, ours...), 0, []string{
			"ok grpc ", `ok tls-cert ` + p.File("node-a.crt") + ` names node "a" of cluster "default" and ends in 36`, "ok tls-ca " + p.File("ca.crt") + " ends in 36",
			"ok tls-key ", "ok etcd in the process of this node", "ok rules can be read",
		}},
		"no TLS":                            {[]string{"id: a"}, 0, []string{"ok tls-cert none: this node serves on loopback only"}},
		"bad options":                       {[]string{"id: a b", "peer-timeout: 1h"}, 1, []string{"error options", ": id: ", ": peer-timeout: "}},
		"a certificate of another":          {append([]string{"id: b"}, ours...), 1, []string{`error tls-cert`, `the certificate is for node "a" of cluster "default", and this is node "b"`}},
		"a key of another":                  {append(append([]string{"id: a"}, ours[:2]...), "tls-key: "+p.File("node-b.key")), 1, []string{"error tls-cert, tls-key", "private key does not match public key"}},
		"a certificate that is gone":        {append([]string{"id: a", "tls-cert: " + p.File("gone")}, ours[0], ours[2]), 1, []string{"error tls-cert open " + p.File("gone") + ": no such file"}},
		"a certificate that ends":           {append([]string{"id: soon"}, made("soon")...), 0, []string{"warning tls-cert", "ends in 11 days, at "}},
		"a certificate that is over":        {append([]string{"id: over"}, made("over")...), 1, []string{"error tls-cert", "certificate has expired"}},
		"a key that others read":            {append(append([]string{"id: a"}, ours[:2]...), "tls-key: "+open), 0, []string{"warning tls-key " + open + " has the mode 0644"}},
		"files for Envoy":                   {append([]string{"id: a"}, forEnvoy("a", "a", "ca.crt")...), 0, []string{"ok rls-cert " + p.File("node-a.crt") + " ends in 36", "ok rls-ca ", "ok rls-key "}},
		"no CA for Envoy":                   {append([]string{"id: a"}, forEnvoy("a", "a", "gone")...), 1, []string{"error rls-ca open " + p.File("gone")}},
		"a key of another for Envoy":        {append([]string{"id: a"}, forEnvoy("a", "b", "ca.crt")...), 1, []string{"error rls-cert, rls-key", "private key does not match public key"}},
		"a certificate for Envoy that ends": {append([]string{"id: a", "rls-key: " + filepath.Join(dir, "node-soon.key"), "rls-cert: " + filepath.Join(dir, "node-soon.crt")}, forEnvoy("", "", "ca.crt")...), 0, []string{"warning rls-cert", "ends in 11 days, at "}},
		"a key for Envoy that others read":  {append([]string{"id: a", "rls-key: " + open, "rls-cert: " + p.File("node-a.crt")}, forEnvoy("", "", "ca.crt")...), 0, []string{"warning rls-key " + open + " has the mode 0644"}},
		"a port in use":                     {[]string{"id: a", "admin: " + l.Addr().String()}, 1, []string{"error admin " + l.Addr().String() + " is in use, and not by this node"}},
		"an address of another":             {[]string{"id: a", "insecure: true", "pprof: 127.0.0.1:0", "admin: 192.0.2.1:9000"}, 1, []string{"error admin", "cannot assign requested address"}},
		"etcd that does not answer":         {[]string{"id: a", "etcd: " + freeAddress(t)}, 1, []string{"error etcd etcd at ", "connection refused"}},
	} {
		out, code := doctor(t, "--config", writeConfig(t, append(tc.lines, base...)...))
		for _, want := range tc.want {
			if code != tc.code || !strings.Contains(out, want) {
				t.Errorf("%s: exit code %d, want %d and %q:\n%s", name, code, tc.code, want, out)
			}
		}
	}
	byXDS := []string{"xds-server: https://" + freeAddress(t)}
	for name, tc := range map[string]struct {
		lines []string
		want  []string
	}{
		"an xDS server that is away":   {[]string{"xds-cert: " + p.File("node-a.crt"), "xds-key: " + open, "xds-ca: " + p.File("ca.crt")}, []string{"ok xds-cert " + p.File("node-a.crt") + " ends in 36", "ok xds-ca ", "warning xds-key " + open + " has the mode 0644", "error xds-server", "does not answer"}},
		"a CA for xDS that is gone":    {[]string{"xds-ca: " + p.File("gone")}, []string{"error xds-ca open " + p.File("gone")}},
		"a certificate for xDS of old": {[]string{"xds-cert: " + filepath.Join(dir, "node-over.crt"), "xds-key: " + filepath.Join(dir, "node-over.key")}, []string{"error xds-cert", "has ended at"}},
	} {
		out, code := doctor(t, "--config", writeConfig(t, slices.Concat(byXDS, tc.lines, base[:4])...))
		for _, want := range tc.want {
			if code != 1 || !strings.Contains(out, want) {
				t.Errorf("%s: exit code %d, want 1 and %q:\n%s", name, code, want, out)
			}
		}
	}
	bad := writeConfig(t, append([]string{"id: a", "rules: " + writeRules(t, "domain: default\nrules:\n  - {id: x, limits: [{limit: -1, window: 1h}]}\n")}, base[:4]...)...)
	if out, code := doctor(t, "--config", bad); code != 1 || !strings.Contains(out, "error rules") || !strings.Contains(out, `limits[0].limit: "-1" is not between`) {
		t.Errorf("bad rules: exit code %d\n%s", code, out)
	}
	for _, args := range [][]string{{"--token-file", "x"}, {"--node", "127.0.0.1:1", "--id", "a"}, {"--node", "127.0.0.1:1", "--config", "x"}, {"--timeout", "0s"}, {"x"}} {
		if out, code := doctor(t, args...); code != 2 {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	}
}

// weir doctor knows that the node runs, asks the other nodes, and names one that has died.
func TestDoctorOfARunningNode(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	etcd := process.StartEtcd(t)
	rules := writeRules(t, lastingRule)
	a := p.Start("a", "--etcd", etcd.Endpoint, "--rules", rules)
	b := p.Start("b", "--etcd", etcd.Endpoint, "--rules", rules)
	process.AwaitMembers(t, process.Patience, a, b)
	args := append(p.Flags("node-a"), "--id", "a", "--grpc", a.GRPC, "--http", a.HTTP, "--etcd", etcd.Endpoint, "--rules", rules, "--data-dir", t.TempDir())
	out, code := doctor(t, args...)
	for _, want := range []string{
		"ok grpc " + a.GRPC + " is in use, and this node runs", "ok http ", "ok etcd " + etcd.Endpoint + " answers, and this node may write to it", `ok cluster "default" has 2 nodes`,
		"ok etcd a quorum answers a read within ", "warning etcd it has 1 members: if one is lost", "ok etcd " + etcd.Endpoint + " version 3.", " file descriptors ",
		"ok node a answers at " + a.GRPC, "ok node b answers at " + b.GRPC + ", and its clock agrees",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, want %q:\n%s", code, want, out)
		}
	}
	plain := []string{"--id", "c", "--grpc", freeAddress(t), "--http", freeAddress(t), "--etcd", etcd.Endpoint, "--rules", rules, "--data-dir", t.TempDir()}
	if out, code := doctor(t, plain...); code != 1 || !strings.Contains(out, "all nodes of a cluster need TLS, or none") {
		t.Errorf("a node without TLS: exit code %d\n%s", code, out)
	}
	asAdmin := append(p.Flags("client-admin"), "--node", a.GRPC)
	out, code = doctor(t, append(asAdmin, "--json")...)
	var report struct {
		Findings []struct{ Severity, Subject, Text string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || len(report.Findings) != 5 {
		t.Errorf("asking node a: exit code %d, %v\n%s", code, err, out)
	}
	for _, want := range []string{"answers at " + a.GRPC + " and is ready", "the certificate of node a ends in 36", "is a member, and answers the asked node at " + b.GRPC, "2 nodes asked: what is to be the same on all nodes is"} {
		if !strings.Contains(out, want) {
			t.Errorf("asking node a: %q is missing:\n%s", want, out)
		}
	}
	if out, code := doctor(t, "--node", a.GRPC, "--tls-ca", p.File("ca.crt")); code != 1 || !strings.Contains(out, "neither a certificate of a client nor a token") {
		t.Errorf("asking node a without a certificate: exit code %d\n%s", code, out)
	}
	c := p.Start("c", "--etcd", etcd.Endpoint, "--rules", rules, "--lyft-algorithm", "sliding_window")
	process.AwaitMembers(t, process.Patience, a, b, c)
	process.Await(t, process.Patience, func() error {
		if out, code := doctor(t, asAdmin...); code != 0 || !strings.Contains(out, `warning options --lyft-algorithm is to be the same on all nodes, and is "fixed_window" on a, b, "sliding_window" on c`) {
			return fmt.Errorf("exit code %d\n%s", code, out)
		}
		return nil
	})
	b.Kill()
	if out, code := doctor(t, args...); code != 1 || !strings.Contains(out, "error node b does not answer at "+b.GRPC) {
		t.Errorf("node b is dead: exit code %d\n%s", code, out)
	}
	process.Await(t, process.Patience, func() error {
		if out, code := doctor(t, asAdmin...); code != 1 || !strings.Contains(out, "error node b does not answer the asked node") {
			return errors.New(out)
		}
		return nil
	})
}
