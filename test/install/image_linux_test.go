package install

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// TestImage builds the image without an engine, and runs it as its user, with nothing of this machine but its network.
func TestImage(t *testing.T) {
	testform.NotInBrief(t)
	if os.Geteuid() != 0 {
		testform.LeaveOut(t, "only root may enter the image's file system")
	}
	i, err := buildImage("../../Dockerfile", sources(t), imageRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	if i.uid == 0 || i.gid == 0 {
		t.Errorf("the image runs as %d:%d", i.uid, i.gid)
	}
	isStatic(t, filepath.Join(i.root, i.entrypoint[0]))
	if files := output(t, i.root, "find", ".", "-type", "f"); slices.Compare(slices.Sorted(slices.Values(strings.Fields(files))), []string{"./etc/ssl/certs/ca-certificates.crt", "./weir"}) != 0 {
		t.Errorf("the image has the files %q", files)
	}
	if out, err := i.run(nil, i.entrypoint[0], "version").Output(); err != nil || !strings.HasPrefix(string(out), "weir v"+packagedVersion+" (") {
		t.Errorf("version: %v, %q", err, out)
	}

	// As it is, the image does not serve without TLS by mistake.
	out, err := i.run(nil, append(i.entrypoint, i.cmd...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--insecure") {
		t.Errorf("without TLS: %v, %s", err, out)
	}

	host := process.Host(t)
	env := []string{
		"WEIR_ADVERTISE=" + net.JoinHostPort(host, "9090"), "WEIR_GRPC=" + net.JoinHostPort(host, "9090"), "WEIR_HTTP=" + net.JoinHostPort(host, "8080"),
		"WEIR_ETCD_LISTEN=" + net.JoinHostPort(host, "2379"), "WEIR_ID=a",
	}
	check := func() (int, string) {
		out, err := i.run(env, i.healthcheck...).CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode(), string(out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return 0, string(out)
	}
	if code, said := check(); code != 1 || !strings.Contains(said, "refused") {
		t.Errorf("health check before the start: exit code %d, %s", code, said)
	}
	var log bytes.Buffer
	node := i.run(env, append(i.entrypoint, i.cmd...)...)
	node.Stderr = &log
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Process.Kill() })
	process.Await(t, process.Patience, func() error {
		if code, said := check(); code != 0 {
			return fmt.Errorf("health check: exit code %d, %s", code, said)
		}
		return nil
	})
	if entries, err := os.ReadDir(filepath.Join(i.root, "data")); err != nil || len(entries) == 0 {
		t.Errorf("/data has %v, %v", entries, err)
	}
	if err := node.Process.Signal(syscall.SIGTERM); err != nil { // the image's STOPSIGNAL
		t.Fatal(err)
	}
	if err := node.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log.String())
	}
}

// run returns a command in the image, as its user.
func (i image) run(env []string, args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path: args[0], Args: args, Dir: "/", Env: append(slices.Clone(i.env), env...),
		SysProcAttr: &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: i.uid, Gid: i.gid}},
	}
}

// imageRoot returns an empty directory that the image's user may enter.
func imageRoot(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sources returns a copy of what COPY . . copies: all that .dockerignore does not name.
func sources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	output(t, "../..", "sh", "-c", `tar -c --exclude=./.git --exclude=./bin --exclude=node_modules . | tar -x -C "$0"`, dir)
	return dir
}

// isStatic fails unless a program needs no other file.
func isStatic(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s is not static: it has %v", path, p.Type)
		}
	}
}

// TestHealthcheckWithTLS: a node that wants certificates of its clients is asked with its own.
func TestHealthcheckWithTLS(t *testing.T) {
	c := process.NewCertificates(t)
	n := c.Start("a", "--tls-client-auth", "require")
	ask := func(flags ...string) ([]byte, error) {
		return exec.Command(process.Binary(t), append([]string{"healthcheck", "--id", "a", "--http", n.HTTP}, flags...)...).CombinedOutput()
	}
	if out, err := ask(c.Flags("node-a")...); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := ask(); err == nil {
		t.Errorf("without TLS: %s", out)
	}
}
