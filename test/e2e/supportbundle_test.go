package e2e

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// unpack returns the files of an archive.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for archive := tar.NewReader(packed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[path.Base(header.Name)] = string(text)
	}
}

// weir support-bundle has what a running node says, and none of the secrets that its files have.
func TestSupportBundle(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	etcd := process.StartEtcd(t)
	a := p.Start("a", "--etcd", etcd.Endpoint, "--admin", net.JoinHostPort(process.Host(t), "0"), "--rules", writeRules(t, lastingRule))
	process.AwaitMembers(t, process.Patience, a)
	const password = "planted-password"
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := writeConfig(t, "id: a", "grpc: "+a.GRPC, "http: "+a.HTTP, "admin: "+a.Admin, "etcd: "+etcd.Endpoint, "insecure: false",
		"tls-ca: "+p.File("ca.crt"), "tls-cert: "+p.File("node-a.crt"), "tls-key: "+p.File("node-a.key"), "data-dir: "+t.TempDir(),
		"etcd-user: weir", "etcd-password-file: "+secret, "http-hosts: "+password+".example")
	token := "weir_" + strings.Repeat("x1Y", 14) + "z"
	run := func(env []string, args ...string) map[string]string {
		t.Helper()
		out := filepath.Join(t.TempDir(), "bundle.tar.gz")
		cmd := exec.Command(process.Binary(t), append([]string{"support-bundle", "-o", out}, args...)...)
		cmd.Env = append(os.Environ(), env...)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v: others may read it", info, err)
		}
		return unpack(t, out)
	}
	asAdmin := append(p.Flags("client-admin"), "--node", a.Admin, "--config", config)
	files := run(nil, asAdmin...)
	for name, want := range map[string]string{
		"version.txt": "weir ", "health.json": `"node_id":"a"`, "nodes.json": a.GRPC, "ring.json": `"partitions":1021`, "metrics.txt": "weir_ready 1",
		"goroutines.txt": "goroutine profile:", "doctor.json": `"findings"`, "options.json": `"http-hosts": "REDACTED.example"`,
		"node-options.json": `"name":"etcd","value":"` + etcd.Endpoint + `","changed":true`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q:\n%.500s\n%s", name, want, files[name], files["errors.txt"])
		}
	}
	refused := run([]string{"WEIR_TOKEN=" + token, "WEIR_ID=" + token}, asAdmin...)
	if !strings.Contains(refused["errors.txt"], "health.json: ") || refused["doctor.json"] == "" {
		t.Errorf("a client that is refused: %v", refused)
	}
	planted := []string{password, token}
	for _, name := range []string{"node-a.key", "client-admin.key"} {
		key, err := os.ReadFile(p.File(name))
		if err != nil {
			t.Fatal(err)
		}
		planted = append(planted, strings.Split(string(key), "\n")[1])
	}
	for _, all := range []map[string]string{files, refused} {
		for name, text := range all {
			for _, s := range planted {
				if strings.Contains(text, s) {
					t.Errorf("%s has the secret %q", name, s)
				}
			}
		}
	}
	out, err := exec.Command(process.Binary(t), "support-bundle", "-o", config).CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "file exists") {
		t.Errorf("a file that exists: %v\n%s", err, out)
	}
}
