package compose

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir/test/process"
)

// insideVariable names the directory for the services' file systems. With it, the process is alone in its network, and sees only the
// processes that it starts.
const insideVariable = "WEIR_TEST_COMPOSE_INSIDE"

func TestMain(m *testing.M) {
	if err := os.Setenv("CGO_ENABLED", "0"); err != nil { // as in the Dockerfile: the image has no libraries
		panic(err)
	}
	if os.Geteuid() != 0 {
		process.Main(m) // the services are not started
		return
	}
	if dir := os.Getenv(insideVariable); dir != "" {
		if err := isolate(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		process.Main(m)
		return
	}
	os.Exit(enter())
}

// enter runs this program again, as the first process of namespaces of its own. With it all ends that it has started.
func enter() int {
	runtime.LockOSThread() // the death of the thread would end the child
	dir, err := os.MkdirTemp("", "weir-compose-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.Remove(dir) // it is empty here
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// isolate keeps what this process mounts to itself, and prepares its network.
func isolate(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("weir", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
