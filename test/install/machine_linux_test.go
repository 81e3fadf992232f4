package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// machineVariable names the directory of a machine for the process that becomes the machine's first.
const machineVariable = "WEIR_TEST_MACHINE"

// treeVariable names the file system of a Debian with systemd, which .ci/run makes.
const treeVariable = "DEBIAN_TREE"

// machine is a Debian that runs its systemd as the first process of namespaces of its own. It has no network but loopback. What it
// writes is removed with the test.
type machine struct {
	t    *testing.T
	root string // its file system, as seen from outside
	pid  int    // of its systemd
}

// newMachine starts a machine on a copy of the tree, and waits until its systemd has started all that it starts by itself.
func newMachine(t *testing.T) *machine {
	t.Helper()
	tree := os.Getenv(treeVariable)
	if os.Geteuid() != 0 || tree == "" {
		if testform.AllTests() {
			t.Fatalf("needs root, and a Debian in $%s, which is %q", treeVariable, tree)
		}
		t.Skipf("needs root, and a Debian in $%s", treeVariable)
	}
	dir := t.TempDir()
	group := newCgroup(t)
	for _, name := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{machineVariable + "=" + dir, treeVariable + "=" + tree, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		UseCgroupFD: true, CgroupFD: int(group.Fd()), Pdeathsig: syscall.SIGKILL,
	}
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	started := make(chan error)
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread() // the death of the thread would end the machine
		started <- cmd.Start()
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	m := &machine{t, filepath.Join(dir, "root"), cmd.Process.Pid}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("journal:\n%s", m.try("journalctl", "--no-pager", "-u", "weir"))
		}
		_ = cmd.Process.Kill() // and with it all of its processes
		<-ended
		if t.Failed() {
			t.Logf("console:\n%s", console.String())
		}
	})
	process.Await(t, process.Patience, func() error {
		if state := strings.TrimSpace(m.try("systemctl", "is-system-running")); state != "running" && state != "degraded" {
			return fmt.Errorf("systemd says %s", state)
		}
		return nil
	})
	return m
}

// newCgroup makes a control group, which is removed when what runs in it has ended.
func newCgroup(t *testing.T) *os.File {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var top string
	for line := range strings.Lines(string(mounts)) {
		if _, after, _ := strings.Cut(line, " - "); strings.HasPrefix(after, "cgroup2 ") {
			top = strings.Fields(line)[4]
		}
	}
	if top == "" {
		t.Fatal("no cgroup2 is mounted, which systemd needs")
	}
	dir, err := os.MkdirTemp(top, "weir-test-") //nolint:usetesting // it is a control group
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // children first
		var dirs []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	})
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = group.Close() })
	return group
}

// become has this process, the first of its namespaces, be the systemd of the machine in that directory.
func become(dir string) error {
	runtime.LockOSThread()
	root := filepath.Join(dir, "root")
	over := "lowerdir=" + os.Getenv(treeVariable) + ",upperdir=" + filepath.Join(dir, "upper") + ",workdir=" + filepath.Join(dir, "work")
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"machine", "", "overlay", 0, over},
		{"proc", "proc", "proc", 0, ""},
		{"sysfs", "sys", "sysfs", unix.MS_RDONLY, ""},
		{"tmpfs", "dev", "tmpfs", 0, "mode=0755"},
		{"tmpfs", "run", "tmpfs", 0, "mode=0755"},
		{"tmpfs", "tmp", "tmpfs", 0, "mode=1777"},
	} {
		if err := unix.Mount(m.source, filepath.Join(root, m.target), m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount /%s: %w", m.target, err)
		}
	}
	// The kernel's settings are those of all machines.
	settings := filepath.Join(root, "proc/sys")
	if err := errors.Join(unix.Mount(settings, settings, "", unix.MS_BIND, ""), unix.Mount("", settings, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		return fmt.Errorf("protect /proc/sys: %w", err)
	}
	if err := makeDevices(filepath.Join(root, "dev")); err != nil {
		return err
	}
	if err := enter(root); err != nil {
		return fmt.Errorf("enter %s: %w", root, err)
	}
	// The clock, modules and ports of the processor are those of all machines, too.
	for _, capability := range []uintptr{unix.CAP_SYS_TIME, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_BOOT} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	return unix.Exec("/lib/systemd/systemd", []string{"systemd"}, []string{"container=weir-test", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"})
}

// enter has this thread see the file system below root only, and its own control group as the top. The caller is locked to its thread.
func enter(root string) error {
	for _, step := range []func() error{
		func() error { return unix.Chdir(root) },
		func() error { return unix.PivotRoot(".", ".") },
		func() error { return unix.Unmount(".", unix.MNT_DETACH) }, // the old one, which is on top
		func() error { return unix.Chdir("/") },
		func() error { return unix.Unshare(unix.CLONE_NEWCGROUP) },
		func() error { return unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "") },
		func() error { return unix.Sethostname([]byte("machine")) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// makeDevices makes the devices that every program may use.
func makeDevices(dev string) error {
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		path := filepath.Join(dev, name)
		if err := errors.Join(unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))), os.Chmod(path, 0o666)); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
	}
	for name, to := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dev, "shm"), 0o1777), os.Mkdir(filepath.Join(dev, "pts"), 0o755)); err != nil {
		return err
	}
	return unix.Mount("devpts", filepath.Join(dev, "pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=0620,gid=5")
}

// command is a command of root on the machine.
func (m *machine) command(args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(m.pid), "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--root", "--wdns=/"}
	cmd := exec.Command("nsenter", append(append(enter, "--"), args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root", "TERM=dumb"}
	return cmd
}

// run returns what a command prints. It must succeed.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.command(args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// try returns what a command prints, also if it fails.
func (m *machine) try(args ...string) string {
	out, err := m.command(args...).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

// sh runs a line of a shell. It must succeed.
func (m *machine) sh(line string) string {
	m.t.Helper()
	return strings.TrimSpace(m.run("sh", "-c", line))
}

// wants fails unless a line of a shell prints that.
func (m *machine) wants(line, want string) {
	m.t.Helper()
	if got := strings.TrimSpace(m.try("sh", "-c", line)); got != want {
		m.t.Errorf("%s prints %q, want %q", line, got, want)
	}
}

// put copies a file of this machine to the root of the other.
func (m *machine) put(path string) (target string) {
	m.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	target = "/" + filepath.Base(path)
	cmd := m.command("sh", "-c", `cat >"$0"`, target)
	cmd.Stdin = f
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v\n%s", target, err, out)
	}
	return target
}
